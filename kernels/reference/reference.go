// Package reference has the plain kernels: one loop per sum, in float64, as the
// definitions read. They are what other kernels are held against.
package reference

import (
	"fmt"
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/x448/float16"
)

// Kernels is the set; each file registers the kernels that it has.
var Kernels = kernels.Set{}

var _ = kernels.Register(Kernels, kernels.Set{
	"embedding":       whole(embedding),
	"select_rows":     whole(selectRows),
	"matmul":          whole(matmul),
	"bias":            whole(perChannel(func(x, b float64) float64 { return x + b })),
	"scale":           whole(perChannel(func(x, d float64) float64 { return x * d })),
	"add":             whole(zip(func(x, y float64) float64 { return x + y })),
	"mul":             whole(zip(func(x, y float64) float64 { return x * y })),
	"times":           whole(times),
	"plus":            whole(plus),
	"head_down":       whole(headMatmul),
	"head_up":         whole(headMatmul),
	"concat":          whole(concat),
	"silu":            whole(each(silu)),
	"gelu":            whole(each(func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) })),
	"gelu_tanh":       whole(each(geluTanh)),
	"relu":            whole(each(func(x float64) float64 { return math.Max(x, 0) })),
	"relu2":           whole(each(relu2)),
	"sigmoid":         whole(each(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) })),
	"tanh":            whole(each(math.Tanh)),
	"softplus":        whole(each(softplus)),
	"neg_exp":         whole(each(func(x float64) float64 { return -min(math.Exp(x), math.MaxFloat32) })),
	"clamp":           whole(clamp),
	"rmsnorm":         whole(func(c *kernels.Call) { norm(c, 1) }),
	"unit_rmsnorm":    whole(func(c *kernels.Call) { norm(c, 1) }),
	"group_rmsnorm":   whole(func(c *kernels.Call) { norm(c, c.Attrs.Int("groups")) }),
	"head_rmsnorm":    whole(headRMSNorm),
	"head_l2norm":     whole(headL2Norm),
	"sumsq":           whole(sumsq),
	"rms_scale":       whole(rmsScale),
	"rms_rows":        whole(rmsRows),
	"group_sumsq":     whole(groupSumsq),
	"group_rms_scale": whole(groupRMSScale),
	"quantize":        whole(each(func(x float64) float64 { return x })),
	"dequantize":      whole(each(func(x float64) float64 { return x })),
})

func init() {
	Kernels.Compose(func(t *kernels.Tensor, n int) { t.DType, t.F64 = graph.F64, make([]float64, n) })
}

// whole runs an operation in one part.
func whole(run func(c *kernels.Call)) kernels.Kernel {
	return kernels.Kernel{
		Units: func(*kernels.Call) int { return 1 },
		Run:   func(c *kernels.Call, lo, hi int) { run(c) },
	}
}

// at reads column j of row i.
func at(t *kernels.Tensor, i, j int) float64 {
	k := i*t.Stride + j
	switch t.DType {
	case graph.F64:
		return t.F64[k]
	case graph.F16:
		return float64(float16.Frombits(t.U16[k]).Float32())
	case graph.BF16:
		return float64(math.Float32frombits(uint32(t.U16[k]) << 16))
	case graph.F8:
		return float64(graph.E4M3Values[t.U8[k]])
	}
	if t.Blocks != nil {
		return inBlocks(t, k)
	}
	return float64(t.F32[k])
}

// inBlocks reads element k of weights in blocks.
func inBlocks(t *kernels.Tensor, k int) float64 {
	var one [1]float32
	t.Read(one[:], k)
	return float64(one[0])
}

func set(t *kernels.Tensor, i, j int, v float64) {
	k := i*t.Stride + j
	switch t.DType {
	case graph.F64:
		t.F64[k] = v
	case graph.I32:
		t.I32[k] = int32(v)
	case graph.F16:
		t.U16[k] = float16.Fromfloat32(float32(v)).Bits()
	case graph.BF16:
		t.U16[k] = bf16(float32(v))
	case graph.F8:
		t.U8[k] = graph.ToE4M3(float32(v))
	default:
		t.F32[k] = float32(v)
	}
}

