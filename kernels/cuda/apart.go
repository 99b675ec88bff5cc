package cuda

import "github.com/krait-ml/krait/graph"

// Pieces is how many numbers of bf16 have the bits of one of f32.
const Pieces = 3

// PiecesLeast is the least n and k of products that a library does in pieces: with a smaller k,
// reading and writing results again for each piece takes longer than tiles, and with a smaller n
// taking the activations apart does. It was not measured: both are even at about 500 by the
// modelled rate of tiles, and at about 250 by one that was measured. Tests make it smaller.
var PiecesLeast = 384

// Apart reports whether a library, if there is one, computes a matmul by weights in bf16 in pieces:
// of more rows than tiles cut k for, so that all multiprocessors have work.
func (p *Part) Apart() bool {
	if p.Name() != "matmul" && p.Name() != "matmul_add" {
		return false
	}
	w := &p.Args[1]
	return w.DType == graph.BF16 && min(w.Rows(), w.Cols) >= PiecesLeast && p.Results[0].Rows() > mmaFused && p.Splits()
}

// TakeApart returns the launches that write [Pieces] matrices of bf16, packed and one behind the
// other, whose sum is x, of f32: the first has the first 8 bits of each number. Rows of x are
// aligned to 16 bytes, and their length is a multiple of 8, as where [Part.Apart]. Infinity is in
// the first matrix alone.
func TakeApart(to uint64, x Tensor) []Launch {
	var c Call
	c.launch("apart", "take_apart_f32", [3]int{x.Rows(), ceilDiv(x.Cols, elementCols), 1}, [3]int{elementThreads}, 0,
		to, x.Ptr, x.stride(), x.Rows(), x.Cols)
	return c.launches
}

// GivesPieces reports whether the part can store its result in pieces: for products that take
// activations apart, where nothing else reads them. Scratch of the part's own is not used then.
func (p *Part) GivesPieces() bool { return p.pieces != nil && p.pieces(p.Call) }

// normPieces: rows that are taken apart by fours.
func normPieces(c *Call) bool {
	x := &c.Args[0]
	return x.DType == graph.F32 && c.Results[0].DType == graph.F32 && x.Cols%8 == 0 && aligned(x) && c.Args[1].Ptr%16 == 0
}

// normApart is rmsnorm and [TakeApart], with their bits.
func (c *Call) normApart() {
	x := &c.Args[0]
	c.launch("apart", "norm_apart_f32", [3]int{x.Rows(), 1, 1}, normThreads(x.Cols), 0,
		c.Pieces, x.Ptr, x.stride(), c.Args[1].Ptr, x.Rows(), x.Cols, float32(c.Attrs.Float("eps")))
}
