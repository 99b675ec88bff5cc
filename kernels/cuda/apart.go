package cuda

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Pieces is how many numbers of bf16 have the bits of one of f32.
const Pieces = 3

// PiecesLeast is the least n and k of products that a library does in pieces: with a smaller k,
// reading and writing results again for each piece takes longer than tiles, and with a smaller n
// taking the activations apart does. It was not measured: both are even at about 500 by the
// modelled rate of tiles, and at about 250 by one that was measured. Tests make it smaller.
var PiecesLeast = 384

// productPieces: a library, if there is one, computes a matmul by weights in bf16 of the pieces
// of x, of more rows than tiles cut k for, so that all multiprocessors have work.
func productPieces(c *Call) []int {
	p := &product{x: &c.Args[0], w: &c.Args[1], y: &c.Results[0]}
	if c.Options.Library && p.w.DType == graph.BF16 && min(p.w.Rows(), p.w.Cols) >= PiecesLeast && p.y.Rows() > graph.PiecesRows && c.splits(p) {
		return []int{0}
	}
	return nil
}

// ofPieces is a call that a kernel does, or a library as a product of pieces: activations that are
// not in pieces are first taken apart, to the scratch.
func (k Kernel) ofPieces(c *Call) []Part {
	if c.Options.Math != F32 || k.pieces == nil || c.Args[0].InPieces || !k.Accepts(c)[0] {
		return []Part{{k, c}}
	}
	to, product := c.Args[0], *c
	to.Ptr, to.Stride, to.InPieces = c.Scratch, to.Cols, true
	product.Args = slices.Clone(c.Args)
	product.Args[0] = to
	first := &Call{Args: c.Args[:1], Results: []Tensor{to}, Options: c.Options, Scratch: c.Scratch}
	return []Part{{takeApart, first}, {k, &product}}
}

// apartAlready reports whether the last of some parts is a product of the pieces to which the
// first of the next ones takes the same activations apart.
func apartAlready(list, next []Part) bool {
	last := len(list) - 1
	if last < 1 || list[last-1].op != takeApart.op || next[0].op != takeApart.op {
		return false
	}
	return list[last-1].Args[0].Ptr == next[0].Args[0].Ptr && list[last].Args[0].Ptr == next[0].Results[0].Ptr
}

// takeApart writes the pieces of x, of f32: the first has the first 8 bits of each number. Rows of
// x are aligned to 16 bytes, and their length is a multiple of 8. Infinity is in the first matrix
// alone.
var takeApart = Kernel{
	launch: func(c *Call) error {
		x := &c.Args[0]
		c.launch("apart", "take_apart_f32", [3]int{x.Rows(), ceilDiv(x.Cols, elementCols), 1}, [3]int{elementThreads}, 0,
			c.Results[0].Ptr, x.Ptr, x.stride(), x.Rows(), x.Cols)
		return nil
	},
	scratch: func(c *Call) int64 { return int64(betweenBytes(&c.Results[0])) },
	op:      &graph.Op{Name: "take_apart"},
}

// normPieces: rows that are taken apart by fours.
func normPieces(c *Call) []int {
	x, g := &c.Args[0], &c.Args[1]
	if x.DType == graph.F32 && x.Cols%8 == 0 && aligned(x) && g.Ptr%16 == 0 {
		return []int{len(c.Args)}
	}
	return nil
}

// normApart is rmsnorm and takeApart, with their bits.
func (c *Call) normApart() {
	x := &c.Args[0]
	c.launch("apart", "norm_apart_f32", [3]int{x.Rows(), 1, 1}, normThreads(x.Cols), 0,
		c.Results[0].Ptr, x.Ptr, x.stride(), c.Args[1].Ptr, x.Rows(), x.Cols, float32(c.Attrs.Float("eps")))
}
