package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/models"
)

// ggufArch is an architecture of GGUF: which family it is, by which names and in which
// shapes llama.cpp's converter writes the tensors, and what the metadata say.
type ggufArch struct {
	prefix string              // of the family's tensors: backbone. or model.
	outer  map[string]string   // tensors around the blocks
	blocks map[string]ggufName // of a block, by what follows blk.N.
	keys   []ggufKey

	turns bool // the rows of queries and keys stand in llama.cpp's order of the rotary embedding

	tiled   bool      // heads of values of a delta rule stand in llama.cpp's order
	delta   ggufHeads // these heads
	centred bool      // output_norm is of the centred norms
	kernel  string    // the key for the width of the convolution; empty: ssm.conv_kernel

	mtp    map[string]ggufName // of the block of an MTP head, beside those of any block; nil: no head is read
	layers int                 // of the model: the block of that number is an MTP head's

	width int                    // of the convolution
	heads func(layer int) [2]int // of queries and keys
}

// ggufName is what a tensor of a block is called after the family's layers.N., and how
// it lies there.
type ggufName struct {
	name string
	how  ggufHow
}

type ggufHow int

const (
	ggufPlain   ggufHow = iota
	ggufConv            // [channels width] is [channels 1 width]
	ggufFlat            // [n 1], or [groups n/groups], is [n]
	ggufExperts         // [experts …] is a tensor for each, at the # of its name
	ggufExact           // decides something
	ggufJoined          // of queries, keys and values one after another
	ggufCentred         // 1 more than it is
	ggufRow             // [n] or [1 n] is [1 n], and decides something
)

// blocks makes a table: pairs of names, of which .* stands for .weight and .bias.
func ggufBlocks(lists ...[][3]string) map[string]ggufName {
	hows := map[string]ggufHow{"": ggufPlain, "conv": ggufConv, "flat": ggufFlat, "experts": ggufExperts, "exact": ggufExact, "joined": ggufJoined, "centred": ggufCentred, "row": ggufRow}
	out := map[string]ggufName{}
	for _, list := range lists {
		for _, row := range list {
			theirs, ours, both := strings.TrimSuffix(row[0], ".*"), strings.TrimSuffix(row[1], ".*"), strings.HasSuffix(row[0], ".*")
			if !both {
				out[theirs] = ggufName{ours, hows[row[2]]}
				continue
			}
			for _, end := range []string{".weight", ".bias"} {
				out[theirs+end] = ggufName{ours + end, hows[row[2]]}
			}
		}
	}
	return out
}

// under is a list with what is before all names of ours.
func under(prefix string, list [][3]string) [][3]string {
	out := slices.Clone(list)
	for i := range out {
		out[i][1] = prefix + out[i][1]
	}
	return out
}

var (
	ggufSelective = [][3]string{
		{"ssm_in.*", "in_proj.*"}, {"ssm_conv1d.weight", "conv1d.weight", "conv"}, {"ssm_conv1d.bias", "conv1d.bias"},
		{"ssm_x.*", "x_proj.*"}, {"ssm_dt.*", "dt_proj.*"}, {"ssm_a", "A"}, {"ssm_d", "D"}, {"ssm_out.*", "out_proj.*"},
		{"ssm_dt_norm.weight", "dt_layernorm.weight"}, {"ssm_b_norm.weight", "b_layernorm.weight"}, {"ssm_c_norm.weight", "c_layernorm.weight"},
	}
	ggufSSD = [][3]string{
		{"ssm_in.*", "in_proj.*"}, {"ssm_conv1d.weight", "conv1d.weight", "conv"}, {"ssm_conv1d.bias", "conv1d.bias"},
		{"ssm_dt.bias", "dt_bias"}, {"ssm_a", "A", "flat"}, {"ssm_d", "D", "flat"}, {"ssm_norm.weight", "norm.weight", "flat"}, {"ssm_out.*", "out_proj.*"},
	}
	ggufAttention = [][3]string{
		{"attn_q.*", "q_proj.*"}, {"attn_k.*", "k_proj.*"}, {"attn_v.*", "v_proj.*"}, {"attn_output.*", "o_proj.*"}, {"attn_qkv.*", "#_proj.*", "joined"},
	}
	ggufMLP = [][3]string{{"ffn_gate.*", "gate_proj.*"}, {"ffn_up.*", "up_proj.*"}, {"ffn_down.*", "down_proj.*"}}
)

// outerNames are the tensors around the blocks; a head is lm_head.
func outerNames(n models.TensorNames) map[string]string {
	return map[string]string{"token_embd.weight": n.Prefix + n.Embeddings, "output_norm.weight": n.Prefix + n.Norm, "output.weight": "lm_head.weight"}
}

