package gorgonia_test

import (
	"math"

	"github.com/krait-ml/krait/graph"
	G "gorgonia.org/gorgonia"
)

// conv1d is a sum over taps: the input k tokens back times a weight per
// channel. Shifting the inputs is done here, as Gorgonia confuses slices.
func conv1d(c *opCase) [][]float64 {
	return unbiased(c, func(sum *G.Node) *G.Node { return sum })
}

func unbiasedConvSilu(c *opCase) [][]float64 { return unbiased(c, silu) }

// unbiased puts out what then makes of the sums.
func unbiased(c *opCase, then func(sum *G.Node) *G.Node) [][]float64 {
	x, weight := c.filter()
	state := c.state(x.value.Type.Dims[1], graph.Size(weight.cols-1))
	c.apply(nil, x, weight, state, c.segments())
	return convolution(c, x, weight, state, func(sum, _ *G.Node) *G.Node { return then(sum) }, matrix{1, 1, []float64{0}})
}

func convSilu(c *opCase) [][]float64 {
	x, weight := c.filter()
	b := c.param(c.normal, x.value.Type.Dims[1])
	state := c.state(x.value.Type.Dims[1], graph.Size(weight.cols-1))
	c.apply(nil, x, weight, b, state, c.segments())
	return convolution(c, x, weight, state, func(sum, b *G.Node) *G.Node {
		return silu(G.Must(G.BroadcastAdd(sum, b, nil, []byte{0})))
	}, b.matrix)
}

// filter draws what is convolved, and the weights.
func (c *opCase) filter() (x, weight operand) {
	ch := graph.Size(c.size("c"))
	return c.input(ch), c.param(c.normal, ch, graph.Size(c.few("w")))
}

// convolution puts out what then makes of the sum and of its operand.
func convolution(c *opCase, x, weight, state operand, then func(sum, operand *G.Node) *G.Node, operand matrix) [][]float64 {
	ch, w := weight.rows, weight.cols
	m := w - 1
	// past is channel j of sequence s, at tokens after the oldest in its state.
	past := func(s, at, j int) float64 {
		if at < m {
			return state.at(s, j*m+at)
		}
		return x.at(c.first[s]+at-m, j)
	}
	var operands []matrix
	for k := range w {
		shifted := matrixOf(c.tokens, ch, func(i, j int) float64 { return past(c.owner[i], i-c.first[c.owner[i]]+k, j) })
		operands = append(operands, shifted, matrixOf(1, ch, func(_, j int) float64 { return weight.at(j, k) }))
	}
	y := evaluate(func(n []*G.Node) *G.Node {
		var sum *G.Node
		for k := range w {
			tap := G.Must(G.BroadcastHadamardProd(n[2*k], n[2*k+1], nil, []byte{0}))
			if k == 0 {
				sum = tap
			} else {
				sum = G.Must(G.Add(sum, tap))
			}
		}
		return then(sum, n[2*w])
	}, append(operands, operand)...)
	after := matrixOf(state.rows, state.cols, func(s, i int) float64 { return past(s, c.batch.Sequences[s].Len+i%m, i/m) })
	return [][]float64{y, after.v}
}

// positive and negative are what the steps and the rates of a scan are.
func (c *opCase) positive(int, int) float64 { return math.Abs(c.rng.NormFloat64()) / 4 }
func (c *opCase) negative(int, int) float64 { return -math.Abs(c.rng.NormFloat64()) }

func selectiveScan(c *opCase) [][]float64 {
	g, q, n := c.few("g"), c.few("q"), c.few("n")
	d := graph.Size(g * q)
	x, dt := c.input(d), c.inputOf(d, c.positive)
	a := c.param(c.negative, d, graph.Size(n))
	b, cc := c.input(graph.Units(g*n, n)), c.input(graph.Units(g*n, n))
	h := c.state(d, graph.Size(n))
	c.apply(nil, x, dt, a, b, cc, h, c.segments())
	return scan(c, x, dt, a.matrix, b, cc, h)
}

func ssdScan(c *opCase) [][]float64 {
	g, q, p, n := c.few("g"), c.few("q"), c.few("p"), c.few("n")
	heads := graph.Size(g * q)
	x, dt := c.input(graph.Units(g*q*p, p)), c.inputOf(heads, c.positive)
	a := c.param(c.negative, heads)
	b, cc := c.input(graph.Units(g*n, n)), c.input(graph.Units(g*n, n))
	h := c.state(heads, graph.Size(p), graph.Size(n))
	c.apply(nil, x, dt, a, b, cc, h, c.segments())
	return scan(c, x, dt, matrixOf(g*q, n, func(head, _ int) float64 { return a.at(0, head) }), b, cc, h)
}

