package cuda

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"head_down":       {launch: headMatmul},
	"head_up":         {launch: headMatmul},
	"rmsnorm":         {launch: rmsnorm, accepts: normAccepts, pieces: normPieces},
	"unit_rmsnorm":    {launch: rmsnorm, accepts: normAccepts},
	"group_rmsnorm":   {launch: groupRMSNorm, accepts: normAccepts},
	"head_rmsnorm":    {launch: headRMSNorm},
	"head_l2norm":     {launch: headL2Norm},
	"sumsq":           {launch: sumsq},
	"rms_scale":       {launch: rmsScale},
	"rms_rows":        {launch: rmsScale},
	"group_sumsq":     {launch: groupSumsq},
	"group_rms_scale": {launch: groupRMSScale},
	"add_rmsnorm":     {launch: addRMSNorm, accepts: addNormAccepts},

	"rmsnorm_each":      {launch: rmsnormEach, accepts: eachAccepts(0, 2, 4, 6, 7, 8)},
	"unit_rmsnorm_each": {launch: rmsnormEach, accepts: eachAccepts(0, 1, 2, 3, 4, 5)},
})

// normThreads is enough for a row's fours, in whole warps.
func normThreads(size int) [3]int { return [3]int{min(1024, 32*max(1, ceilDiv(size, 128)))} }

// normAccepts: a norm reads and writes either format.
func normAccepts(c *Call) []int { return []int{0, len(c.Args)} }

func rmsnorm(c *Call) error {
	if c.Results[0].InPieces {
		c.normApart()
		return nil
	}
	return c.norm(c.Args[0].Full, c.Args[0].Full, 0)
}

func groupRMSNorm(c *Call) error {
	size := c.Args[0].Full / c.Attrs.Int("groups")
	return c.norm(size, size, size)
}

func headRMSNorm(c *Call) error { return c.norm(c.Args[1].Rows(), c.Args[1].Rows(), 0) }

// headL2Norm has a width of 1: of the sum of squares no mean is taken.
func headL2Norm(c *Call) error { return c.norm(c.Args[0].Unit, 1, 0) }

// norm divides each size neighbours of a row by the root of their sum of squares over width, and
// multiplies by the weight, if any; from one size neighbours to the next it moves by step.
func (c *Call) norm(size, width, step int) error {
	x, y, w := &c.Args[0], &c.Results[0], Tensor{}
	if len(c.Args) > 1 {
		w = c.Args[1]
	}
	if size == 0 {
		return nil
	}
	vec := aligned(x, y) && w.Ptr%16 == 0 && (size == x.Cols || size%4 == 0)
	name := "rmsnorm"
	if from, to := format(x.DType), format(y.DType); from != "f32" || to != "f32" {
		name += "_" + from + "_" + to
	}
	c.launch("norm", name, [3]int{y.Rows(), y.Cols / size, 1}, normThreads(size), 0,
		Struct{y.Ptr, y.stride(), x.Ptr, x.stride(), w.Ptr, step, size, width, vec, float32(c.Attrs.Float("eps"))})
	return nil
}

// eachAccepts: rows and what is normed, each in either format.
func eachAccepts(which ...int) func(c *Call) []int {
	return func(*Call) []int { return which }
}

// rmsnormEach is rmsnorm_each: x v y w z u; and without weights unit_rmsnorm_each.
func rmsnormEach(c *Call) error {
	rows, each := Struct{}, len(c.Args)/len(c.Results)
	for i := range c.Results {
		x, y, w := &c.Args[each*i], &c.Results[i], Tensor{}
		if each > 1 {
			w = c.Args[each*i+1]
		}
		flags := 0
		for bit, set := range []bool{aligned(x, y) && w.Ptr%16 == 0, x.DType == graph.BF16, y.DType == graph.BF16} {
			if set {
				flags |= 1 << bit
			}
		}
		rows = append(rows, Struct{y.Ptr, x.Ptr, w.Ptr, y.stride(), x.stride(), y.Cols, flags})
	}
	c.launch("norm", "rmsnorm_each", [3]int{c.Results[0].Rows(), 1, 1}, [3]int{96}, 0, float32(c.Attrs.Float("eps")), rows)
	return nil
}

