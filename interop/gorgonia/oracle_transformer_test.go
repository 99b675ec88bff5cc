package gorgonia_test

import (
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
	G "gorgonia.org/gorgonia"
	"pgregory.net/rapid"
)

// headProduct is a product per head, of its columns of x and its rows of w.
func headProduct(c *opCase) [][]float64 {
	h, k, n := c.few("h"), c.size("k"), c.size("n")
	x, w := c.input(graph.Size(h*k)), c.weight(h*n, k)
	c.apply(nil, x, w)
	var heads [][]float64
	for i := range h {
		heads = append(heads, product(x.colsFrom(i*k, k), w.rowsFrom(i*n, n).transposed()))
	}
	return [][]float64{beside(c.tokens, heads...)}
}

// rotary is x · cos + turned x · sin, element by element. The angles are the product of the tokens'
// positions and the channels' rates, and x is turned by a product with a matrix of 1 and -1.
func rotary(c *opCase) [][]float64 {
	const theta = 100
	h, p := c.few("h"), c.size("p")
	half := rapid.IntRange(0, p/2).Draw(c.t, "half")
	x, past := c.input(graph.Units(h*p, p)), c.drawPast()
	c.apply(graph.Attrs{"theta": float64(theta), "dims": 2 * half}, x, c.segments(), past)

	position := matrixOf(c.tokens, 1, func(i, _ int) float64 {
		s := c.owner[i]
		return float64(c.past[s] + i - c.first[s])
	})
	rates := matrix{1, h * p, make([]float64, h*p)} // not matrixOf, which rounds
	turn := matrix{h * p, h * p, make([]float64, h*p*h*p)}
	for head := range h {
		for j := range half {
			a, b := head*p+j, head*p+half+j
			rates.v[a] = math.Pow(theta, -float64(j)/float64(half))
			rates.v[b] = rates.v[a]
			turn.v[b*turn.cols+a], turn.v[a*turn.cols+b] = -1, 1
		}
	}
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		angle, turned := G.Must(G.Mul(n[1], n[2])), G.Must(G.Mul(n[0], n[3]))
		return G.Must(G.Add(mul(n[0], G.Must(G.Cos(angle))), mul(turned, G.Must(G.Sin(angle)))))
	}, x.matrix, position, rates, turn)}
}

// attention is evaluated for each token and group of heads by itself, on as many
// keys and values as the token sees.
func attention(c *opCase) [][]float64 {
	const scale = 0.5
	g, q, p := c.few("g"), c.few("q"), c.few("p")
	width := graph.Units(g*p, p)
	x, k, v := c.input(graph.Units(g*q*p, p)), c.input(width), c.input(width)
	past := c.drawPast()
	keyCache, keys := c.cache(width)
	valueCache, values := c.cache(width)
	c.apply(graph.Attrs{"scale": scale}, x, k, v, keyCache, valueCache, c.segments(), past)

	var y, allKeys, allValues []float64
	for s, seq := range c.batch.Sequences {
		n := c.past[s] + seq.Len
		extended := func(st state, fresh operand) matrix {
			return matrix{n, g * p, slices.Concat(st.before[s], fresh.rowsFrom(c.first[s], seq.Len).v)}
		}
		keys, values := extended(keys, k), extended(values, v)
		for i := range seq.Len {
			seen := c.past[s] + i + 1
			for group := range g {
				heads := matrix{q, p, x.row(c.first[s]+i).colsFrom(group*q*p, q*p).v}
				y = append(y, evaluate(func(n []*G.Node) *G.Node {
					scores := times(G.Must(G.Mul(n[0], n[1])), scale)
					return G.Must(G.Mul(G.Must(G.SoftMax(scores, 1)), n[2]))
				}, heads, keys.rowsFrom(0, seen).colsFrom(group*p, p).transposed(), values.rowsFrom(0, seen).colsFrom(group*p, p))...)
			}
		}
		allKeys, allValues = append(allKeys, keys.v...), append(allValues, values.v...)
	}
	return [][]float64{y, allKeys, allValues}
}

