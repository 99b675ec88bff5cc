package cuda

import "github.com/krait-ml/krait/graph"

// Pieces is how many numbers of bf16 have the bits of one of f32.
const Pieces = 3

// apartDepth is the least k of products that a library does in pieces: each piece's product reads
// and writes all results. An assumption, not measured.
const apartDepth = 64

// Apart reports whether a library, if there is one, computes a matmul by weights in bf16 in pieces:
// of more rows than tiles cut k for, so that all multiprocessors have work.
func (p *Part) Apart() bool {
	if p.Name() != "matmul" && p.Name() != "matmul_add" {
		return false
	}
	w := &p.Args[1]
	return w.DType == graph.BF16 && w.Cols >= apartDepth && p.Results[0].Rows() > mmaFused && p.Splits()
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
