package reference

import (
	"cmp"
	"math"
	"slices"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"rotary":    whole(rotary),
	"attention": whole(attention),
	"router":    whole(router),
	"experts":   whole(experts),

	"sigmoid_router":  whole(sigmoidRouter),
	"ungated_experts": whole(experts),
})

func rotary(c *kernels.Call) {
	x, seg, past, y := &c.Args[0], &c.Args[1], c.Args[2].I32, &c.Results[0]
	dims, theta := c.Attrs.Int("dims"), c.Attrs.Float("theta")
	for s := range seg.Rows() {
		start, tokens, _ := seg.Segment(s)
		lo, hi, row := y.Here(start, tokens)
		for t := lo; t < hi; t++ {
			for j := range y.Cols {
				i := j % x.Unit // channel of the head
				v := at(x, row+t-lo, j)
				if i < dims {
					k := i % (dims / 2)
					angle := float64(int(past[s])+t) * math.Pow(theta, -2*float64(k)/float64(dims))
					other := at(x, row+t-lo, j-i+(i+dims/2)%dims)
					if i < dims/2 {
						other = -other
					}
					v = v*math.Cos(angle) + other*math.Sin(angle)
				}
				set(y, row+t-lo, j, v)
			}
		}
	}
}

func attention(c *kernels.Call) {
	q, k, v, keys, values, seg, past, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], c.Args[6].I32, &c.Results[0]
	size, scale := q.Unit, c.Attrs.Float("scale")
	for s := range seg.Rows() {
		start, tokens, slot := seg.Segment(s)
		for t := range tokens {
			for j := range keys.Cols {
				setCached(keys, s, slot, int(past[s])+t, j, at(k, start+t, keys.Start()+j-k.Start()))
				setCached(values, s, slot, int(past[s])+t, j, at(v, start+t, values.Start()+j-v.Start()))
			}
		}
		lo, hi, row := y.Here(start, tokens)
		for t := lo; t < hi; t++ {
			for j := range q.Cols / size {
				head := q.Start()/size + j
				group := head / (q.Full / k.Full)
				from := group*size - keys.Start()
				var scores []float64
				for p := range int(past[s]) + t + 1 {
					var sum float64
					for i := range size {
						sum += at(q, row+t-lo, j*size+i) * cached(keys, s, slot, p, from+i)
					}
					scores = append(scores, sum*scale)
				}
				softmax(scores)
				for i := range size {
					var sum float64
					for p, weight := range scores {
						sum += weight * cached(values, s, slot, p, from+i)
					}
					set(y, row+t-lo, j*size+i, sum)
				}
			}
		}
	}
}

// cached reads column j of a token's row in a cache.
func cached(t *kernels.Tensor, seq, slot, token, j int) float64 {
	rows, first, _ := t.Cached(seq, slot, token)
	return at(&rows, first/rows.Stride, j)
}

func setCached(t *kernels.Tensor, seq, slot, token, j int, v float64) {
	rows, first, _ := t.Cached(seq, slot, token)
	set(&rows, first/rows.Stride, j, v)
}

func softmax(x []float64) {
	if len(x) == 0 {
		return
	}
	most, total := slices.Max(x), 0.0
	for i := range x {
		x[i] = math.Exp(x[i] - most)
		total += x[i]
	}
	for i := range x {
		x[i] /= total
	}
}

func router(c *kernels.Call) {
	x, y := &c.Args[0], &c.Results[0]
	for i := range y.Rows() {
		p := make([]float64, x.Cols)
		order := make([]int, x.Cols)
		for j := range p {
			p[j], order[j] = at(x, i, j), j
		}
		slices.SortStableFunc(order, func(a, b int) int {
			if p[a] > p[b] {
				return -1
			} else if p[a] < p[b] {
				return 1
			}
			return 0
		})
		softmax(p)
		order = order[:c.Attrs.Int("top")]
		kept := 1.0
		if c.Attrs.Int("norm") == 1 {
			kept = 0
			for _, j := range order {
				kept += p[j]
			}
		}
		for j := range p {
			set(y, i, j, 0)
		}
		for _, j := range order {
			set(y, i, j, p[j]/kept)
		}
	}
}

// sigmoidRouter weighs by the sigmoid and chooses by the sigmoid plus a bias.
func sigmoidRouter(c *kernels.Call) {
	x, bias, y := &c.Args[0], &c.Args[1], &c.Results[0]
	for i := range y.Rows() {
		p, order := make([]float64, x.Cols), make([]int, x.Cols)
		for j := range p {
			p[j], order[j] = 1/(1+math.Exp(-at(x, i, j))), j
		}
		key := func(j int) float64 { return p[j] + at(bias, j, 0) }
		order = inGroups(order, key, c.Attrs.Int("groups"), c.Attrs.Int("kept"))
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key(b), key(a)) })
		total := 1.0
		if c.Attrs.Int("norm") == 1 {
			total = c.Attrs.Float("eps")
			for _, j := range order[:c.Attrs.Int("top")] {
				total += p[j]
			}
		}
		for j := range p {
			set(y, i, j, 0)
		}
		for _, j := range order[:c.Attrs.Int("top")] {
			set(y, i, j, p[j]/total)
		}
	}
}

// inGroups are the experts of the kept groups, which have the largest sums of their two
// largest keys.
func inGroups(experts []int, key func(j int) float64, groups, kept int) []int {
	byGroup := slices.Collect(slices.Chunk(experts, max(1, len(experts)/groups)))
	sum := func(group []int) float64 {
		keys := make([]float64, len(group))
		for i, j := range group {
			keys[i] = -key(j)
		}
		slices.Sort(keys)
		total := 0.0
		for _, k := range keys[:min(2, len(keys))] {
			total -= k
		}
		return total
	}
	slices.SortStableFunc(byGroup, func(a, b []int) int { return cmp.Compare(sum(b), sum(a)) })
	open := slices.Concat(byGroup[:min(kept, len(byGroup))]...)
	slices.Sort(open)
	return open
}

func relu2(x float64) float64 { return math.Max(x, 0) * math.Max(x, 0) }

// experts of four operands have no gate: the function is of up's product.
func experts(c *kernels.Call) {
	x, p, gate, down, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[len(c.Args)-1], &c.Results[0]
	gated := len(c.Args) == 5
	hidden, width := gate.Dims[1], gate.Dims[2]
	act := map[string]func(float64) float64{
		"silu":      silu,
		"gelu":      func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) },
		"gelu_tanh": geluTanh,
		"relu":      func(x float64) float64 { return math.Max(x, 0) },
		"relu2":     relu2,
	}[c.Attrs.Text("act")]
	inputs, inner, outer := rows(x), make([]float64, hidden), make([]float64, hidden)
	weights, sums := make([]float64, width), make([]float64, y.Cols)
	for t := range y.Rows() {
		clear(sums)
		for e := range p.Cols {
			weight := at(p, t, e)
			if weight == 0 {
				continue
			}
			for i := range inner {
				inner[i] = weight * act(dot(read(weights, gate, e, i*width), inputs[t]))
				if gated {
					inner[i] *= dot(read(weights, &c.Args[3], e, i*width), inputs[t])
				}
			}
			for j := range sums {
				sums[j] += dot(read(outer, down, e, j*hidden), inner)
			}
		}
		for j, sum := range sums {
			set(y, t, j, sum)
		}
	}
}
