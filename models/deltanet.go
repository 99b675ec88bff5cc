package models

import (
	"math"

	"github.com/krait-ml/krait/graph"
)

// deltaNet is the mixer of the gated delta rule (Yang et al. 2024,
// https://arxiv.org/abs/2412.06464). Each head of keys serves neighbouring heads of values.
type deltaNet struct {
	hidden, qk, v, heads, key, value graph.Dim
	width                            int // of the convolution
	eps                              float64
	grouped                          bool // rows of the projections are grouped by heads of keys
}

// readDeltaNet reads the mixer of Qwen3-Next and later models.
func (c *Config) readDeltaNet(m *backbone) *deltaNet {
	keys, values := c.Count("linear_num_key_heads", 16, 1), c.Count("linear_num_value_heads", 32, 1)
	key, value := c.Int("linear_key_head_dim", 128, 1), c.Int("linear_value_head_dim", 128, 1)
	if values%keys != 0 {
		c.fail("linear_num_value_heads", values, "a multiple of linear_num_key_heads")
	}
	return &deltaNet{
		hidden: m.hidden,
		qk:     graph.Units(keys*key, key),
		v:      graph.Units(values*value, value),
		heads:  graph.Units(values, 1),
		key:    graph.Size(key),
		value:  graph.Size(value),
		width:  c.Int("linear_conv_kernel_dim", 4, 1),
		eps:    m.eps,
	}
}

// build is
//
//	q, k, v, z, b, a = projections of n
//	q, k, v          = silu(conv1d [q k v]), then q / |q| and k / |k| of each head
//	g                = -exp(A_log) softplus(a + dt_bias)
//	y                = delta(q, k, v, g, sigmoid(b)) / sqrt(width of q)
//	out              = out_proj (norm(y) · silu(z)), with the norm of each head
func (m *deltaNet) build(p *parts, n *graph.Value) *graph.Value {
	qkv, z, b, a := m.project(p, n)
	channels := graph.Pack(named("q", m.qk), named("k", m.qk), named("v", m.v))
	u := p.Map("u", "silu", p.conv("conv1d", qkv, channels, m.width, false))
	q, k, v := p.Fields("q_in", "q", u), p.Fields("k_in", "k", u), p.Field("v", u)
	q, k = p.HeadL2Norm("q", q, 1e-6), p.HeadL2Norm("k", k, 1e-6)

	delta := p.Map("softplus", "softplus", p.Bias("a_b", a, p.small("dt_bias", m.heads)))
	g := p.Scale("g", delta, p.rates([]int{m.heads.Len()}, m.heads))
	state := p.State("ssm", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), m.heads, m.key, m.value))
	y := p.DeltaScan("delta_out", q, k, v, g, p.Map("beta", "sigmoid", b), state, p.seg, 1/math.Sqrt(float64(m.key.Len())))

	y = p.HeadRMSNorm("normed", y, p.small("norm.weight", m.value), m.eps)
	return p.linear("out_proj", p.Mul("out_in", y, p.Map("gate", "silu", z)), m.hidden, m.v, false)
}

// project is the projections q|k|v, z, b and a of n. A GGUF file has q|k|v and z apart, though b
// and a may be grouped.
func (m *deltaNet) project(p *parts, n *graph.Value) (qkv, z, b, a *graph.Value) {
	q, k, v := named("q", m.qk), named("k", m.qk), named("v", m.v)
	if m.grouped && p.has("in_proj_qkvz.weight") {
		qkvz := m.groupedLinear(p, "in_proj_qkvz", n, graph.Pack(q, k, v, named("z", m.v)))
		qkv, z = p.Fields("qkv", "q|k|v", qkvz), p.Field("z", qkvz)
	} else {
		qkv, z = p.linear("in_proj_qkv", n, graph.Pack(q, k, v), m.hidden, false), p.linear("in_proj_z", n, m.v, m.hidden, false)
	}
	if m.grouped {
		ba := m.groupedLinear(p, "in_proj_ba", n, graph.Pack(named("b", m.heads), named("a", m.heads)))
		return qkv, z, p.Field("b", ba), p.Field("a", ba)
	}
	return qkv, z, p.linear("in_proj_b", n, m.heads, m.hidden, false), p.linear("in_proj_a", n, m.heads, m.hidden, false)
}

// groupedLinear is x Wᵀ, where the tensor has for each head of keys its rows of all fields.
func (m *deltaNet) groupedLinear(p *parts, name string, x *graph.Value, out graph.Dim) *graph.Value {
	groups, tensor := m.qk.Len()/m.key.Len(), p.file(name+".weight")
	s := &graph.Storage{Shape: []int{out.Len(), m.hidden.Len()}}
	at := 0
	for _, f := range out.Fields {
		for i := range groups {
			s.Pieces = append(s.Pieces, graph.Piece{Tensor: tensor, Start: i*out.Len()/groups + at, Step: 1, Count: f.Size / groups})
		}
		at += f.Size / groups
	}
	return p.MatMul(name, x, p.stored(name+".weight", s, out, m.hidden))
}