// ggufArchs are the architectures, by general.architecture.
var ggufArchs = map[string]ggufArch{
	"mamba": {
		prefix: "backbone.", outer: outerNames(models.BackboneNames), keys: ggufMamba,
		blocks: ggufBlocks([][3]string{{"attn_norm.weight", "norm.weight"}}, under("mixer.", ggufSelective)),
	},
	"mamba2": {
		prefix: "backbone.", outer: outerNames(models.BackboneNames), keys: ggufMamba2,
		blocks: ggufBlocks([][3]string{{"attn_norm.weight", "norm.weight"}}, under("mixer.", ggufSSD)),
	},
	"jamba": {
		prefix: "model.", outer: outerNames(models.ModelNames), keys: ggufJamba,
		blocks: ggufBlocks([][3]string{
			{"attn_norm.weight", "input_layernorm.weight"}, {"ffn_norm.weight", "pre_ff_layernorm.weight"}, {"ffn_gate_inp.weight", "feed_forward.router.weight", "exact"},
			{"ffn_gate_exps.weight", "feed_forward.experts.#.gate_proj.weight", "experts"}, {"ffn_up_exps.weight", "feed_forward.experts.#.up_proj.weight", "experts"},
			{"ffn_down_exps.weight", "feed_forward.experts.#.down_proj.weight", "experts"},
		}, under("mamba.", ggufSelective), under("self_attn.", ggufAttention), under("feed_forward.", ggufMLP)),
	},
	"falcon-h1": {
		prefix: "model.", outer: outerNames(models.ModelNames), keys: ggufFalconH1,
		blocks: ggufBlocks([][3]string{
			{"attn_norm.weight", "input_layernorm.weight"}, {"ffn_norm", "pre_ff_layernorm.weight"}, {"ffn_norm.weight", "pre_ff_layernorm.weight"},
		}, under("mamba.", ggufSSD), under("self_attn.", ggufAttention), under("feed_forward.", ggufMLP)),
	},
	"granitehybrid": {
		prefix: "model.", outer: outerNames(models.GraniteNames), keys: ggufGranite, turns: true,
		blocks: ggufBlocks([][3]string{
			{"attn_norm.weight", "input_layernorm.weight"}, {"ffn_norm.weight", "post_attention_layernorm.weight"},
			{"ffn_gate.weight", "shared_mlp.gate.weight"}, {"ffn_up.weight", "shared_mlp.up.weight"}, {"ffn_down.weight", "shared_mlp.output_linear.weight"},
			{"ffn_gate_shexp.weight", "shared_mlp.gate.weight"}, {"ffn_up_shexp.weight", "shared_mlp.up.weight"}, {"ffn_down_shexp.weight", "shared_mlp.output_linear.weight"},
			{"ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight", "exact"}, {"ffn_gate_exps.weight", "block_sparse_moe.gate.weight"},
			{"ffn_up_exps.weight", "block_sparse_moe.up.weight"}, {"ffn_down_exps.weight", "block_sparse_moe.output_linear.weight"},
		}, under("mamba.", ggufSSD), under("self_attn.", ggufAttention)),
	},
	"lfm2":    lfm2Arch("lfm2"),
	"lfm2moe": lfm2Arch("lfm2_moe", ggufKey{lfm2Experts, exportLFM2Experts}),

	"qwen3next": {prefix: "model.", outer: outerNames(models.QwenNames), centred: true, mtp: ggufQwenMTP, blocks: ggufQwenBlocks, keys: ggufQwen("qwen3_next", true, true)},
	"qwen35":    {prefix: "model.", outer: outerNames(models.QwenNames), centred: true, tiled: true, mtp: ggufQwenMTP, blocks: ggufQwenBlocks, keys: ggufQwen("qwen3_5_text", false, true)},
	"qwen35moe": {prefix: "model.", outer: outerNames(models.QwenNames), centred: true, tiled: true, mtp: ggufQwenMTP, blocks: ggufQwenBlocks, keys: ggufQwen("qwen3_5_moe_text", true, false)},

	"nemotron_h":     nemotronArch,
	"nemotron_h_moe": nemotronArch,
}

