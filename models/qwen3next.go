package models

import (
	"maps"
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// qwen3Next is Qwen3-Next (Qwen Team 2025, https://qwen.ai/blog?id=qwen3-next) and Qwen3.5: a
// transformer most of whose layers have a gated delta net for attention. Norms are zero-centred.
type qwen3Next struct {
	backbone
	mixer     *deltaNet
	attention *attention
	mlp       mlp
	experts   *sharedMixture // nil: there are none
	attends   func(layer int) bool
	mixes     func(layer int) bool
	head      *mtp
}

// QwenNames are what it calls the tensors around its blocks.
var QwenNames = TensorNames{"model.", "", "embed_tokens.weight", "norm.weight"}

func readQwen3Next(c *Config) *Model {
	m := newQwen(c, 151936, 2048, 48)
	m.mixer.grouped = true
	m.mlp = c.readMLP(&m.backbone, 5632)
	m.experts = c.readSharedMixture(m.mlp, 512, 10)
	m.experts.norm = c.Bool("norm_topk_prob", true)
	step, plain := c.Int("decoder_sparse_step", 1, 1), c.Indices("mlp_only_layers", m.layers)
	m.mixes = func(i int) bool { return m.experts.experts > 0 && (i+1)%step == 0 && !slices.Contains(plain, i) }
	return m.model()
}

func readQwen35(c *Config) *Model {
	m := newQwen(c, 248320, 4096, 32)
	m.mlp = c.readMLP(&m.backbone, 12288)
	return m.model()
}

func readQwen35MoE(c *Config) *Model {
	m := newQwen(c, 248320, 2048, 40)
	m.experts = c.readSharedMixture(c.readMLP(&m.backbone, 1), 256, 8)
	m.experts.norm, m.experts.fused = true, true
	m.mixes = func(int) bool { return true }
	return m.model()
}

// newQwen reads what the models share.
func newQwen(c *Config, vocab, hidden, layers int) *qwen3Next {
	m := &qwen3Next{backbone: readModel(c, vocab, hidden, layers, 1e-6, false)}
	m.names, m.other, m.centred = QwenNames, "model.language_model.", true
	m.mixer = c.readDeltaNet(&m.backbone)
	groups := map[bool]int{true: 2, false: 4}[hidden == 2048]
	m.attention = c.readHeads("head_dim", 16*256, 16, groups)
	a := m.attention
	a.in, a.out, a.scale = m.hidden, m.hidden, 1/math.Sqrt(float64(a.head))
	a.bias = c.Bool("attention_bias", false)
	a.norms, a.eps, a.centred, a.gated = [2]string{"q_norm.weight", "k_norm.weight"}, m.eps, true, true
	var part float64
	a.theta, part = c.Rotary(10000, 0.25)
	if a.rotary = int(float64(a.head) * part); a.rotary%2 != 0 {
		c.fail("partial_rotary_factor", part, "such that an even number of channels of a head is rotated")
	}
	period := c.Int("full_attention_interval", 4, 1)
	kinds := c.Kinds("layer_types", m.layers, "linear_attention", "full_attention")
	m.attends = func(i int) bool {
		if kinds != nil {
			return kinds[i] == "full_attention"
		}
		return (i+1)%period == 0
	}
	m.mixes = func(int) bool { return false }
	c.Refuse("sliding_window", "use_sliding_window")
	if !c.Bool("attn_output_gate", true) {
		c.fail("attn_output_gate", false, "true: Krait has no other form")
	}
	c.Without("max_position_embeddings", "attention_dropout", "max_window_layers", "mamba_ssm_dtype",
		"output_router_logits", "router_aux_loss_coef", "decoder_sparse_step", "mlp_only_layers")
	m.head = c.readMTP("mtp_num_hidden_layers")
	m.head.dedicated = c.Bool("mtp_use_dedicated_embeddings", false)
	return m
}

func (m *qwen3Next) model() *Model {
	out := m.hybrid(m.block)
	out.besides = []string{"mtp.", "model.visual."} // a head that predicts further tokens, and a reader of pictures
	out.mtp = m.head
	out.mtp.around = &m.backbone
	out.mtp.normE, out.mtp.normH, out.mtp.fc, out.mtp.last = "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "fc.weight", "norm.weight"
	one := *m
	one.attends = func(int) bool { return true }
	out.mtp.blocks = func(p *parts, x *graph.Value) *graph.Value { return one.block(p.in("layers").in(0), 0, x, nil) }
	return out
}

// textOf moves what a config has of the text model, beside that of one of pictures, to its
// outside: the rest has no use in decoding.
func (c *Config) textOf() {
	text, ok := c.values["text_config"].(map[string]any)
	if !ok {
		c.fail("text_config", c.values["text_config"], "an object")
		return
	}
	outer := c.ModelType()
	tied, said := c.values["tie_word_embeddings"]
	for _, key := range []string{"text_config", "vision_config", "architectures", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id", "language_model_only"} {
		delete(c.values, key)
	}
	maps.Copy(c.values, text)
	if text["model_type"] == nil {
		c.values["model_type"] = outer + "_text"
	}
	if said {
		c.values["tie_word_embeddings"] = tied
	}
}

// block is h = h + mixer(norm(h)), and then h + feed forward(norm(h)).
func (m *qwen3Next) block(p *parts, i int, h, _ *graph.Value) *graph.Value {
	n := m.norm(p, "norm", h, "input_layernorm.weight")
	var y *graph.Value
	if m.attends(i) {
		y = m.attention.build(p.as("attention", "self_attn."), n)
	} else {
		y = m.mixer.build(p.as("mixer", "linear_attn."), n)
	}
	h = p.Add("mixed", h, y)
	n = m.norm(p, "norm_ff", h, "post_attention_layernorm.weight")
	if m.mixes(i) {
		return p.Add("h", h, m.experts.build(p.as("experts", "mlp."), n))
	}
	return p.Add("h", h, m.mlp.build(p.in("mlp"), n))
}

// sharedMixture is a mixture of experts, and one that all tokens go through as far as the
// sigmoid of a score of its own says.
type sharedMixture struct {
	mixture
	norm   bool // weights of a token sum to 1
	shared mixture
}

// readSharedMixture reads experts that are as the network, of their own sizes.
func (c *Config) readSharedMixture(like mlp, experts, top int) *sharedMixture {
	m := &sharedMixture{mixture: mixture{mlp: like, experts: c.Count("num_experts", experts, 0), top: c.Int("num_experts_per_tok", top, 1)}}
	m.inner = graph.Units(c.Int("moe_intermediate_size", 512, 1), 1)
	m.shared = mixture{mlp: like, experts: 1, top: 1}
	m.shared.inner = graph.Units(c.Int("shared_expert_intermediate_size", 512, 1), 1)
	if m.experts > 0 && m.top > m.experts {
		c.fail("num_experts_per_tok", m.top, "at most num_experts")
	}
	return m
}

func (m *sharedMixture) build(p *parts, x *graph.Value) *graph.Value {
	scores := p.MatMul("router", x, p.matrix("gate.weight", graph.Size(m.experts), m.hidden))
	y := m.apply(p, "experts", x, p.Router("weights", scores, m.top, m.norm))
	// The shared expert is a mixture of one, whose weight no softmax makes 1.
	share := p.Map("shared_gate", "sigmoid", p.MatMul("shared_score", x, p.matrix("shared_expert_gate.weight", graph.Size(1), m.hidden)))
	q := p.at("shared_expert.")
	one := func(name string, out, in graph.Dim) *graph.Value {
		return q.stored("shared_expert."+name, graph.Stored(q.file(name), out.Len(), in.Len()), graph.Size(1), out, in)
	}
	gate, up := one("gate_proj.weight", m.shared.inner, m.hidden), one("up_proj.weight", m.shared.inner, m.hidden)
	z := p.Experts("shared", m.act, x, share, gate, up, one("down_proj.weight", m.hidden, m.shared.inner), 1)
	return p.Add("all", y, z)
}
