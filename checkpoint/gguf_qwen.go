package checkpoint

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// ggufHeads are the heads of a gated delta net. llama.cpp tiles those of values: the first of every
// head of keys, then the second of each; Hugging Face has those of a head of keys side by side.
type ggufHeads struct{ keys, values, key, value int }

// ggufTiles are the values of a tensor whose order differs: in each of lines the runs from at on,
// of width bytes each, one for each head of values.
type ggufTiles struct{ lines, at, width int }

// tiles says where a tensor of a block with rows of line bytes has the heads of values; width is 0
// where it has none, or where the orders agree.
func (h ggufHeads) tiles(rest string, rows, line int) (t ggufTiles) {
	if h.keys == 0 || h.values == h.keys {
		return t
	}
	switch rest {
	case "attn_qkv.weight", "ssm_conv1d.weight":
		t = ggufTiles{1, 2 * h.keys * h.key * line, h.value * line}
	case "attn_gate.weight":
		t = ggufTiles{1, 0, h.value * line}
	case "ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias":
		t = ggufTiles{1, 0, line}
	case "ssm_out.weight":
		t = ggufTiles{rows, 0, line / h.values}
	}
	if t.lines*(t.at+h.values*t.width) != rows*line {
		return ggufTiles{} // of another shape, which is an error where it is read
	}
	return t
}

// order puts the heads of values of data into llama.cpp's order, or, if back is set, into Hugging
// Face's.
func (h ggufHeads) order(data []byte, t ggufTiles, back bool) []byte {
	out := slices.Clone(data)
	per := h.values / h.keys
	for l := range t.lines {
		at := l*len(data)/t.lines + t.at
		for i := range h.values {
			ours := at + i*t.width
			theirs := at + (i%per*h.keys+i/per)*t.width
			if back {
				ours, theirs = theirs, ours
			}
			copy(out[theirs:][:t.width], data[ours:])
		}
	}
	return out
}

// plus is an array and a number added to each element, in f32.
func plus(a graph.Array, by float32) graph.Array {
	x := a.Float32s()
	for i := range x {
		x[i] += by
	}
	return graph.ArrayOf(x, a.Shape...)
}

var (
	ggufQwenAttention = append(slices.Clone(ggufAttention[:4]), [][3]string{{"attn_q_norm.weight", "q_norm.weight", "centred"}, {"attn_k_norm.weight", "k_norm.weight", "centred"}}...)
	ggufQwenDelta     = [][3]string{
		{"attn_qkv.weight", "in_proj_qkv.weight"}, {"attn_gate.weight", "in_proj_z.weight"}, {"ssm_beta.weight", "in_proj_b.weight"}, {"ssm_alpha.weight", "in_proj_a.weight"},
		{"ssm_ba.weight", "in_proj_ba.weight"}, {"ssm_conv1d.weight", "conv1d.weight", "conv"}, {"ssm_dt.bias", "dt_bias"}, {"ssm_a", "A"},
		{"ssm_norm.weight", "norm.weight"}, {"ssm_out.weight", "out_proj.weight"},
	}
	ggufQwenExperts = [][3]string{
		{"ffn_gate_inp.weight", "gate.weight", "exact"}, {"ffn_gate_inp_shexp.weight", "shared_expert_gate.weight", "row"},
		{"ffn_gate_exps.weight", "experts.#.gate_proj.weight", "experts"}, {"ffn_up_exps.weight", "experts.#.up_proj.weight", "experts"},
		{"ffn_down_exps.weight", "experts.#.down_proj.weight", "experts"},
		{"ffn_gate_shexp.weight", "shared_expert.gate_proj.weight"}, {"ffn_up_shexp.weight", "shared_expert.up_proj.weight"}, {"ffn_down_shexp.weight", "shared_expert.down_proj.weight"},
	}
	ggufQwenMTP = ggufBlocks([][3]string{
		{"nextn.enorm.weight", "pre_fc_norm_embedding.weight", "centred"}, {"nextn.hnorm.weight", "pre_fc_norm_hidden.weight", "centred"},
		{"nextn.eh_proj.weight", "fc.weight"}, {"nextn.shared_head_norm.weight", "norm.weight", "centred"},
	})
	ggufQwenBlocks = ggufBlocks([][3]string{{"attn_norm.weight", "input_layernorm.weight", "centred"}, {"post_attention_norm.weight", "post_attention_layernorm.weight", "centred"}},
		under("self_attn.", ggufQwenAttention), under("linear_attn.", ggufQwenDelta), under("mlp.", ggufMLP), under("mlp.", ggufQwenExperts))
)

