package models

import (
	"fmt"
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// nemotronH is Nemotron-H (NVIDIA 2025, https://arxiv.org/abs/2504.03624) and what came
// after it: each layer has one mixer, which is SSD, attention, an MLP or a mixture of
// experts. It has no positions.
type nemotronH struct {
	backbone
	kinds     []byte // a letter of the pattern for each layer
	mixer     *ssd
	attention *attention
	mlp       mlp
	experts   mixture
	shared    mlp         // an expert that all tokens go through
	latent    int         // the width that experts work in; 0: the model's
	choice    graph.Attrs // of the router
	scale     float64     // of the weights
}

func readNemotronH(c *Config) *Model {
	m := &nemotronH{backbone: readModel(c, 131072, 4096, 52, 1e-5, false)}
	m.names = BackboneNames
	m.eps = c.Positive("layer_norm_epsilon", 1e-5)
	m.kinds = c.readPattern(&m.layers)
	m.mixer = c.readNemotronMixer(&m.backbone)
	m.attention = c.readHeads(c.Either("head_dim", "attention_head_dim"), 128*c.Int("num_attention_heads", 32, 1), 32, 8)
	m.attention.in, m.attention.out, m.attention.scale = m.hidden, m.hidden, 1/math.Sqrt(float64(m.attention.head))
	m.attention.bias = c.Bool("attention_bias", false)
	act := c.OneOf("mlp_hidden_act", "relu2", Activations)
	m.mlp = mlp{hidden: m.hidden, inner: graph.Units(c.Int("intermediate_size", 21504, 1), 1), act: act, bias: c.Bool("mlp_bias", false)}
	m.readExperts(c)
	c.Refuse("sliding_window")
	c.Without("norm_eps", "rms_norm_eps", "expand", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "max_position_embeddings",
		"num_logits_to_keep", "attention_dropout", "hidden_dropout", "chunk_size", "use_mamba_kernels", "mamba_ssm_cache_dtype",
		"time_step_min", "time_step_max", "time_step_floor", "time_step_rank", "rescale_prenorm_residual", "residual_in_fp32", "mamba_proj_bias",
		"n_shared_experts", "moe_shared_expert_overlap")
	model := m.hybrid(m.block)
	model.besides = []string{"mtp."} // a head that predicts further tokens
	model.mtp = m.readMTP(c)
	return model
}

// readMTP reads the MTP head: blocks of a pattern of its own, the first of which has fc and the
// norms before, and the last one the norm after.
func (m *nemotronH) readMTP(c *Config) *mtp {
	d := c.readMTP("num_nextn_predict_layers")
	head := *m
	head.kinds = []byte("*E")
	for _, key := range []string{"mtp_hybrid_override_pattern", "mtp_layers_block_type"} {
		if _, ok := c.get(key); ok && d.said && d.layers > 0 {
			head.kinds = c.pattern(key)
		}
	}
	d.around = &head.backbone
	d.normE, d.normH, d.fc = "layers.0.enorm.weight", "layers.0.hnorm.weight", "layers.0.eh_proj.weight"
	d.last = fmt.Sprintf("layers.%d.final_layernorm.weight", len(head.kinds)-1)
	d.blocks = func(p *parts, x *graph.Value) *graph.Value {
		for i := range head.kinds {
			x = head.block(p.in("layers").in(i), i, x, nil)
		}
		return x
	}
	return d
}

// Letters of the pattern, and what later writers have for them.
var patternLetters = map[string]byte{
	"mamba": 'M', "linear_attention": 'M', "attention": '*', "full_attention": '*', "mlp": '-', "moe": 'E',
	"M": 'M', "*": '*', "-": '-', "E": 'E',
}

// pattern reads what each layer is: a string of letters, or a list of words; nil without the key.
func (c *Config) pattern(key string) (kinds []byte) {
	v, ok := c.get(key)
	if !ok {
		return nil
	}
	words, _ := v.([]any)
	if s, is := v.(string); is {
		for _, letter := range s {
			words = append(words, string(letter))
		}
	}
	for _, w := range words {
		s, _ := w.(string)
		kinds = append(kinds, patternLetters[s])
	}
	if len(kinds) == 0 || len(kinds) > MaxLayers || slices.Contains(kinds, 0) {
		c.fail(key, v, "M, *, - and E, or mamba, attention, mlp and moe, one for each layer")
		return []byte{'-'}
	}
	return kinds
}

// readPattern reads what each layer is, and how many there are: later configs have a list
// for the pattern, and need not say the number.
func (c *Config) readPattern(layers *int) (kinds []byte) {
	key := "hybrid_override_pattern"
	c.Without(key) // a config may have both
	for _, list := range []string{"layer_types", "layers_block_type"} {
		if _, there := c.get(list); there {
			key = list
		}
	}
	if kinds = c.pattern(key); kinds == nil {
		c.fail(key, nil, "there: it says what each layer is")
	} else if _, said := c.get("num_hidden_layers"); said && *layers != len(kinds) {
		c.fail("num_hidden_layers", *layers, fmt.Sprintf("%d, the layers of %s, or absent", len(kinds), key))
	}
	*layers = len(kinds)
	return kinds
}

// readNemotronMixer: the inner width is what the heads have; the gated norm is per group.
func (c *Config) readNemotronMixer(m *backbone) *ssd {
	heads, groups := c.Int("mamba_num_heads", 128, 1), c.Int("n_groups", 8, 1)
	if heads%groups != 0 {
		c.fail("n_groups", groups, "a divisor of mamba_num_heads")
	}
	mix := newSSD(m.hidden, heads, c.Int("mamba_head_dim", 64, 1), groups, c.Int("ssm_state_size", 128, 1))
	mix.width = c.Int("conv_kernel", 4, 1)
	mix.limit = c.Range("time_step_limit")
	mix.inBias = c.Bool("use_bias", false)
	mix.outBias = mix.inBias
	mix.convBias = c.Bool("use_conv_bias", true)
	mix.act = c.OneOf("mamba_hidden_act", "silu", Activations)
	mix.norm = gatedNorm{parts: groups, eps: m.eps}
	return mix
}

// readExperts: experts are MLPs of their own size, without biases.
func (m *nemotronH) readExperts(c *Config) {
	m.experts = mixture{mlp: m.mlp, experts: c.Count(c.Either("n_routed_experts", "num_local_experts"), 8, 1), top: c.Int("num_experts_per_tok", 2, 1)}
	m.experts.inner = graph.Units(c.Int("moe_intermediate_size", 7688, 1), 1)
	m.shared = m.mlp
	m.shared.inner = graph.Units(c.Int("moe_shared_expert_intermediate_size", 7688, 1), 1)
	m.latent = c.Int("moe_latent_size", 0, 1)
	m.scale = c.Scale("routed_scaling_factor")
	if m.experts.top > m.experts.experts {
		c.fail("num_experts_per_tok", m.experts.top, "at most n_routed_experts")
	}
	m.choice = c.readChoice(&m.experts)
}

// readChoice reads how a router of sigmoids chooses experts: of all, or of those of the best
// topk_group of n_group groups.
func (c *Config) readChoice(m *mixture) graph.Attrs {
	a := graph.Attrs{"top": m.top}
	if c.Bool("norm_topk_prob", true) {
		a["norm"] = 1
	}
	groups, kept := c.Int("n_group", 1, 1), c.Int("topk_group", 1, 1)
	switch {
	case kept > groups:
		c.fail("topk_group", kept, "at most n_group")
	case kept == groups:
		return a // among the experts of all groups
	case groups > 64 || m.experts%groups != 0 || m.top > m.experts/groups:
		c.fail("n_group", groups, fmt.Sprintf("at most 64 and divide the %d experts into groups of at least %d, num_experts_per_tok", m.experts, m.top))
	}
	a["groups"], a["kept"] = groups, kept
	return a
}

// block is h + mixer(norm(h)).
func (m *nemotronH) block(p *parts, i int, h, _ *graph.Value) *graph.Value {
	n := p.RMSNorm("norm", h, p.small("norm.weight", m.hidden), m.eps)
	return p.Add("h", h, m.mix(p, m.kinds[i], n))
}

func (m *nemotronH) mix(p *parts, kind byte, n *graph.Value) *graph.Value {
	switch kind {
	case '*':
		p = p.as("attention", "mixer.")
		a := *m.attention
		a.bias = a.bias && p.has("q_proj.bias") // transformers has none, whatever the key says
		return a.build(p, n)
	case '-':
		return m.mlp.plain(p.as("mlp", "mixer."), n)
	case 'E':
		return m.routed(p.as("experts", "mixer."), n)
	}
	return m.mixer.build(p.in("mixer"), n)
}

// routed is the mixture of experts, and beside it the one that all tokens go through.
func (m *nemotronH) routed(p *parts, n *graph.Value) *graph.Value {
	e, experts := &m.experts, graph.Size(m.experts.experts)
	scores := p.MatMul("router", n, p.matrix("gate.weight", experts, m.hidden))
	weights := p.SigmoidRouter("weights", scores, p.small("gate.e_score_correction_bias", experts), m.choice)
	weights = p.times("weights_scaled", weights, m.scale)
	x, width := n, m.hidden
	if m.latent > 0 {
		width = graph.Size(m.latent)
		x = p.linear("fc1_latent_proj", n, width, m.hidden, m.mlp.bias)
	}
	y := p.UngatedExperts("experts", e.act, x, weights, e.stack(p, "up_proj.weight", e.inner, width), e.stack(p, "down_proj.weight", width, e.inner), e.top)
	if m.latent > 0 {
		y = p.linear("fc2_latent_proj", y, m.hidden, width, m.mlp.bias)
	}
	return p.Add("all", y, m.shared.plain(p.in("shared_experts"), n))
}
