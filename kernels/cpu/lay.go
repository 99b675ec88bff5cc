package cpu

import "github.com/krait-ml/krait/graph"

// touched are the blocks of a line that have its elements from col on.
func touched(b *graph.Blocks, col, n int) (first, count int) {
	end := 0
	for i, s := range b.Spans {
		if s.Len > 0 && s.At <= col {
			first = b.Spans[i].Block + (s.Lead+col-s.At)/b.Format.Elems
		}
		if s.Len > 0 && s.At < col+n {
			end = s.Block + (s.Lead+min(s.Len, col+n-s.At)-1)/b.Format.Elems + 1
		}
	}
	return first, end - first
}

// lay lays activations of the elements from col on as they lie in blocks, of which the first is
// one of a line: in to, with zeros for other elements, or, if they fill the blocks, where they are.
func lay(to, x []float32, b *graph.Blocks, col, first int) []float32 {
	if len(to) == len(x) {
		return x
	}
	clear(to)
	for _, s := range b.Spans {
		lo, hi := max(s.At, col), min(s.At+s.Len, col+len(x))
		if lo < hi {
			copy(to[(s.Block-first)*b.Format.Elems+s.Lead+lo-s.At:], x[lo-col:hi-col])
		}
	}
	return to
}