// ggufQwen are the keys of a family of gated delta nets; experts and dense say which networks it
// has.
func ggufQwen(family string, experts, dense bool) []ggufKey {
	keys := []ggufKey{
		modelType(family), epsilon("rms_norm_eps", 1e-6), uniform("attention.head_count", "num_attention_heads", 16), {qwenGroups, exportQwenGroups},
		headSize(func(*models.Config) (string, int) { return "head_dim", 256 }), {qwenDelta, exportQwenDelta}, {qwenLayers, exportQwenLayers}, {qwenRotary, exportQwenRotary},
	}
	if dense {
		keys = append(keys, ggufKey{qwenDense, exportQwenDense})
	}
	if experts {
		keys = append(keys, ggufKey{qwenExperts, exportQwenExperts})
	}
	return keys
}

func qwenGroups(g *ggufConfig) {
	g.set("num_key_value_heads", max(1, g.same("attention.head_count_kv")))
}

func exportQwenGroups(e *ggufExport) {
	e.int("attention.head_count_kv", e.rows("self_attn.k_proj.weight")/max(1, e.rows("self_attn.k_norm.weight")))
}

// rows is the first axis of a tensor of the family in the first layer that has it.
func (e *ggufExport) rows(rest string) int { return e.shape(rest, 1)[0] }

func qwenDelta(g *ggufConfig) {
	h := &g.table.delta
	h.keys, h.values, h.key = g.int("ssm.group_count", 1), g.int("ssm.time_step_rank", 1), g.int("ssm.state_size", 1)
	h.value = g.divided("ssm.inner_size", g.int("ssm.inner_size", 1), h.values)
	if h.values%h.keys != 0 {
		g.wrong(g.arch+".ssm.time_step_rank", fmt.Sprintf("is %d, which is no multiple of ssm.group_count %d", h.values, h.keys))
		return
	}
	g.set("linear_num_key_heads", h.keys)
	g.set("linear_num_value_heads", h.values)
	g.set("linear_key_head_dim", h.key)
	g.set("linear_value_head_dim", h.value)
	g.set("linear_conv_kernel_dim", g.int("ssm.conv_kernel", 1))
	if !g.table.tiled {
		*h = ggufHeads{}
	}
}

func exportQwenDelta(e *ggufExport) {
	h := headsOf(e.config)
	if e.table.tiled {
		e.table.delta = h
	}
	e.kernel("linear_attn.")
	e.int("ssm.inner_size", h.values*h.value)
	e.int("ssm.state_size", h.key)
	e.int("ssm.time_step_rank", h.values)
	e.int("ssm.group_count", h.keys)
	if h.key != h.value {
		e.note("heads of keys have %d channels and those of values %d; llama.cpp loads only heads of one size", h.key, h.value)
	}
}

// qwenLayers: a layer attends if it has queries.
func qwenLayers(g *ggufConfig) {
	kinds := []any{}
	for i := range int(g.Value("num_hidden_layers").(float64)) {
		kinds = append(kinds, map[bool]string{true: "full_attention", false: "linear_attention"}[g.has(fmt.Sprintf("blk.%d.attn_q.weight", i))])
	}
	g.Set("layer_types", kinds)
}

func exportQwenLayers(e *ggufExport) {
	period := e.config.Int("full_attention_interval", 4, 1)
	e.int("full_attention_interval", period)
	for i, n := range e.groups("self_attn.k_proj.weight", 1) {
		if ((i+1)%period == 0) != (n > 0) {
			e.note("not every %d-th layer attends, which is what llama.cpp takes", period)
			return
		}
	}
}

func qwenRotary(g *ggufConfig) {
	head := g.int("attention.key_length", 1)
	g.Set("rope_parameters", map[string]any{"rope_type": "default", "rope_theta": g.float("rope.freq_base"),
		"partial_rotary_factor": float64(g.optional("rope.dimension_count", head)) / float64(head)})
	g.Delete("rope_theta")
	g.Delete("partial_rotary_factor")
}

func exportQwenRotary(e *ggufExport) {
	theta, part := e.config.Rotary(10000, 0.25)
	turned := int(float64(e.rows("self_attn.k_norm.weight")) * part)
	e.float("rope.freq_base", theta)
	e.int("rope.dimension_count", turned)
	if e.table.tiled { // models that know positions in pictures, of which text has one
		third := (turned/2 + 2) / 3
		e.put(e.arch+".rope.dimension_sections", []int32{int32(third), int32(min(third, turned/2-third)), int32(max(0, turned/2-2*third)), 0})
	}
}

func qwenDense(g *ggufConfig) {
	g.set("intermediate_size", max(1, g.rows("ffn_gate.weight", 0), g.optional("feed_forward_length", 1)))
}

func exportQwenDense(e *ggufExport) {
	e.int("feed_forward_length", e.config.Int("intermediate_size", 5632, 1))
}

// routed sets the keys of a mixture of experts that several families share.
func (g *ggufConfig) routed() {
	g.set("num_experts", g.int("expert_count", 1))
	g.set("num_experts_per_tok", g.int("expert_used_count", 1))
	g.set("moe_intermediate_size", max(1, g.rows("ffn_gate_exps.weight", 1)))
}

