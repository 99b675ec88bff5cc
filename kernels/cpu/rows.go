package cpu

import "github.com/krait-ml/krait/kernels"

var _ = kernels.Register(Kernels, kernels.Set{
	"embedding":   embedding((*kernels.Tensor).Read),
	"select_rows": {Units: kernels.RowUnits, Run: selectRows},
	"concat":      {Units: kernels.RowUnits, Run: concat},
	"quantize":    {Units: kernels.RowUnits, Run: convert},
	"dequantize":  {Units: kernels.RowUnits, Run: convert},
})

// embedding copies rows of the table, which read reads.
func embedding(read func(t *kernels.Tensor, dst []float32, at int)) kernels.Kernel {
	return kernels.Kernel{Units: kernels.RowUnits, Run: func(c *kernels.Call, lo, hi int) {
		ids, table := c.Args[0].I32, &c.Args[1]
		for i := lo; i < hi; i++ {
			row := c.Results[0].Row(i)
			if at, ok := table.HeldRow(int(ids[i])); ok {
				read(table, row, at*table.Stride)
			} else {
				clear(row) // another rank has it
			}
		}
	}}
}

func selectRows(c *kernels.Call, lo, hi int) {
	rows := c.Args[1].I32
	for i := lo; i < hi; i++ {
		copy(c.Results[0].Row(i), c.Args[0].Row(int(rows[i])))
	}
}

// concat copies its operands side by side.
func concat(c *kernels.Call, lo, hi int) {
	for i := lo; i < hi; i++ {
		y := c.Results[0].Row(i)
		for k := range c.Args {
			y = y[copy(y, c.Args[k].Row(i)):]
		}
	}
}

// convert rounds or widens to the format of the result.
func convert(c *kernels.Call, lo, hi int) {
	var buf [512]float32
	x, y := &c.Args[0], &c.Results[0]
	for i := lo; i < hi; i++ {
		if y.DType.InBlocks() {
			y.Write(i*y.Stride, x.Row(i))
			continue
		}
		if x.DType.InBlocks() {
			x.Read(y.Row(i), i*x.Stride)
			continue
		}
		for j := 0; j < y.Cols; j += len(buf) {
			part := buf[:min(len(buf), y.Cols-j)]
			x.Read(part, i*x.Stride+j)
			y.Write(i*y.Stride+j, part)
		}
	}
}