var nemotronArch = ggufArch{
	prefix: "backbone.", outer: outerNames(models.BackboneNames), keys: ggufNemotron, turns: true,
	blocks: ggufBlocks([][3]string{
		{"attn_norm.weight", "norm.weight"}, {"ffn_up.*", "mixer.up_proj.*"}, {"ffn_down.*", "mixer.down_proj.*"},
		{"ffn_gate_inp.weight", "mixer.gate.weight", "exact"}, {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias"},
		{"ffn_up_exps.weight", "mixer.experts.#.up_proj.weight", "experts"}, {"ffn_down_exps.weight", "mixer.experts.#.down_proj.weight", "experts"},
		{"ffn_up_shexp.weight", "mixer.shared_experts.up_proj.weight"}, {"ffn_down_shexp.weight", "mixer.shared_experts.down_proj.weight"},
		{"ffn_latent_down.weight", "mixer.fc1_latent_proj.weight"}, {"ffn_latent_up.weight", "mixer.fc2_latent_proj.weight"},
	}, under("mixer.", ggufSSD), under("mixer.", ggufAttention)),
}

// headsOf is how many heads the rows of a projection of queries or keys are, where they
// are turned; 0 where not. Heads of odd size have no halves to turn.
func (a *ggufArch) headsOf(layer int, rest string, rows int) int {
	which, _, _ := strings.Cut(rest, ".")
	i, ok := map[string]int{"attn_q": 0, "attn_k": 1}[which]
	if !a.turns || !ok {
		return 0
	}
	if n := a.heads(layer)[i]; n > 0 && rows%(2*n) == 0 {
		return n
	}
	return 0
}

// parts are the tensors of the model that a tensor of the file holds: none where
// the family has none of it.
func (a *ggufArch) parts(t gguf.Tensor) (map[string]ggufPart, error) {
	if name, ok := a.outer[t.Name]; ok {
		return map[string]ggufPart{name: {Tensor: t, shape: t.Shape, centred: a.centred && t.Name == "output_norm.weight"}}, nil
	}
	layer, rest, ok := ggufLayer(t.Name)
	if n, is := a.mtp[rest]; is && layer == a.layers {
		return map[string]ggufPart{"mtp." + n.name: {Tensor: t, shape: t.Shape, centred: n.how == ggufCentred}}, nil
	}
	n, known := a.blocks[rest]
	if !ok || !known {
		return map[string]ggufPart{t.Name: {Tensor: t, shape: t.Shape}}, nil // unused: the user gets a warning
	}
	name := fmt.Sprintf("%slayers.%d.%s", a.prefix, layer, n.name)
	if a.mtp != nil && layer >= a.layers {
		name = fmt.Sprintf("mtp.layers.%d.%s", layer-a.layers, n.name)
	}
	p := ggufPart{Tensor: t, shape: t.Shape, exact: n.how == ggufExact || n.how == ggufRow, centred: n.how == ggufCentred}
	switch n.how {
	case ggufRow:
		p.shape = []int{1, t.Elems()}
	case ggufConv:
		p.shape = []int{t.Elems() / a.width, 1, a.width}
		if t.Elems()%a.width != 0 {
			return nil, fmt.Errorf("has shape %v, and ssm.conv_kernel is %d", t.Shape, a.width)
		}
	case ggufFlat:
		p.shape = []int{t.Elems()}
	case ggufExperts:
		if len(t.Shape) != 3 {
			return nil, fmt.Errorf("has shape %v; experts have three axes", t.Shape)
		}
		return p.split(name, t.Shape[1:], slices.Repeat([]int{1}, t.Shape[0]), numbersTo(t.Shape[0])), nil
	case ggufJoined:
		h := a.heads(layer)
		all := h[0] + 2*h[1]
		if all == 0 || t.Shape[0]%all != 0 {
			return nil, fmt.Errorf("has %d rows, which are not those of %d heads of queries and %d of keys and values", t.Shape[0], h[0], h[1])
		}
		size := t.Shape[0] / all
		out := p.split(name, nil, []int{h[0] * size, h[1] * size, h[1] * size}, []string{"q", "k", "v"})
		for i, which := range []string{"q", "k"} {
			if ours := strings.Replace(name, "#", which, 1); a.turns && size%2 == 0 && h[i] > 0 {
				q := out[ours]
				q.turned = h[i]
				out[ours] = q
			}
		}
		return out, nil
	}
	if len(t.Shape) > 0 {
		p.turned = a.headsOf(layer, rest, t.Shape[0])
		if a.delta.tiles(rest, t.Shape[0], t.Elems()/max(1, t.Shape[0])*a.delta.values).width > 0 { // of lines that heads divide
			p.rest, p.delta = rest, a.delta
			p.exact = p.exact || rest == "ssm_out.weight" && t.Type.DType().Quantized() && a.delta.value%t.Type.DType().Format().Elems != 0
		}
	}
	return map[string]ggufPart{name: p}, nil
}

// split cuts a tensor along its first axis; # of the name is which it is. Shape is that of
// a part, nil where only its first axis differs.
func (p ggufPart) split(name string, shape, rows []int, which []string) map[string]ggufPart {
	out := map[string]ggufPart{}
	line, at := len(p.Data)/max(1, p.Tensor.Shape[0]), 0
	for i, n := range rows {
		q := p
		q.Shape = append([]int{n}, p.Shape[1:]...)
		q.Data = p.Data[at*line : (at+n)*line : (at+n)*line]
		if q.shape = shape; shape == nil {
			q.shape = q.Shape
		}
		out[strings.Replace(name, "#", which[i], 1)] = q
		at += n
	}
	return out
}

func numbersTo(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}

// ggufLayer takes blk.N. apart.
func ggufLayer(name string) (layer int, rest string, ok bool) {
	number, rest, ok := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	layer, err := strconv.Atoi(number)
	return layer, rest, ok && err == nil && strings.HasPrefix(name, "blk.")
}