// router multiplies what Gorgonia's softmax gives by which experts stay. Scores
// are multiples of 1/4, so that many are equal.
func router(c *opCase) [][]float64 {
	e := c.size("e")
	top, norm := c.attr("top", e).(int), c.attr("norm", e).(int)
	x := c.inputOf(graph.Size(e), func(int, int) float64 { return math.Round(4*c.rng.NormFloat64()) / 4 })
	c.apply(graph.Attrs{"top": top, "norm": norm}, x)
	stay := x.filled(0)
	for i := range x.rows {
		for _, j := range largestOf(x.row(i).v, top) {
			stay.v[i*e+j] = 1
		}
	}
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		kept := mul(G.Must(G.SoftMax(n[0], 1)), n[1])
		if norm == 0 {
			return kept
		}
		return G.Must(G.BroadcastHadamardDiv(kept, G.Must(G.Sum(kept, 1)), nil, []byte{1}))
	}, x.matrix, stay)}
}

// sigmoidRouter multiplies Gorgonia's sigmoid by which experts stay. Scores are multiples of
// 1/4, and few biases differ, so that many sums are equal.
func sigmoidRouter(c *opCase) [][]float64 {
	e := c.size("e")
	top, norm := c.attr("top", e).(int), c.attr("norm", e).(int)
	x := c.inputOf(graph.Size(e), func(int, int) float64 { return math.Round(4*c.rng.NormFloat64()) / 4 })
	bias := c.param(func(int, int) float64 { return float64(c.rng.IntN(3)) / 2 }, graph.Size(e))
	c.apply(graph.Attrs{"top": top, "norm": norm}, x, bias)
	stay := x.filled(0)
	for i := range x.rows {
		keys := make([]float64, e)
		for j, v := range x.row(i).v {
			keys[j] = 1/(1+math.Exp(-v)) + bias.v[j]
		}
		for _, j := range largestOf(keys, top) {
			stay.v[i*e+j] = 1
		}
	}
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		kept := mul(G.Must(G.Sigmoid(n[0])), n[1])
		if norm == 0 {
			return kept
		}
		return G.Must(G.BroadcastHadamardDiv(kept, G.Must(G.Sum(kept, 1)), nil, []byte{1}))
	}, x.matrix, stay)}
}

// largestOf lists where the largest elements are; of equal ones the first come.
func largestOf(v []float64, top int) []int {
	var at []int
	for len(at) < top {
		best := -1
		for j := range v {
			if !slices.Contains(at, j) && (best < 0 || v[j] > v[best]) {
				best = j
			}
		}
		at = append(at, best)
	}
	return at
}

// activations are the functions that experts may apply to their gate.
var activations = map[string]func(*G.Node) *G.Node{"silu": silu, "gelu": gelu, "gelu_tanh": geluTanh, "relu": relu, "relu2": func(x *G.Node) *G.Node { return G.Must(G.Square(relu(x))) }}

// experts evaluates each expert for all tokens, and adds them up with the tokens' weights; without
// a gate, up is in its place. Inputs are bounded, so that gates are small enough for the series of
// gelu, also those of one channel.
func experts(c *opCase) [][]float64 {
	e, i, k, n := c.few("e"), c.size("i"), c.size("k"), c.size("n")
	top, act := c.attr("top", e).(int), c.attr("act", e).(string)
	x := c.inputOf(graph.Size(k), func(int, int) float64 {
		return min(max(c.rng.NormFloat64(), -1.5), 1.5) / math.Sqrt(float64(k))
	})
	chosen := make([][]int, c.tokens)
	for t := range chosen {
		chosen[t] = c.rng.Perm(e)[:top]
	}
	weights := c.inputOf(graph.Size(e), func(t, j int) float64 {
		if slices.Contains(chosen[t], j) {
			return c.rng.Float64()
		}
		return 0
	})
	gated := c.op.Name == "experts"
	operands := []operand{x, weights, c.weight(e, i, k)}
	gate, up := operands[2], operands[2]
	if gated {
		up = c.weight(e, i, k)
		operands = append(operands, up)
	}
	down := c.weight(e, n, i)
	c.apply(graph.Attrs{"act": act, "top": top}, append(operands, down)...)

	sum := make([]float64, c.tokens*n)
	for j := range e {
		one := evaluate(func(m []*G.Node) *G.Node {
			hidden := activations[act](G.Must(G.Mul(m[0], m[1])))
			if gated {
				hidden = mul(hidden, G.Must(G.Mul(m[0], m[2])))
			}
			return G.Must(G.BroadcastHadamardProd(G.Must(G.Mul(hidden, m[3])), m[4], nil, []byte{1}))
		}, x.matrix, gate.rowsFrom(j*i, i).transposed(), up.rowsFrom(j*i, i).transposed(),
			down.rowsFrom(j*n, n).transposed(), weights.colsFrom(j, 1))
		for at, v := range one {
			sum[at] += v
		}
	}
	return [][]float64{sum}
}
