package models

import "github.com/krait-ml/krait/graph"

// mamba is Mamba (Gu and Dao 2023, https://arxiv.org/abs/2312.00752, algorithm 2
// and figure 3) as Hugging Face stores it, and its descendants that differ in
// norms only.
type mamba struct {
	backbone
	inner, state   graph.Dim
	width, rank    int
	bias, convBias bool
	act            string
	paramEps       float64 // of the norms on dt, B and C; 0: there are none
}

func readMamba(c *Config) *Model { return readMambaKeys(c).model() }

// readMambaKeys reads the keys that the descendants share; defaults are those
// of transformers.
func readMambaKeys(c *Config) *mamba {
	hidden := c.Int("hidden_size", 768, 1)
	expand := c.Positive("expand", 2)
	m := &mamba{
		backbone: readBackbone(c, hidden, 50280, 32, true),
		inner:    graph.Units(c.Int("intermediate_size", int(min(expand*float64(hidden), maxDim)), 1), 1),
		state:    graph.Size(c.Int("state_size", 16, 1)),
		width:    c.Int("conv_kernel", 4, 1),
		rank:     (hidden + 15) / 16,
		bias:     c.Bool("use_bias", false),
		convBias: c.Bool("use_conv_bias", true),
		act:      c.Choice("hidden_act", "silu", activations),
	}
	if v, _ := c.get("time_step_rank"); v != "auto" {
		m.rank = c.Int("time_step_rank", m.rank, 1)
	}
	c.Without("time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme", "time_step_floor",
		"rescale_prenorm_residual", "use_mambapy", "use_associative_scan")
	return m
}

func (m *mamba) model() *Model {
	return m.backbone.model(m.mixer)
}

// mixer is the selective state-space model:
//
//	x, z      = in_proj n
//	u         = act(conv1d x)
//	dt, B, C  = x_proj u
//	delta     = softplus(dt_proj dt)
//	y         = scan(u, delta, -exp A_log, B, C) + D u
//	out       = out_proj (y · act(z))
func (m *mamba) mixer(p *parts, n *graph.Value) *graph.Value {
	inner, states := m.inner.Len(), m.state.Len()
	packed := graph.Pack(graph.Field{Name: "x", Size: inner, Unit: 1}, graph.Field{Name: "z", Size: inner, Unit: 1})
	xz := p.linear("in_proj", n, packed, m.hidden, m.bias)
	x, z := p.Field("x", xz), p.Field("z", xz)

	u := p.Map("u", m.act, p.conv(x, m.inner, m.width, m.convBias))

	// All channels need all of dt, B and C: these have no units.
	packed = graph.Pack(graph.Field{Name: "dt", Size: m.rank}, graph.Field{Name: "B", Size: states}, graph.Field{Name: "C", Size: states})
	dbc := p.linear("x_proj", u, packed, m.inner, false)
	dt, b, c := m.normed(p, "dt", dbc), m.normed(p, "B", dbc), m.normed(p, "C", dbc)
	delta := p.Map("delta", "softplus", p.linear("dt_proj", dt, m.inner, graph.Size(m.rank), true))

	a := p.Map("A", "neg_exp", p.small("A_log", m.inner, m.state))
	h := p.State("ssm", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), m.inner, m.state))
	y := p.SelectiveScan("scan", u, delta, a, b, c, h, p.seg)
	y = p.Add("y", y, p.Scale("skip", u, p.small("D", m.inner)))

	g := p.Mul("gated", y, p.Map("gate", m.act, z))
	return p.linear("out_proj", g, m.hidden, m.inner, m.bias)
}

// normed is a field of x_proj's result, normalised where the family does so.
func (m *mamba) normed(p *parts, name string, dbc *graph.Value) *graph.Value {
	v := p.Field(name, dbc)
	if m.paramEps == 0 {
		return v
	}
	return p.RMSNorm(name+"_norm", v, nil, m.paramEps)
}
