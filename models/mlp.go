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
	gateScale, outScale float64   // 1 as a rule
	names               [3]string // of gate, up and down; empty: gate_proj, up_proj, down_proj
}

// name is what the network calls gate, up or down.
func (m *mlp) name(which int) string {
	if m.names[which] != "" {
		return m.names[which]
	}
	return [3]string{"gate_proj", "up_proj", "down_proj"}[which]
}

func (m *mlp) build(p *parts, x *graph.Value) *graph.Value {
	gate := p.times("gate_scaled", p.linear(m.name(0), x, m.inner, m.hidden, m.bias), m.gateScale)
	up := p.linear(m.name(1), x, m.inner, m.hidden, m.bias)
	return m.down(p, m.name(2), gate, up)
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
	fused        bool // of two forms that the checkpoint may have, the packed one
}

func (m *mixture) build(p *parts, x *graph.Value) *graph.Value {
	weights := p.Router("weights", p.MatMul("router", x, p.matrix("router.weight", graph.Size(m.experts), m.hidden)), m.top, false)
	return m.apply(p, "experts", x, weights)
}

// apply is what the experts make of x, summed with the weights.
func (m *mixture) apply(p *parts, name string, x, weights *graph.Value) *graph.Value {
	gate, up, down := m.matrices(p)
	return p.Experts(name, m.act, x, weights, gate, up, down, m.top)
}

// matrices are gate, up and down of all experts: in two tensors, where gate and up are packed,
// or in three for each expert.
func (m *mixture) matrices(p *parts) (gate, up, down *graph.Value) {
	const both, last = "experts.gate_up_proj", "experts.down_proj"
	if apart := p.has("experts.0." + m.name(0) + ".weight"); !p.has(both) || apart && !m.fused {
		return m.stack(p, m.name(0)+".weight", m.inner, m.hidden), m.stack(p, m.name(1)+".weight", m.inner, m.hidden), m.stack(p, m.name(2)+".weight", m.hidden, m.inner)
	}
	experts := graph.Size(m.experts)
	packed := p.stored(both, graph.Stored(p.file(both)), experts, graph.Pack(named("gate", m.inner), named("up", m.inner)), m.hidden)
	return p.Part("gate", "gate", packed, 1), p.Part("up", "up", packed, 1), p.stored(last, graph.Stored(p.file(last)), experts, m.hidden, m.inner)
}

// stack is the matrices of all experts, which the file has apart.
func (m *mixture) stack(p *parts, name string, out, in graph.Dim) *graph.Value {
	s := &graph.Storage{Shape: []int{out.Len(), in.Len()}}
	for e := range m.experts {
		s.Pieces = append(s.Pieces, graph.Piece{Tensor: p.file(fmt.Sprintf("experts.%d.%s", e, name))})
	}
	return p.stored("experts."+name, s, graph.Size(m.experts), out, in)
}
