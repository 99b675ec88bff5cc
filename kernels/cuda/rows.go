package cuda

import (
	"errors"
	"fmt"
	"iter"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"embedding":   {launch: embedding},
	"select_rows": {launch: selectRows},
	"concat":      {launch: concat},
})

// maxRuns is how many runs of an axis the embedding kernel takes.
const maxRuns = 8

// runs is what the rank holds of the first axis of a tensor, for kernels.
func runs(t *kernels.Tensor) (Struct, error) {
	start, size := make([]any, maxRuns), make([]any, maxRuns)
	for i := range start {
		start[i], size[i] = 0, 0
	}
	if t.Runs == nil || t.Axis != 0 {
		size[0] = t.Rows()
		return append(start, size...), nil
	}
	if len(t.Runs) > maxRuns {
		return nil, fmt.Errorf("the table's rows have %d fields; the kernel takes up to %d", len(t.Runs), maxRuns)
	}
	for i, r := range t.Runs {
		start[i], size[i] = r.Start, r.Len
	}
	return append(start, size...), nil
}

func embedding(c *Call) error {
	ids, table, y := &c.Args[0], &c.Args[1], &c.Results[0]
	held, err := runs(&table.Tensor)
	if err != nil {
		return err
	}
	grid, block := elementGrid(y.Rows(), y.Cols)
	c.launch("embedding_"+format(table.DType), "embedding", grid, block, 0,
		y.Ptr, y.stride(), ids.Ptr, table.Ptr, table.stride(), y.Cols, aligned(table, y), held)
	return nil
}

func selectRows(c *Call) error {
	c.copy(&c.Results[0], &c.Args[0], c.Args[1].Ptr, c.Results[0].Cols)
	return nil
}

// concat copies its operands side by side.
func concat(c *Call) error {
	y := c.Results[0]
	for i := range c.Args {
		x := &c.Args[i]
		c.copy(&y, x, 0, x.Cols)
		y.Ptr = y.offset(x.Cols)
	}
	return nil
}

// copy copies columns of rows of x, those that index lists if it is not 0, to
// the rows of y.
func (c *Call) copy(y, x *Tensor, index uint64, cols int) {
	size := y.DType.Bytes()
	vec := y.Ptr%16 == 0 && x.Ptr%16 == 0 && y.Stride*size%16 == 0 && x.Stride*size%16 == 0
	for at, n := range strips(cols, size) {
		grid, block := stripGrid(y.Rows(), n, size)
		c.launch("rows", fmt.Sprint("copy_", size), grid, block, 0, y.offset(at), y.stride(), x.offset(at), x.stride(), index, n, vec)
	}
}

// stripBlocks is how many blocks a strip has for a row. Tests make it smaller.
var stripBlocks = maxGridYZ

// strips cuts the columns of a tensor into as many as a launch may have blocks for:
// where each begins, and how many columns it has.
func strips(cols, size int) iter.Seq2[int, int] {
	return func(yield func(at, n int) bool) {
		most := stripBlocks * 16 * elementThreads / size
		for at := 0; at < cols; at += most {
			if !yield(at, min(most, cols-at)) {
				return
			}
		}
	}
}

// stripGrid has a block for each 4 KB of a row.
func stripGrid(rows, cols, size int) (grid, block [3]int) {
	return [3]int{rows, ceilDiv(cols*size, 16*elementThreads), 1}, [3]int{elementThreads}
}

// Copy copies as many rows and columns as y has from x, which has as many or
// more: it gathers and scatters pieces of tensors of one format.
func Copy(y, x Tensor) []Launch {
	var c Call
	c.copy(&y, &x, 0, y.Cols)
	return c.launches
}

// Gather copies the rows of x that the i32s at an address list to the rows of y.
func Gather(y, x Tensor, index uint64) []Launch {
	var c Call
	c.copy(&y, &x, index, y.Cols)
	return c.launches
}

// Zero returns the launches that fill a tensor with zeros.
func Zero(y Tensor) []Launch {
	var c Call
	size := y.DType.Bytes()
	for at, n := range strips(y.Cols, size) {
		grid, block := stripGrid(y.Rows(), n, size)
		c.launch("rows", fmt.Sprint("zero_", size), grid, block, 0, y.offset(at), y.stride(), n, aligned(&y))
	}
	return c.launches
}

// Convert returns the launches that round or widen x to the format of y.
func Convert(y, x Tensor) []Launch {
	c := Call{Args: []Tensor{x}, Results: []Tensor{y}}
	if err := errors.Join(convert(&c), c.err); err != nil {
		panic("BUG: " + err.Error())
	}
	return c.launches
}
