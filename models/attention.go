package models

import "github.com/krait-ml/krait/graph"

// attention is causal self-attention, with groups of heads that share keys and
// values (Ainslie et al. 2023, https://arxiv.org/abs/2305.13245).
type attention struct {
	in, out             graph.Dim // what it reads, what it gives
	heads, groups, head int
	scale               float64
	bias                bool
	keyScale            float64   // 1 as a rule
	theta               float64   // of the rotary embedding
	rotary              int       // channels of a head that are rotated; 0: none
	norms               [2]string // tensors of the norms of each head of queries and keys; empty: none
	eps                 float64   // of the norms
	centred             bool      // the norms are zero-centred
	gated               bool      // beside each head of queries q_proj has one of a gate
	output              string    // the projection of what is attended; empty: o_proj

	// adapt adds what a layer adapts to the projection name of x; nil: nothing.
	adapt func(p *parts, name string, x, y *graph.Value, out, in graph.Dim) *graph.Value
}

func (a *attention) build(p *parts, x *graph.Value) *graph.Value {
	q, gate := a.queries(p, x)
	q = a.norm(p, "q_normed", q, a.norms[0])
	k := p.times("k_scaled", a.norm(p, "k_normed", a.project(p, "k", x, a.groups), a.norms[1]), a.keyScale)
	v := a.project(p, "v", x, a.groups)
	if a.rotary > 0 {
		q = p.Rotary("q_rotated", q, p.seg, p.past, a.theta, a.rotary)
		k = p.Rotary("k_rotated", k, p.seg, p.past, a.theta, a.rotary)
	}
	cache := graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), graph.Symbol(graph.Cached), graph.Units(a.groups*a.head, a.head))
	keys, values := p.State("keys", cache), p.State("values", cache)
	y := p.Attention("attended", q, k, v, keys, values, p.seg, p.past, a.scale)
	if gate != nil {
		y = p.Mul("gated", y, p.Map("gate_sigmoid", "sigmoid", gate))
	}
	output := "o_proj"
	if a.output != "" {
		output = a.output
	}
	return p.linear(output, y, a.out, graph.Units(a.heads*a.head, a.head), a.bias)
}

// queries are those of all heads, and their gates: of 2·head rows of a head in q_proj the second
// half; nil without gates.
func (a *attention) queries(p *parts, x *graph.Value) (q, gate *graph.Value) {
	if !a.gated {
		return a.project(p, "q", x, a.heads), nil
	}
	half := func(name string, which int) *graph.Value {
		out, s := graph.Units(a.heads*a.head, a.head), &graph.Storage{Shape: []int{2 * a.heads * a.head, a.in.Len()}}
		for h := range a.heads {
			s.Pieces = append(s.Pieces, graph.Piece{Tensor: p.file("q_proj.weight"), Start: (2*h + which) * a.head, Step: 1, Count: a.head})
		}
		return p.MatMul(name, x, p.stored(name+".weight", s, out, a.in))
	}
	return half("q_proj", 0), half("gate", 1)
}

// norm is the norm of each head of x, with the weight of a tensor.
func (a *attention) norm(p *parts, name string, x *graph.Value, tensor string) *graph.Value {
	if tensor == "" {
		return x
	}
	return p.HeadRMSNorm(name, x, p.weight(name, tensor, graph.Size(a.head), a.centred), a.eps)
}

// project gives heads of a projection.
func (a *attention) project(p *parts, name string, x *graph.Value, heads int) *graph.Value {
	out := graph.Units(heads*a.head, a.head)
	y := p.linear(name+"_proj", x, out, a.in, a.bias)
	if a.adapt == nil {
		return y
	}
	return a.adapt(p, name, x, y, out, a.in)
}

// readHeads reads how many heads there are. Their size is that of the key
// sizeKey, where the family has it, or width divided by the heads.
func (c *Config) readHeads(sizeKey string, width, heads, groups int) *attention {
	a := &attention{heads: c.Int("num_attention_heads", heads, 1), keyScale: 1}
	if groups == 0 || c.null("num_key_value_heads") {
		groups = a.heads
	}
	a.groups = c.Int("num_key_value_heads", groups, 1)
	if a.heads%a.groups != 0 {
		c.fail("num_key_value_heads", a.groups, "a divisor of num_attention_heads")
	}
	a.head = width / a.heads
	if sizeKey != "" {
		a.head = c.Int(sizeKey, a.head, 1)
	}
	if a.head < 1 {
		c.fail("num_attention_heads", a.heads, "at most the width of attention")
	}
	return a
}