func qwenExperts(g *ggufConfig) {
	g.routed()
	g.set("shared_expert_intermediate_size", max(1, g.rows("ffn_gate_shexp.weight", 0)))
	plain := []any{}
	for i := range int(g.Value("num_hidden_layers").(float64)) {
		if !g.has(fmt.Sprintf("blk.%d.ffn_gate_inp.weight", i)) {
			plain = append(plain, float64(i))
		}
	}
	g.Set("mlp_only_layers", plain)
	g.set("decoder_sparse_step", 1)
}

func exportQwenExperts(e *ggufExport) {
	c := e.config
	e.int("expert_count", e.rows("mlp.gate.weight"))
	e.int("expert_used_count", c.Int("num_experts_per_tok", 10, 1))
	e.int("expert_feed_forward_length", c.Int("moe_intermediate_size", 512, 1))
	e.int("expert_shared_feed_forward_length", c.Int("shared_expert_intermediate_size", 512, 1))
	if !c.Bool("norm_topk_prob", true) {
		e.note("norm_topk_prob is false; other programs divide by the sum of the weights")
	}
	for i := range e.Model.Layers {
		if _, ok := e.weights.Look(fmt.Sprintf("%slayers.%d.mlp.gate.weight", e.table.prefix, i)); !ok {
			e.note("layer %d has no experts; llama.cpp loads only models with experts in all layers", i)
			return
		}
	}
}

// headsOf are the heads that a config describes.
func headsOf(c *models.Config) ggufHeads {
	return ggufHeads{c.Int("linear_num_key_heads", 16, 1), c.Int("linear_num_value_heads", 32, 1), c.Int("linear_key_head_dim", 128, 1), c.Int("linear_value_head_dim", 128, 1)}
}

// fields are where a head of keys has its q, k, v and z in in_proj_qkvz: first rows and how many.
func (h ggufHeads) fields() [4][2]int {
	per := h.values / h.keys * h.value
	return [4][2]int{{0, h.key}, {h.key, h.key}, {2 * h.key, per}, {2*h.key + per, per}}
}

// ungrouped writes in_proj_qkvz, which has its rows by heads of keys, as two tensors.
func (e *ggufExport) ungrouped(layer int, from string) {
	h := headsOf(e.config)
	a, _ := e.weights.Look(from)
	if want := 2*h.keys*h.key + 2*h.values*h.value; len(a.Shape) != 2 || a.Shape[0] != want {
		e.fail("%s has shape %v, expected %d rows", from, a.Shape, want)
		return
	}
	put := func(name string, rows [][2]int) {
		n := 0
		for _, r := range rows {
			n += h.keys * r[1]
		}
		t := gguf.Tensor{Name: fmt.Sprintf("blk.%d.%s", layer, name), Shape: []int{n, a.Shape[1]}}
		t.Type = e.typeOf(t.Name, ggufPlain, t.Shape)
		e.out.Tensors = append(e.out.Tensors, Written[gguf.Tensor]{t, []string{from}, func() ([]byte, error) {
			x, err := e.Tensor(from)
			if err != nil {
				return nil, err
			}
			line := len(x.Data) / a.Shape[0]
			var data []byte
			for _, r := range rows {
				for i := range h.keys {
					data = append(data, x.Data[(i*a.Shape[0]/h.keys+r[0])*line:][:r[1]*line]...)
				}
			}
			return e.converted(graph.Array{DType: x.DType, Shape: t.Shape, Data: data, From: x.From}, t, 0)
		}})
	}
	all := h.fields()
	put("attn_qkv.weight", all[:3])
	put("attn_gate.weight", all[3:])
}

// grouped is the inverse of ungrouped: in_proj_qkvz of the mixer, of in_proj_qkv and in_proj_z.
func (c *Checkpoint) grouped(pieces *Pieces, mixer string, a graph.Array) Written[safetensors.Tensor] {
	if z, _ := c.weights.Look(mixer + "in_proj_z.weight"); z.DType != a.DType {
		a.DType = graph.F32
	}
	qkv, z := c.written(pieces, mixer+"in_proj_qkv.weight", a), c.written(pieces, mixer+"in_proj_z.weight", a)
	h, x := headsOf(c.Model.Config()), qkv
	x.Tensor.Name = mixer + "in_proj_qkvz.weight"
	x.Tensor.Shape = []int{2*h.keys*h.key + 2*h.values*h.value, a.Shape[1]}
	x.Make = func() ([]byte, error) {
		p, err := qkv.Make()
		if err != nil {
			return nil, err
		}
		q, err := z.Make()
		if err != nil {
			return nil, err
		}
		all, line := append(p, q...), (len(p)+len(q))/x.Tensor.Shape[0]
		var out []byte
		for i := range h.keys {
			at := 0 // where the field begins
			for _, f := range h.fields() {
				out = append(out, all[(at+i*f[1])*line:][:f[1]*line]...)
				at += h.keys * f[1]
			}
		}
		return out, nil
	}
	return x
}
