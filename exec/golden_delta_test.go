package exec_test

import "github.com/krait-ml/krait/graph"

// delta is the gated delta rule, with one decay for a head or one for each row of its state, and
// the gates that models make of projections.
func (c *goldenOp) delta(seg *graph.Value) string {
	k, v := c.tensor("k").Shape, c.tensor("v").Shape
	keys, values, heads := graph.Units(k[2]*k[3], k[3]), graph.Units(v[2]*v[3], v[3]), graph.Size(v[2])
	decays := heads
	if g := c.tensor("g").Shape; len(g) > 3 {
		decays = graph.Units(g[2]*g[3], g[3])
	}
	q, kk := c.input("q", keys), c.input("k", keys)
	if c.L2Norm {
		q, kk = c.b.HeadL2Norm("qn", q, 1e-6), c.b.HeadL2Norm("kn", kk, 1e-6)
	}
	var g, beta *graph.Value
	if c.Raw {
		g, beta = c.gates(decays, heads)
	} else {
		g, beta = c.input("g", decays), c.input("beta", heads)
	}
	state := c.state("S", heads, graph.Size(k[3]), graph.Size(v[3]))
	c.b.Output("y", c.b.DeltaScan("scan", q, kk, c.input("v", values), g, beta, state, seg, c.Scale))
	return "S"
}

// gates are -exp(A_log) softplus(a + dt_bias) and sigmoid(b), which is doubled where eigenvalues
// may be negative.
func (c *goldenOp) gates(decays, heads graph.Dim) (g, beta *graph.Value) {
	bias := c.param("dt_bias", decays)
	flat := c.params["dt_bias"]
	flat.Shape = []int{decays.Len()}
	c.params["dt_bias"] = flat
	step := c.b.Map("step", "softplus", c.b.Bias("a_b", c.input("a", decays), bias))
	g = c.b.Scale("g", step, c.b.Map("A", "neg_exp", c.param("A_log", heads)))
	beta = c.b.Map("beta", "sigmoid", c.input("b", heads))
	if c.Negative {
		beta = c.b.Times("beta2", beta, 2)
	}
	return g, beta
}

// headNorm is the norm of each head, and then the gate.
func (c *goldenOp) headNorm(*graph.Value) string {
	shape := c.tensor("x").Shape
	d, size := graph.Units(shape[2]*shape[3], shape[3]), graph.Size(shape[3])
	n := c.b.HeadRMSNorm("norm", c.input("x", d), c.param("weight", size), c.Eps)
	c.b.Output("y", c.b.Mul("gated", n, c.b.Map("gate", "silu", c.input("z", d))))
	return ""
}

// zeroCentred is a norm whose weight is 1 + w.
func (c *goldenOp) zeroCentred(*graph.Value) string {
	d := graph.Size(c.tensor("weight").Shape[0])
	c.b.Output("y", c.b.RMSNorm("norm", c.input("x", d), c.b.Plus("w1", c.param("weight", d), 1), c.Eps))
	return ""
}
