package models

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// mlp is the gated feed-forward network, down(act(gate x) · up x) (Shazeer 2020,
// https://arxiv.org/abs/2002.05202).
type mlp struct {
	hidden, inner       graph.Dim
	act                 string
	bias                bool
	gateScale, outScale float64 // 1 as a rule
}

func (m *mlp) build(p *parts, x *graph.Value) *graph.Value {
	gate := p.times("gate_scaled", p.linear("gate_proj", x, m.inner, m.hidden, m.bias), m.gateScale)
	up := p.linear("up_proj", x, m.inner, m.hidden, m.bias)
	return m.down(p, "down_proj", gate, up)
}

// down is what the gate leaves, projected down by the linear layer called name.
func (m *mlp) down(p *parts, name string, gate, up *graph.Value) *graph.Value {
	h := p.Mul("gated", p.Map("gate", m.act, gate), up)
	return p.times("scaled", p.linear(name, h, m.hidden, m.inner, m.bias), m.outScale)
}

// plain is the feed-forward network without a gate, down(act(up x)).
func (m *mlp) plain(p *parts, x *graph.Value) *graph.Value {
	h := p.Map("act", m.act, p.linear("up_proj", x, m.inner, m.hidden, m.bias))
	return p.linear("down_proj", h, m.hidden, m.inner, m.bias)
}

// mixture is a mixture of experts: each token goes through the top of them, with
// the weights that the router gives (Shazeer et al. 2017,
// https://arxiv.org/abs/1701.06538).
type mixture struct {
	mlp
	experts, top int
}

func (m *mixture) build(p *parts, x *graph.Value) *graph.Value {
	weights := p.Router("weights", p.MatMul("router", x, p.matrix("router.weight", graph.Size(m.experts), m.hidden)), m.top, false)
	return p.Experts("experts", m.act, x, weights,
		m.stack(p, "gate_proj.weight", m.inner, m.hidden), m.stack(p, "up_proj.weight", m.inner, m.hidden), m.stack(p, "down_proj.weight", m.hidden, m.inner), m.top)
}

// stack is the matrices of all experts, which the file has apart.
func (m *mixture) stack(p *parts, name string, out, in graph.Dim) *graph.Value {
	s := &graph.Storage{Shape: []int{out.Len(), in.Len()}}
	for e := range m.experts {
		s.Pieces = append(s.Pieces, graph.Piece{Tensor: p.file(fmt.Sprintf("experts.%d.%s", e, name))})
	}
	return p.stored("experts."+name, s, graph.Size(m.experts), out, in)
}