// addNormAccepts: the normed row; the sum goes on to be one.
func addNormAccepts(c *Call) []int { return []int{len(c.Args) + 1} }

func addRMSNorm(c *Call) error {
	x, z, w, sum, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0], &c.Results[1]
	if y.Cols == 0 {
		return nil
	}
	c.launch("norm", y.suffixed("add_rmsnorm"), [3]int{y.Rows(), 1, 1}, normThreads(y.Cols), 0, Struct{y.Ptr, y.stride(), sum.Ptr, sum.stride(), x.Ptr, x.stride(), z.Ptr, z.stride(),
		w.Ptr, y.Cols, aligned(x, z, sum, y) && w.Ptr%16 == 0, float32(c.Attrs.Float("eps"))})
	return nil
}

// sumsq is the sum of one group: what the rank has of the row.
func sumsq(c *Call) error {
	c.groupSumsq(c.Args[0].Cols, 1, 0, 0)
	return nil
}

// groupSumsq is sumsq of each group. A rank that has a part of a group adds up
// that part.
func groupSumsq(c *Call) error {
	x, y := &c.Args[0], &c.Results[0]
	c.groupSumsq(max(1, x.Full/c.Attrs.Int("groups")), y.Cols, x.Start(), y.Start())
	return nil
}

func (c *Call) groupSumsq(size, groups, xStart, yStart int) {
	x, y := &c.Args[0], &c.Results[0]
	c.launch("norm", "group_sumsq", [3]int{y.Rows(), groups, 1}, normThreads(size), 0,
		Struct{y.Ptr, y.stride(), x.Ptr, x.stride(), x.Cols, size, xStart, yStart, aligned(x)})
}

// rmsScale is rms_scale, and without a weight rms_rows.
func rmsScale(c *Call) error {
	x, sums, y, w := &c.Args[0], &c.Args[1], &c.Results[0], Tensor{}
	if len(c.Args) > 2 {
		w = c.Args[2]
	}
	grid, block := elementGrid(y.Rows(), y.Cols)
	c.launch("norm", "rms_scale", grid, block, 0, Struct{y.Ptr, y.stride(), x.Ptr, x.stride(), sums.Ptr, sums.stride(), w.Ptr,
		y.Cols, aligned(x, y) && w.Ptr%16 == 0, float32(c.Attrs.Int("width")), float32(c.Attrs.Float("eps"))})
	return nil
}

func groupRMSScale(c *Call) error {
	x, sums, w, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0]
	grid, block := elementGrid(y.Rows(), y.Cols)
	c.launch("norm", "group_rms_scale", grid, block, 0, Struct{y.Ptr, y.stride(), x.Ptr, x.stride(), sums.Ptr, sums.stride(), w.Ptr,
		y.Cols, aligned(x, y) && w.Ptr%16 == 0, c.Attrs.Int("width"), x.Start(), sums.Start(), float32(c.Attrs.Float("eps"))})
	return nil
}

// headMatmul is a matmul per head, of what the rank has of the head.
func headMatmul(c *Call) error {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	size := max(1, w.Cols)
	if x.Full < size || y.Cols == 0 {
		return nil
	}
	each := y.Full / (x.Full / size)
	lanes := 2 // for dots of a few channels
	if size > 16 {
		lanes = 32
	}
	first := y.Start() // row of w, of those held, for the first column of y
	if w.Axis == 0 {
		first -= w.Start()
	}
	name := map[int]string{2: "_2", 32: "_32"}[lanes]
	c.launch("heads_"+format(w.DType), "head_matmul"+name, [3]int{y.Rows(), ceilDiv(y.Cols*lanes, 128), 1}, [3]int{128}, 0,
		y.Ptr, y.stride(), x.Ptr, x.stride(), w.offset(first*w.Stride), w.stride(),
		Struct{y.Cols, x.Start(), x.Cols, size, y.Start(), each})
	return nil
}

// groupsOf is kernels.GroupsOf as kernels take it.
func groupsOf(heads, b *kernels.Tensor, n int) (first, each, skip int) {
	return heads.Start(), max(1, heads.Full/max(1, b.Full/n)), b.Start() / n
}
