package models

import "github.com/krait-ml/krait/graph"

// attention is causal self-attention, with groups of heads that share keys and
// values (Ainslie et al. 2023, https://arxiv.org/abs/2305.13245).
type attention struct {
	in, out             graph.Dim // what it reads, what it gives
	heads, groups, head int
	scale               float64
	bias                bool
	keyScale            float64 // 1 as a rule
	theta               float64 // of the rotary embedding
	rotary              int     // channels of a head that are rotated; 0: none

	// adapt adds what a layer adapts to the projection name of x; nil: nothing.
	adapt func(p *parts, name string, x, y *graph.Value, out, in graph.Dim) *graph.Value
}

func (a *attention) build(p *parts, x *graph.Value) *graph.Value {
	q := a.project(p, "q", x, a.heads)
	k := p.times("k_scaled", a.project(p, "k", x, a.groups), a.keyScale)
	v := a.project(p, "v", x, a.groups)
	if a.rotary > 0 {
		q = p.Rotary("q_rotated", q, p.seg, p.past, a.theta, a.rotary)
		k = p.Rotary("k_rotated", k, p.seg, p.past, a.theta, a.rotary)
	}
	cache := graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), graph.Symbol(graph.Cached), graph.Units(a.groups*a.head, a.head))
	keys, values := p.State("keys", cache), p.State("values", cache)
	y := p.Attention("attended", q, k, v, keys, values, p.seg, p.past, a.scale)
	return p.linear("o_proj", y, a.out, graph.Units(a.heads*a.head, a.head), a.bias)
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
