package gorgonia_test

import (
	"github.com/krait-ml/krait/graph"
	G "gorgonia.org/gorgonia"
)

// addRMSNorm has two results, the sum and its norm.
func addRMSNorm(c *opCase) [][]float64 {
	d := graph.Size(c.size("d"))
	x, y, w := c.input(d), c.input(d), c.param(c.normal, d)
	c.apply(graph.Attrs{"eps": eps}, x, y, w)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node { return G.Must(G.Add(n[0], n[1])) }, x.matrix, y.matrix),
		evaluate(func(n []*G.Node) *G.Node {
			return G.Must(G.BroadcastHadamardProd(normalised(G.Must(G.Add(n[0], n[1]))), n[2], nil, []byte{0}))
		}, x.matrix, y.matrix, w.matrix)}
}

func biasSoftplus(c *opCase) [][]float64 {
	d := graph.Size(c.size("n"))
	x, b := c.input(d), c.param(c.normal, d)
	c.apply(nil, x, b)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		return G.Must(G.Softplus(G.Must(G.BroadcastAdd(n[0], n[1], nil, []byte{0}))))
	}, x.matrix, b.matrix)}
}

func addScaled(c *opCase) [][]float64 {
	h, p := c.few("h"), c.size("p")
	heads := graph.Units(h*p, p)
	y, x, d := c.input(heads), c.input(heads), c.param(c.normal, graph.Size(h))
	c.apply(nil, y, x, d)
	perChannel := matrixOf(1, h*p, func(_, j int) float64 { return d.at(0, j/p) })
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		return G.Must(G.Add(n[0], G.Must(G.BroadcastHadamardProd(n[1], n[2], nil, []byte{0}))))
	}, y.matrix, x.matrix, perChannel)}
}
