package models

import "github.com/krait-ml/krait/graph"

// ssd is the mixer of state-space duality, with one rate per head (Dao and Gu
// 2024, https://arxiv.org/abs/2405.21060, section 7).
type ssd struct {
	hidden, inner, heads, head, groups, state graph.Dim
	width                                     int
	limit                                     [2]float64 // of dt
	inBias, outBias, convBias                 bool
	act                                       string // of the convolution
	norm                                      gatedNorm
	scales                                    [5]float64 // of the fields of in_proj
}

// gatedNorm is the norm of y · silu(z).
type gatedNorm struct {
	parts  int  // that are normed apart; 0: there is no norm
	before bool // norm(y) · silu(z) instead
	eps    float64
}

// newSSD makes the axes of a mixer with heads of size head, which share groups
// of B and C with states of size state.
func newSSD(hidden graph.Dim, heads, head, groups, state int) *ssd {
	return &ssd{
		hidden: hidden,
		inner:  graph.Units(heads*head, head),
		heads:  graph.Units(heads, 1),
		head:   graph.Size(head),
		groups: graph.Units(groups*state, state),
		state:  graph.Size(state),
		scales: [5]float64{1, 1, 1, 1, 1},
	}
}

// build is
//
//	z, x, B, C, dt = in_proj n
//	x, B, C        = act(conv1d [x B C])
//	delta          = clamp(softplus(dt + dt_bias))
//	y              = ssd(x, delta, -exp A_log, B, C) + D x
//	out            = out_proj norm(y · silu(z))
func (m *ssd) build(p *parts, n *graph.Value) *graph.Value {
	packed := graph.Pack(named("z", m.inner), named("x", m.inner), named("B", m.groups), named("C", m.groups), named("dt", m.heads))
	zxd := p.linear("in_proj", n, packed, m.hidden, m.inBias)
	z := p.times("z_scaled", p.Field("z", zxd), m.scales[0])
	dt := p.times("dt_scaled", p.Field("dt", zxd), m.scales[4])

	channels := graph.Pack(packed.Fields[1:4]...)
	u := p.Map("u", m.act, p.conv("conv1d", m.convolved(p, zxd), channels, m.width, m.convBias))
	x, b, c := p.Field("x", u), p.Field("B", u), p.Field("C", u)

	delta := p.Map("softplus", "softplus", p.Bias("dt_b", dt, p.small("dt_bias", m.heads)))
	delta = p.Clamp("delta", delta, m.limit[0], m.limit[1])
	a := p.rates([]int{m.heads.Len()}, m.heads)
	h := p.State("ssm", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), m.heads, m.head, m.state))
	y := p.SSDScan("scan", x, delta, a, b, c, h, p.seg)
	y = p.Add("y", y, p.Scale("skip", x, p.small("D", m.heads)))
	return p.linear("out_proj", m.gated(p, y, z), m.hidden, m.inner, m.outBias)
}

// convolved is what goes into the convolution.
func (m *ssd) convolved(p *parts, zxd *graph.Value) *graph.Value {
	if m.scales[1] == 1 && m.scales[2] == 1 && m.scales[3] == 1 {
		return p.Fields("xBC", "x|B|C", zxd)
	}
	var fields []*graph.Value
	for i, name := range []string{"x", "B", "C"} {
		fields = append(fields, p.times(name+"_scaled", p.Fields(name+"_in", name, zxd), m.scales[1+i]))
	}
	return p.Concat("xBC", "x|B|C", fields...)
}

// gated is the output gate with its norm.
func (m *ssd) gated(p *parts, y, z *graph.Value) *graph.Value {
	gate := p.Map("gate", "silu", z)
	if !m.norm.before {
		return m.normed(p, p.Mul("gated", y, gate))
	}
	return p.Mul("out_in", m.normed(p, y), gate)
}

func (m *ssd) normed(p *parts, y *graph.Value) *graph.Value {
	switch m.norm.parts {
	case 0:
		return y
	case 1:
		return p.RMSNorm("normed", y, p.small("norm.weight", m.inner), m.norm.eps)
	}
	return p.GroupRMSNorm("normed", y, p.small("norm.weight", m.inner), m.norm.parts, m.norm.eps)
}
