package models

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// graniteHybrid is Granite 4 (IBM 2025, https://www.ibm.com/granite/docs/models/granite): a
// transformer most of whose layers have an SSD mixer for attention, all of them a
// feed-forward network that every token goes through, and beside it a mixture of experts.
type graniteHybrid struct {
	backbone
	mixer     *ssd
	attention *attention
	shared    mlp
	experts   mixture // none of them: the layers have no mixture
	kinds     []string
	branch    float64 // times what is added to the stream
}

// GraniteNames are what it calls the tensors around its blocks.
var GraniteNames = TensorNames{"model.", "", "embed_tokens.weight", "norm.weight"}

func readGraniteHybrid(c *Config) *Model {
	m := &graniteHybrid{backbone: readModel(c, 32000, 4096, 32, 1e-6, false)}
	m.names = GraniteNames
	hidden := m.hidden.Len()
	m.embedScale, m.branch = c.Scale("embedding_multiplier"), c.Scale("residual_multiplier")
	m.logitScale = 1 / c.Positive("logits_scaling", 1)
	m.mixer = c.readHeadsSSD(&m.backbone, c.expanded("mamba_expand", hidden))
	m.mixer.limit = c.Range("time_step_limit")
	m.mixer.inBias = c.Bool("mamba_proj_bias", false)
	m.mixer.outBias = m.mixer.inBias
	m.mixer.norm = c.readGroupedNorm(m.mixer.inner.Len(), m.eps)
	m.attention = c.readGraniteAttention(&m.backbone)
	m.shared = c.readMLP(&m.backbone, 14336)
	m.shared.bias = false
	m.shared.inner = graph.Units(c.Int("shared_intermediate_size", 1024, 1), 1)
	m.experts = c.readGraniteExperts(m.shared)
	m.kinds = c.Kinds("layer_types", m.layers, "mamba", "attention", "linear_attention", "full_attention")
	c.Without("max_position_embeddings", "attention_dropout", "mamba_chunk_size", "output_router_logits", "router_aux_loss_coef",
		"init_method", "normalization_function", "layers_block_type", "num_logits_to_keep")
	return m.hybrid(m.block)
}

// readGraniteAttention: scores have a factor of their own, and there are positions only
// where a key says so.
func (c *Config) readGraniteAttention(m *backbone) *attention {
	a := c.readHeads("", m.hidden.Len(), 32, 0)
	a.in, a.out, a.scale = m.hidden, m.hidden, c.Scale("attention_multiplier")
	a.bias = c.Bool("attention_bias", false)
	if c.OneOf("position_embedding_type", "nope", map[string]string{"rope": "rope", "nope": "nope"}) != "rope" {
		c.Without("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
		return a
	}
	var part float64
	if a.theta, part = c.Rotary(10000, 1); part != 1 {
		c.fail("partial_rotary_factor", part, "1")
	}
	if a.rotary = a.head; a.head%2 != 0 {
		c.fail("num_attention_heads", a.heads, "such that hidden_size / num_attention_heads is even, for the rotary embedding")
	}
	return a
}

// readGraniteExperts: experts are as the network that all tokens go through, of another
// size.
func (c *Config) readGraniteExperts(like mlp) mixture {
	e := mixture{mlp: like, experts: c.Count("num_local_experts", 8, 0), top: c.Int("num_experts_per_tok", 2, 0)}
	e.inner = graph.Units(c.Int("intermediate_size", 11008, 1), 1)
	if e.experts > 0 && (e.top < 1 || e.top > e.experts) {
		c.fail("num_experts_per_tok", e.top, "at least 1, and at most num_local_experts")
	}
	return e
}

// block is h = h + branch · mixer(norm(h)), and then h + branch · (shared + experts)(norm(h)).
func (m *graniteHybrid) block(p *parts, i int, h, _ *graph.Value) *graph.Value {
	n := p.RMSNorm("norm", h, p.small("input_layernorm.weight", m.hidden), m.eps)
	h = p.Add("mixed", h, p.times("mixed_scaled", m.mix(p, i, n), m.branch))
	n = p.RMSNorm("norm_ff", h, p.small("post_attention_layernorm.weight", m.hidden), m.eps)
	return p.Add("h", h, p.times("ff_scaled", m.feedForward(p, n), m.branch))
}

func (m *graniteHybrid) mix(p *parts, i int, n *graph.Value) *graph.Value {
	if m.kinds != nil && slices.Contains([]string{"attention", "full_attention"}, m.kinds[i]) {
		return m.attention.build(p.as("attention", "self_attn."), n)
	}
	return m.mixer.build(p.as("mixer", "mamba."), n)
}

func (m *graniteHybrid) feedForward(p *parts, n *graph.Value) *graph.Value {
	shared := p.as("mlp", "shared_mlp.")
	packed := m.packed(shared, n)
	y := m.shared.down(shared, "output_linear", shared.Fields("gate_in", "gate", packed), shared.Field("up", packed))
	if m.experts.experts == 0 {
		return y
	}
	return p.Add("ff", y, m.routed(p.as("experts", "block_sparse_moe."), n))
}

// packed is gate and up of the network that every token goes through: one matrix of the
// checkpoint, or two.
func (m *graniteHybrid) packed(p *parts, n *graph.Value) *graph.Value {
	inner := m.shared.inner.Len()
	pack := graph.Pack(named("gate", m.shared.inner), named("up", m.shared.inner))
	if !p.apart() {
		return p.linear("input_linear", n, pack, m.hidden, false)
	}
	s := &graph.Storage{Shape: []int{inner, m.hidden.Len()}}
	for _, name := range []string{"gate.weight", "up.weight"} {
		s.Pieces = append(s.Pieces, graph.Piece{Tensor: p.file(name), Start: 0, Step: 1, Count: inner})
	}
	return p.MatMul("input_linear", n, p.stored("input_linear.weight", s, pack, m.hidden))
}

// apart reports whether the checkpoint has gate and up as two matrices, as GGUF files do.
func (p *parts) apart() bool { return !p.has("input_linear.weight") && p.has("gate.weight") }

// routed is the mixture of experts, whose matrices a tensor has for all of them. The
// weights are the softmax over the scores of those that are chosen, which is what a
// softmax over all leaves, made to sum to 1.
func (m *graniteHybrid) routed(p *parts, n *graph.Value) *graph.Value {
	e := &m.experts
	experts := graph.Size(e.experts)
	weights := p.Router("weights", p.MatMul("router", n, p.matrix("router.layer.weight", experts, m.hidden)), e.top, true)
	gate, up := m.gates(p, experts)
	down := p.stored("output_linear.weight", graph.Stored(p.file("output_linear.weight")), experts, m.hidden, e.inner)
	return p.Experts("experts", e.act, n, weights, gate, up, down, e.top)
}

// gates are the matrices gate and up of the experts, which the checkpoint has in one
// tensor, or in two.
func (m *graniteHybrid) gates(p *parts, experts graph.Dim) (gate, up *graph.Value) {
	inner := m.experts.inner
	if p.apart() {
		half := func(name string) *graph.Value {
			return p.stored(name, graph.Stored(p.file(name+".weight")), experts, inner, m.hidden)
		}
		return half("gate"), half("up")
	}
	packed := p.stored("input_linear.weight", graph.Stored(p.file("input_linear.weight")), experts, graph.Pack(named("gate", inner), named("up", inner)), m.hidden)
	return p.Part("gate", "gate", packed, 1), p.Part("up", "up", packed, 1)
}