// scan evaluates h = exp(dt A) h + dt x B and y = h C for each token, on
// matrices with a row per channel and a column per state. a has a row per head;
// channels share it, and heads B and C, as their numbers divide.
func scan(c *opCase, x, dt operand, a matrix, b, cc, state operand) [][]float64 {
	n := a.cols
	p, q := x.cols/dt.cols, dt.cols/(b.cols/n)
	var y, after []float64
	for s, seq := range c.batch.Sequences {
		h := matrix{x.cols, n, state.row(s).v}
		for t := c.first[s]; t < c.first[s]+seq.Len; t++ {
			spread := func(f func(ch, k int) float64) matrix { return matrixOf(h.rows, n, f) }
			h.v = evaluate(func(m []*G.Node) *G.Node {
				dt, a, h, x, b := m[0], m[1], m[2], m[3], m[4]
				return G.Must(G.Add(mul(G.Must(G.Exp(mul(dt, a))), h), mul(mul(dt, x), b)))
			},
				spread(func(ch, _ int) float64 { return dt.at(t, ch/p) }),
				spread(func(ch, k int) float64 { return a.at(ch/p, k) }),
				h,
				spread(func(ch, _ int) float64 { return x.at(t, ch) }),
				spread(func(ch, k int) float64 { return b.at(t, ch/p/q*n+k) }))
			y = append(y, evaluate(func(m []*G.Node) *G.Node { return G.Must(G.Sum(mul(m[0], m[1]), 1)) },
				h, spread(func(ch, k int) float64 { return cc.at(t, ch/p/q*n+k) }))...)
		}
		after = append(after, h.v...)
	}
	return [][]float64{y, after}
}

// scanTerms is a product and its exp, and a product of three, of a row per token and a
// column per state of a channel.
func scanTerms(c *opCase) [][]float64 {
	g, q, n := c.few("g"), c.few("q"), c.few("n")
	d := graph.Size(g * q)
	u, dt := c.input(d), c.inputOf(d, c.positive)
	a, b := c.param(c.negative, d, graph.Size(n)), c.input(graph.Units(g*n, n))
	c.apply(nil, u, dt, a, b)
	spread := func(f func(t, ch, k int) float64) matrix {
		return matrixOf(c.tokens, g*q*n, func(t, i int) float64 { return f(t, i/n, i%n) })
	}
	steps := spread(func(t, ch, _ int) float64 { return dt.at(t, ch) })
	return [][]float64{
		evaluate(func(m []*G.Node) *G.Node { return G.Must(G.Exp(mul(m[0], m[1]))) }, steps, spread(func(_, ch, k int) float64 { return a.at(ch, k) })),
		evaluate(func(m []*G.Node) *G.Node { return mul(mul(m[0], m[1]), m[2]) }, steps,
			spread(func(t, ch, _ int) float64 { return u.at(t, ch) }), spread(func(t, ch, k int) float64 { return b.at(t, ch/q*n+k) })),
	}
}

// scanPrefix runs the recurrence token by token over each sequence.
func scanPrefix(c *opCase) [][]float64 {
	d, n := c.few("d"), c.few("n")
	decay, input := c.perState(d, n, func(int, int) float64 { return c.rng.Float64() }), c.perState(d, n, c.normal)
	c.apply(nil, decay, input, c.segments())
	var products, sums []float64
	for s, seq := range c.batch.Sequences {
		product, sum := matrixOf(1, d*n, func(int, int) float64 { return 1 }), matrixOf(1, d*n, func(int, int) float64 { return 0 })
		for t := c.first[s]; t < c.first[s]+seq.Len; t++ {
			product.v = evaluate(func(m []*G.Node) *G.Node { return mul(m[0], m[1]) }, product, decay.row(t))
			sum.v = evaluate(func(m []*G.Node) *G.Node { return G.Must(G.Add(mul(m[0], m[1]), m[2])) }, sum, decay.row(t), input.row(t))
			products, sums = append(products, product.v...), append(sums, sum.v...)
		}
	}
	return [][]float64{products, sums}
}

// scanOutput is y = C (products h + sums) for each token, on matrices with a row per
// channel and a column per state.
func scanOutput(c *opCase) [][]float64 {
	g, q, n := c.few("g"), c.few("q"), c.few("n")
	d := g * q
	products, sums := c.perState(d, n, func(int, int) float64 { return c.rng.Float64() }), c.perState(d, n, c.normal)
	cc, before := c.input(graph.Units(g*n, n)), c.state(graph.Size(d), graph.Size(n))
	c.apply(nil, products, sums, cc, before, c.segments())
	var y, after []float64
	for s, seq := range c.batch.Sequences {
		h := matrix{d, n, before.row(s).v}
		for t := c.first[s]; t < c.first[s]+seq.Len; t++ {
			h.v = evaluate(func(m []*G.Node) *G.Node { return G.Must(G.Add(mul(m[0], m[1]), m[2])) },
				matrix{d, n, products.row(t).v}, matrix{d, n, before.row(s).v}, matrix{d, n, sums.row(t).v})
			y = append(y, evaluate(func(m []*G.Node) *G.Node { return G.Must(G.Sum(mul(m[0], m[1]), 1)) },
				h, matrixOf(d, n, func(ch, k int) float64 { return cc.at(t, ch/q*n+k) }))...)
		}
		after = append(after, h.v...)
	}
	return [][]float64{y, after}
}
