package models

import "github.com/krait-ml/krait/graph"

// mamba2 is Mamba-2 (Dao and Gu 2024, https://arxiv.org/abs/2405.21060, section 7)
// as Hugging Face stores it.
type mamba2 struct {
	backbone
	inner, heads, head, groups, state graph.Dim
	width                             int
	limit                             [2]float64 // of dt
	bias, convBias                    bool
	act                               string
}

func readMamba2(c *Config) *Model {
	hidden, heads, head := c.Int("hidden_size", 4096, 1), c.Int("num_heads", 128, 1), c.Int("head_dim", 64, 1)
	states, groups := c.Int("state_size", 128, 1), c.Int("n_groups", 8, 1)
	if expand := c.Positive("expand", 2); expand*float64(hidden) != float64(heads*head) {
		c.fail("num_heads", heads, "such that num_heads × head_dim is expand × hidden_size")
	}
	if heads%groups != 0 {
		c.fail("n_groups", groups, "a divisor of num_heads")
	}
	m := &mamba2{
		backbone: readBackbone(c, hidden, 32768, 64, false),
		inner:    graph.Units(heads*head, head),
		heads:    graph.Units(heads, 1),
		head:     graph.Size(head),
		groups:   graph.Units(groups*states, states),
		state:    graph.Size(states),
		width:    c.Int("conv_kernel", 4, 1),
		limit:    c.Range("time_step_limit"),
		bias:     c.Bool("use_bias", false),
		convBias: c.Bool("use_conv_bias", true),
		act:      c.Choice("hidden_act", "silu", activations),
	}
	if !c.Bool("rms_norm", true) {
		c.fail("rms_norm", false, "true: Krait has no other norm of the gated output")
	}
	c.Without("time_step_rank", "time_step_min", "time_step_max", "time_step_floor", "time_step_scale", "time_step_init_scheme",
		"rescale_prenorm_residual", "chunk_size", "intermediate_size")
	return m.model(m.mixer)
}

// mixer is state-space duality with one rate per head:
//
//	z, x, B, C, dt = in_proj n
//	x, B, C        = act(conv1d [x B C])
//	delta          = clamp(softplus(dt + dt_bias))
//	y              = ssd(x, delta, -exp A_log, B, C) + D x
//	out            = out_proj norm(y · silu(z))
func (m *mamba2) mixer(p *parts, n *graph.Value) *graph.Value {
	packed := graph.Pack(named("z", m.inner), named("x", m.inner), named("B", m.groups), named("C", m.groups), named("dt", m.heads))
	zxd := p.linear("in_proj", n, packed, m.hidden, m.bias)

	channels := graph.Pack(packed.Fields[1:4]...)
	u := p.Map("u", m.act, p.conv(p.Fields("xBC", "x|B|C", zxd), channels, m.width, m.convBias))
	x, b, c := p.Field("x", u), p.Field("B", u), p.Field("C", u)

	delta := p.Map("softplus", "softplus", p.Bias("dt_b", p.Field("dt", zxd), p.small("dt_bias", m.heads)))
	delta = p.Clamp("delta", delta, m.limit[0], m.limit[1])
	a := p.Map("A", "neg_exp", p.small("A_log", m.heads))
	h := p.State("ssm", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), m.heads, m.head, m.state))
	y := p.SSDScan("scan", x, delta, a, b, c, h, p.seg)
	y = p.Add("y", y, p.Scale("skip", x, p.small("D", m.heads)))

	g := p.Mul("gated", y, p.Map("gate", "silu", p.Field("z", zxd)))
	g = p.RMSNorm("normed", g, p.small("norm.weight", m.inner), m.eps)
	return p.linear("out_proj", g, m.hidden, m.inner, m.bias)
}

// named is a plain axis as a field of a packed one.
func named(name string, d graph.Dim) graph.Field {
	f := d.Fields[0]
	f.Name = name
	return f
}
