package cuda

// Pieces is how many numbers of bf16 have the bits of one of f32.
const Pieces = 3

// TakeApart returns the launches that write [Pieces] matrices of bf16, packed and one behind the
// other, whose sum is x, of f32: the first has the first 8 bits of each number. Rows of x are
// aligned to 16 bytes, and their length is a multiple of 8, as where [Part.Splits]. Infinity is in
// the first matrix alone.
func TakeApart(to uint64, x Tensor) []Launch {
	var c Call
	c.launch("apart", "take_apart_f32", [3]int{x.Rows(), ceilDiv(x.Cols, 8*elementThreads), 1}, [3]int{elementThreads}, 0,
		to, x.Ptr, x.stride(), x.Rows(), x.Cols)
	return c.launches
}