// bf16 takes the upper half of the bits, rounded to nearest, ties to even.
func bf16(v float32) uint16 {
	bits := math.Float32bits(v)
	hi, lo := uint16(bits>>16), bits&0xffff
	switch {
	case v != v:
		return hi | 0x40
	case lo > 0x8000 || lo == 0x8000 && hi&1 == 1:
		return hi + 1
	}
	return hi
}

// fill sets every element of the first result.
func fill(c *kernels.Call, f func(i, j int) float64) {
	y := &c.Results[0]
	for i := range y.Rows() {
		for j := range y.Cols {
			set(y, i, j, f(i, j))
		}
	}
}

func each(f func(float64) float64) func(*kernels.Call) {
	return func(c *kernels.Call) {
		fill(c, func(i, j int) float64 { return f(at(&c.Args[0], i, j)) })
	}
}

func zip(f func(x, y float64) float64) func(*kernels.Call) {
	return func(c *kernels.Call) {
		fill(c, func(i, j int) float64 { return f(at(&c.Args[0], i, j), at(&c.Args[1], i, j)) })
	}
}

// perChannel combines each element with the factor of its channel or head.
func perChannel(f func(x, v float64) float64) func(*kernels.Call) {
	return func(c *kernels.Call) {
		x, v := &c.Args[0], &c.Args[1]
		fill(c, func(i, j int) float64 { return f(at(x, i, j), at(v, j/(x.Cols/v.Rows()), 0)) })
	}
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

func geluTanh(x float64) float64 {
	return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func softplus(x float64) float64 {
	if x > 30 {
		return x
	}
	return math.Log1p(math.Exp(x))
}

func clamp(c *kernels.Call) {
	lo, hi := c.Attrs.Float("min"), c.Attrs.Float("max")
	each(func(x float64) float64 { return math.Min(math.Max(x, lo), hi) })(c)
}

func embedding(c *kernels.Call) {
	fill(c, func(i, j int) float64 {
		if row, ok := c.Args[1].HeldRow(int(c.Args[0].I32[i])); ok {
			return at(&c.Args[1], row, j)
		}
		return 0
	})
}

func selectRows(c *kernels.Call) {
	fill(c, func(i, j int) float64 { return at(&c.Args[0], int(c.Args[1].I32[i]), j) })
}

// read reads part of row i, from column j on. A slice is faster to walk than at,
// and weights are most of what there is to read.
func read(to []float64, t *kernels.Tensor, i, j int) []float64 {
	from := i*t.Stride + j
	switch {
	case len(to) == 0: // there may be no memory
	case t.DType == graph.F32:
		for k, v := range t.F32[from : from+len(to)] {
			to[k] = float64(v)
		}
	case t.DType == graph.F64:
		copy(to, t.F64[from:from+len(to)])
	default: // at would decode a whole block for each element
		row := make([]float32, len(to))
		t.Read(row, from)
		for k, v := range row {
			to[k] = float64(v)
		}
	}
	return to
}

// rows reads all rows.
func rows(t *kernels.Tensor) [][]float64 {
	out := make([][]float64, t.Rows())
	for i := range out {
		out[i] = read(make([]float64, t.Cols), t, i, 0)
	}
	return out
}

// dot is the product of two vectors of one length.
func dot(x, y []float64) (sum float64) {
	if len(x) != len(y) {
		panic(fmt.Sprintf("BUG: a product of %d and %d elements", len(x), len(y)))
	}
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

func matmul(c *kernels.Call) {
	x, w, y := rows(&c.Args[0]), &c.Args[1], &c.Results[0]
	weights := make([]float64, w.Cols)
	for j := range y.Cols {
		read(weights, w, j, 0)
		for i := range x {
			set(y, i, j, dot(x[i], weights))
		}
	}
}

// headMatmul is a matmul per head, of what the rank has of the head.
func headMatmul(c *kernels.Call) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	heads, weights := x.Full/w.Cols, make([]float64, w.Cols)
	for j := range y.Cols {
		col := y.Start() + j
		first := col / (y.Full / heads) * w.Cols // channel of the head, of all
		lo, hi := kernels.Held(x, first, w.Cols)
		held, ok := w.HeldRow(col)
		if ok {
			read(weights, w, held, 0)
		}
		for i := range y.Rows() {
			var sum float64
			for k := lo; ok && k < hi; k++ {
				sum += at(x, i, k) * weights[k+x.Start()-first]
			}
			set(y, i, j, sum)
		}
	}
}

func times(c *kernels.Call) {
	by := c.Attrs.Float("by")
	each(func(x float64) float64 { return x * by })(c)
}

func plus(c *kernels.Call) {
	by := c.Attrs.Float("by")
	each(func(x float64) float64 { return x + by })(c)
}

func concat(c *kernels.Call) {
	fill(c, func(i, j int) float64 {
		k := 0
		for ; j >= c.Args[k].Cols; k++ {
			j -= c.Args[k].Cols
		}
		return at(&c.Args[k], i, j)
	})
}

func sumsq(c *kernels.Call) {
	fill(c, func(i, _ int) (sum float64) {
		for j := range c.Args[0].Cols {
			sum += at(&c.Args[0], i, j) * at(&c.Args[0], i, j)
		}
		return sum
	})
}

func rmsScale(c *kernels.Call) {
	width, eps := float64(c.Attrs.Int("width")), c.Attrs.Float("eps")
	fill(c, func(i, j int) float64 {
		return at(&c.Args[2], j, 0) * at(&c.Args[0], i, j) / math.Sqrt(at(&c.Args[1], i, 0)/width+eps)
	})
}

func groupSumsq(c *kernels.Call) {
	x, y := &c.Args[0], &c.Results[0]
	size := x.Full / c.Attrs.Int("groups")
	fill(c, func(i, j int) (sum float64) {
		for k := range x.Cols {
			if (x.Start()+k)/size == y.Start()+j {
				sum += at(x, i, k) * at(x, i, k)
			}
		}
		return sum
	})
}

func groupRMSScale(c *kernels.Call) {
	x, sums, size, eps := &c.Args[0], &c.Args[1], c.Attrs.Int("width"), c.Attrs.Float("eps")
	fill(c, func(i, j int) float64 {
		sum := at(sums, i, (x.Start()+j)/size-sums.Start())
		return at(&c.Args[2], j, 0) * at(x, i, j) / math.Sqrt(sum/float64(size)+eps)
	})
}

func rmsRows(c *kernels.Call) {
	width, eps := float64(c.Attrs.Int("width")), c.Attrs.Float("eps")
	fill(c, func(i, j int) float64 { return at(&c.Args[0], i, j) / math.Sqrt(at(&c.Args[1], i, 0)/width+eps) })
}

// norm divides each of equal groups of a row by its root mean square, and
// multiplies by the weight when there is one.
func norm(c *kernels.Call, groups int) {
	x, eps := &c.Args[0], c.Attrs.Float("eps")
	size := x.Full / groups
	values, rms := rows(x), make([][]float64, x.Rows())
	for i, v := range values {
		for group := range slices.Chunk(v, max(size, 1)) {
			rms[i] = append(rms[i], math.Sqrt(dot(group, group)/float64(size)+eps))
		}
	}
	fill(c, func(i, j int) float64 {
		y := values[i][j] / rms[i][j/size]
		if len(c.Args) > 1 {
			y *= at(&c.Args[1], j, 0)
		}
		return y
	})
}

func headRMSNorm(c *kernels.Call) {
	w, eps := &c.Args[1], c.Attrs.Float("eps")
	size := w.Rows()
	normHeads(c, size, func(j int, squares float64) float64 {
		return at(w, j, 0) / math.Sqrt(squares/float64(size)+eps)
	})
}

func headL2Norm(c *kernels.Call) {
	eps := c.Attrs.Float("eps")
	normHeads(c, c.Args[0].Unit, func(_ int, squares float64) float64 { return 1 / math.Sqrt(squares+eps) })
}

// normHeads multiplies channel j of each head by a factor of the sum of squares of the head.
func normHeads(c *kernels.Call, size int, factor func(j int, squares float64) float64) {
	x, head := &c.Args[0], make([]float64, size)
	fill(c, func(i, j int) float64 {
		read(head, x, i, j-j%size)
		return head[j%size] * factor(j%size, dot(head, head))
	})
}
