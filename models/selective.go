package models

import "github.com/krait-ml/krait/graph"

// selective is the selective state-space mixer (Gu and Dao 2023,
// https://arxiv.org/abs/2312.00752, algorithm 2 and figure 3), with norms on dt,
// B and C in some families, and with heads in others.
type selective struct {
	hidden, inner, state graph.Dim
	width, rank          int
	bias, convBias       bool
	act                  string
	norm                 func(p *parts, name string, v *graph.Value) *graph.Value // of dt, B and C; nil: none

	// heads is the number of heads that have projections of their own, and an
	// in_proj in which x and z alternate; 0: one for all channels.
	heads int
}

// build is
//
//	x, z      = in_proj n
//	u         = act(conv1d x)
//	dt, B, C  = x_proj u
//	delta     = softplus(dt_proj dt)
//	y         = scan(u, delta, -exp A_log, B, C) + D u
//	out       = out_proj (y · act(z))
func (m *selective) build(p *parts, n *graph.Value) *graph.Value {
	xz := m.inProj(p, n)
	x, z := p.Field("x", xz), p.Field("z", xz)
	u := p.Map("u", m.act, p.conv("conv1d", x, m.inner, m.width, m.convBias))

	project := m.project
	if m.heads > 0 {
		project = m.projectHeads
	}
	dt, b, c := project(p, u)
	delta := p.Map("delta", "softplus", dt)

	a := p.rates(m.perHead(m.state.Len()), m.inner, m.state)
	h := p.State("ssm", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), m.inner, m.state))
	y := p.SelectiveScan("scan", u, delta, a, b, c, h, p.seg)
	y = p.Add("y", y, p.Scale("skip", u, p.shaped("D", m.perHead(), m.inner)))

	g := p.Mul("gated", y, p.Map("gate", m.act, z))
	return p.linear("out_proj", g, m.hidden, m.inner, m.bias)
}

// perHead is the shape in the file of what has the channels in front.
func (m *selective) perHead(rest ...int) []int {
	if m.heads == 0 {
		return append([]int{m.inner.Len()}, rest...)
	}
	return append([]int{m.heads, m.inner.Len() / m.heads}, rest...)
}

func (m *selective) inProj(p *parts, n *graph.Value) *graph.Value {
	inner := m.inner.Len()
	packed := graph.Pack(named("x", m.inner), named("z", m.inner))
	if m.heads == 0 {
		return p.linear("in_proj", n, packed, m.hidden, m.bias)
	}
	alternating := func(name string, shape ...int) *graph.Storage {
		file := p.file(name)
		return &graph.Storage{Pieces: []graph.Piece{{Tensor: file, Start: 0, Step: 2, Count: inner}, {Tensor: file, Start: 1, Step: 2, Count: inner}}, Shape: shape}
	}
	w := p.stored("in_proj.weight", alternating("in_proj.weight", 2*inner, m.hidden.Len()), packed, m.hidden)
	if !m.bias {
		return p.MatMul("in_proj", n, w)
	}
	b := p.param("in_proj.bias", graph.TypeOf(graph.F32, packed), alternating("in_proj.bias", 2*inner))
	return p.Bias("in_proj", p.MatMul("in_proj_w", n, w), b)
}

// project gives dt for every channel, and B and C, of which all channels need all.
func (m *selective) project(p *parts, u *graph.Value) (dt, b, c *graph.Value) {
	packed := graph.Pack(graph.Field{Name: "dt", Size: m.rank}, named("B", m.state), named("C", m.state))
	dbc := p.linear("x_proj", u, packed, m.inner, false)
	field := func(name string) *graph.Value {
		v := p.Field(name, dbc)
		if m.norm == nil {
			return v
		}
		return m.norm(p, name, v)
	}
	low, b, c := field("dt"), field("B"), field("C")
	return p.linear("dt_proj", low, m.inner, graph.Size(m.rank), true), b, c
}

// projectHeads is project with matrices for each head, which the file has as
// x_proj_weight[heads, dt|B|C, channels] and dt_proj_weight[heads, channels, dt].
func (m *selective) projectHeads(p *parts, u *graph.Value) (dt, b, c *graph.Value) {
	states := m.state.Len()
	size, rows := m.inner.Len()/m.heads, m.rank+2*states
	down := func(name string, from, n int) *graph.Value {
		file := p.file("x_proj_weight")
		s := &graph.Storage{Shape: []int{m.heads, rows, size}}
		for h := range m.heads {
			s.Pieces = append(s.Pieces, graph.Piece{Tensor: file, Start: h*rows + from, Step: 1, Count: n})
		}
		return p.HeadDown(name, u, p.stored("x_proj_weight."+name, s, graph.Units(m.heads*n, n), graph.Size(size)))
	}
	low, b, c := down("dt", 0, m.rank), down("B", m.rank, states), down("C", m.rank+states, states)
	w := p.stored("dt_proj_weight", graph.Stored(p.file("dt_proj_weight"), m.perHead(m.rank)...), m.inner, graph.Size(m.rank))
	return p.Bias("dt_proj", p.HeadUp("dt_proj_w", low, w), p.shaped("dt_proj_bias", m.perHead(), m.inner)), b, c
}
