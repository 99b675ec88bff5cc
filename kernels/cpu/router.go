package cpu

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"router":         {Units: kernels.RowUnits, Run: router},
	"sigmoid_router": {Units: kernels.RowUnits, Run: sigmoidRouter},
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
