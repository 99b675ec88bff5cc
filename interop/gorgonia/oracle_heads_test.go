package gorgonia_test

import (
	"math"

	"github.com/krait-ml/krait/graph"
	G "gorgonia.org/gorgonia"
)

// headRMSNorm has a row per token and head.
func headRMSNorm(c *opCase) [][]float64 {
	h, p := c.few("h"), c.size("p")
	x, w := c.input(graph.Units(h*p, p)), c.param(c.normal, graph.Size(p))
	c.apply(graph.Attrs{"eps": eps}, x, w)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		return G.Must(G.BroadcastHadamardProd(normalised(n[0]), n[1], nil, []byte{0}))
	}, matrix{c.tokens * h, p, x.v}, w.matrix)}
}

func headL2Norm(c *opCase) [][]float64 {
	h, p := c.few("h"), c.size("p")
	x := c.input(graph.Units(h*p, p))
	c.apply(graph.Attrs{"eps": eps}, x)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		return G.Must(G.BroadcastHadamardDiv(n[0], G.Must(G.Sqrt(plus(sumsq(n[0]), eps))), nil, []byte{1}))
	}, matrix{c.tokens * h, p, x.v})}
}

// deltaScan evaluates the gated delta rule on the matrix of each head's state, with a row per
// column of keys.
func deltaScan(c *opCase) [][]float64 {
	g, q, n, p := c.few("g"), c.few("q"), c.few("n"), c.few("p")
	each := []int{1, n}[c.few("decays")%2]
	heads := graph.Size(g * q)
	queries, keys := c.input(graph.Units(g*n, n)), c.input(graph.Units(g*n, n))
	values := c.input(graph.Units(g*q*p, p))
	decays := c.inputOf(graph.Units(g*q*each, each), c.negative)
	betas := c.inputOf(heads, func(int, int) float64 { return c.rng.Float64() })
	state := c.state(heads, graph.Size(n), graph.Size(p))
	scale := math.Abs(c.normal(0, 0))
	c.apply(graph.Attrs{"scale": scale}, queries, keys, values, decays, betas, state, c.segments())
	y, after := make([]float64, len(values.v)), []float64{}
	for s, seq := range c.batch.Sequences {
		for head := range g * q {
			now := matrix{n, p, state.row(s).v[head*n*p : (head+1)*n*p]}
			for t := c.first[s]; t < c.first[s]+seq.Len; t++ {
				of := func(o operand, i, size int) matrix { return matrix{1, size, o.row(t).v[i*size : (i+1)*size]} }
				decay := matrixOf(n, p, func(i, _ int) float64 { return decays.at(t, head*each+i%each) })
				now.v = evaluate(func(m []*G.Node) *G.Node {
					faded := mul(G.Must(G.Exp(m[1])), m[0])
					fresh := times(G.Must(G.Sub(m[3], G.Must(G.Mul(m[2], faded)))), betas.at(t, head))
					return G.Must(G.Add(faded, G.Must(G.Mul(m[4], fresh))))
				}, now, decay, of(keys, head/q, n), of(values, head, p), of(keys, head/q, n).transposed())
				copy(y[t*values.cols+head*p:], evaluate(func(m []*G.Node) *G.Node {
					return times(G.Must(G.Mul(m[0], m[1])), scale)
				}, of(queries, head/q, n), now))
			}
			after = append(after, now.v...)
		}
	}
	return [][]float64{y, after}
}
