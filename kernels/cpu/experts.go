package cpu

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"router":  {Units: kernels.RowUnits, Run: router},
	"experts": {Units: kernels.RowUnits, Run: experts},

	"sigmoid_router":  {Units: kernels.RowUnits, Run: sigmoidRouter},
	"ungated_experts": {Units: kernels.RowUnits, Run: experts},
})

// router is the softmax of each row, of which the largest stay. Of equal ones the first do.
func router(c *kernels.Call, lo, hi int) {
	top, norm := c.Attrs.Int("top"), c.Attrs.Int("norm") == 1
	for i := lo; i < hi; i++ {
		x, y := c.Args[0].Row(i), c.Results[0].Row(i)
		most := float32(math.Inf(-1))
		for _, v := range x {
			most = max(most, v)
		}
		var total, kept float64
		for _, v := range x {
			total += math.Exp(float64(v - most))
		}
		for j, v := range x {
			y[j] = 0
			if rank(x, j) < top {
				p := math.Exp(float64(v-most)) / total
				kept += p
				y[j] = float32(p)
			}
		}
		if norm {
			for j := range y {
				y[j] = float32(float64(y[j]) / kept)
			}
		}
	}
}

// rank is the number of elements that come before x[j], the largest first.
func rank[T float32 | float64](x []T, j int) int {
	n := 0
	for i, v := range x {
		if v > x[j] || v == x[j] && i < j {
			n++
		}
	}
	return n
}

// sigmoidRouter is the sigmoid of each row, of which those stay that are the largest with
// the bias added, in the groups that are kept. Of equal ones the first do.
func sigmoidRouter(c *kernels.Call, lo, hi int) {
	top, norm, bias := c.Attrs.Int("top"), c.Attrs.Int("norm") == 1, c.Args[1].Vector()
	groups, kept, eps := c.Attrs.Int("groups"), c.Attrs.Int("kept"), c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		x, y := c.Args[0].Row(i), c.Results[0].Row(i)
		clear(y)
		open := openGroups(x, bias, groups, kept)
		total, last, key := eps, -1, math.Inf(1)
		for range top {
			last, key = after(x, bias, open, len(x)/groups, last, key)
			total += sigmoid(x[last])
			y[last] = float32(sigmoid(x[last]))
		}
		for j := range y {
			if norm && y[j] != 0 {
				y[j] = float32(sigmoid(x[j]) / total)
			}
		}
	}
}

// openGroups are the bits of the kept groups of experts, which have the largest sums of two keys.
func openGroups(x, bias []float32, groups, kept int) (open uint64) {
	if groups == kept {
		return math.MaxUint64
	}
	var sums [64]float64
	size := len(x) / groups
	for g := range groups {
		first, second := math.Inf(-1), math.Inf(-1)
		for j := g * size; j < (g+1)*size; j++ {
			k := choiceKey(x[j], bias[j])
			first, second = max(first, k), max(second, min(first, k))
		}
		if sums[g] = first; size > 1 {
			sums[g] += second
		}
	}
	for g := range groups {
		if rank(sums[:groups], g) < kept {
			open |= 1 << g
		}
	}
	return open
}

// choiceKey is what an expert is chosen by. A NaN comes before all, so that it shows.
func choiceKey(x, bias float32) float64 {
	if k := sigmoid(x) + float64(bias); k == k {
		return k
	}
	return math.Inf(1)
}

// after finds the score that comes after the last, the largest first, with its key, in open
// groups of size experts.
func after(x, bias []float32, open uint64, size, last int, key float64) (best int, most float64) {
	best, most = -1, math.Inf(-1)
	for j, v := range x {
		if open>>(j/size)&1 == 0 {
			continue
		}
		k := choiceKey(v, bias[j])
		if (k < key || k == key && j > last) && (k > most || best < 0) {
			best, most = j, k
		}
	}
	return best, most
}

func sigmoid(x float32) float64 { return 1 / (1 + math.Exp(-float64(x))) }

// hiddenBlock is how many hidden units of an expert are computed together.
const hiddenBlock = 64

// mixture is the matrices of all experts. Without a gate, what the function is of is up's
// product: gate is that matrix, and up is nil.
func mixture(c *kernels.Call) (gate, up, down *kernels.Tensor) {
	if len(c.Args) == 4 {
		return &c.Args[2], nil, &c.Args[3]
	}
	return &c.Args[2], &c.Args[3], &c.Args[4]
}

// experts: y = Σ_e p_e down_e (act(gate_e x) · up_e x), over the experts whose weight p_e is not 0.
func experts(c *kernels.Call, lo, hi int) {
	x, p, y := &c.Args[0], &c.Args[1], &c.Results[0]
	for t := lo; t < hi; t++ {
		out := y.Row(t)
		clear(out)
		for e, weight := range p.Row(t) {
			if weight != 0 {
				expert(c, e, weight, x.Row(t), out)
			}
		}
	}
}

// expert adds the output of one expert, times its weight.
func expert(c *kernels.Call, e int, weight float32, x, out []float32) {
	gate, up, down := mixture(c)
	hidden, width := gate.Dims[1], len(x)
	var g, h [hiddenBlock]float32
	act := gates[c.Attrs.Text("act")]
	for from := 0; from < hidden; from += hiddenBlock {
		n := min(hiddenBlock, hidden-from)
		for i := range n {
			g[i] = dotAt(gate, e*gate.Stride+(from+i)*width, x)
		}
		act(h[:n], g[:n])
		for i := range n {
			w := weight
			if up != nil {
				w *= dotAt(up, e*up.Stride+(from+i)*width, x)
			}
			h[i] *= w
		}
		for j := range out {
			out[j] += dotAt(down, e*down.Stride+j*hidden+from, h[:n])
		}
	}
}

// dotAt is the product of x with the elements of a weight from one on.
func dotAt(w *kernels.Tensor, at int, x []float32) float32 {
	flat := *w
	flat.Stride = 1
	return dot(&flat, at, 0, x)
}

// gates are the functions that an expert may apply to its gate.
var gates = map[string]func(y, x []float32){"silu": silu, "gelu": gelu, "gelu_tanh": geluTanh, "relu": relu, "relu2": relu2}
