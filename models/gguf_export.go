package models

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/gguf"
	"github.com/krait-ml/krait/graph"
)

// Written is a tensor of a file that is made of a checkpoint: what it is called, and what
// makes its data.
type Written[T any] struct {
	Tensor T // without data
	Make   func() ([]byte, error)
}

// GGUF is a checkpoint as a GGUF file.
type GGUF struct {
	Metadata []gguf.Pair // without those of the tokenizer
	Tensors  []Written[gguf.Tensor]
	Notes    []string // what other programs make otherwise of the file, or not at all
}

// ggufKeepRates are the keys, by layer, of A_log where -exp of it, which the format has,
// does not give it back to the bit.
const ggufKeepRates = "krait.A_log."

// GGUF makes a GGUF file of the checkpoint as llama.cpp's converter does. Matrices are in
// the format t: F32, F16, BF16 or Q8_0, F16 where a row is no whole number of blocks; what
// has one axis, convolutions, A, D and routers are in F32. What the format has no key for
// is in a key of Krait's own, so that Krait runs the same model.
func (c *Checkpoint) GGUF(name string, t gguf.Type) (*GGUF, error) {
	arch, ok := ggufFamilies[c.Model.Family]
	if !ok {
		return nil, fmt.Errorf("GGUF has no architecture for the family %s; it has one for %s", c.Model.Family, strings.Join(slices.Sorted(maps.Keys(ggufFamilies)), ", "))
	}
	if _, routed := c.weights.Look(ggufRouter(c)); routed && arch == "nemotron_h" {
		arch = "nemotron_h_moe"
	}
	a := ggufArchs[arch]
	e := &ggufExport{Checkpoint: c, arch: arch, table: &a, format: t, config: c.Model.config, out: &GGUF{}, packed: map[string][]string{}}
	e.put("general.architecture", arch)
	e.put("general.type", "model")
	e.put("general.name", name)
	e.put("general.file_type", map[gguf.Type]uint32{gguf.F32: 0, gguf.F16: 1, gguf.Q8_0: 7, gguf.BF16: 32}[t])
	e.put("general.quantization_version", uint32(2))
	e.common()
	a.export(e)
	e.tensors()
	text, err := e.config.Text()
	e.put(ggufKeep, string(text))
	e.errs = append(e.errs, e.config.errs...)
	return e.out, errors.Join(append(e.errs, err)...)
}

// ggufFamilies are the architectures of families.
var ggufFamilies = map[string]string{"mamba": "mamba", "falcon_mamba": "mamba", "mamba2": "mamba2", "jamba": "jamba", "falcon_h1": "falcon-h1", "granitemoehybrid": "granitehybrid", "nemotron_h": "nemotron_h"}

// ggufRouter is the first router of the family that has an architecture of its own with
// experts.
func ggufRouter(c *Checkpoint) string {
	for _, name := range c.weights.Names() {
		if strings.HasSuffix(name, "mixer.gate.weight") {
			return name
		}
	}
	return ""
}

type ggufExport struct {
	*Checkpoint
	arch   string
	table  *ggufArch
	format gguf.Type
	config *Config
	out    *GGUF
	packed map[string][]string                   // tensors of ours that become one, by its name
	not    []string                              // names of GGUF's that the model does not take, of two for the same
	scales func(rest string, rows int) []float64 // by which rows are multiplied; nil: by nothing
	errs   []error
}

func (e *ggufExport) put(key string, v any) {
	e.out.Metadata = append(e.out.Metadata, gguf.Pair{Key: key, Value: v})
}
func (e *ggufExport) int(key string, n int) { e.put(e.arch+"."+key, uint32(n)) }
func (e *ggufExport) float(key string, v float64) {
	e.put(e.arch+"."+key, float32(v))
}
func (e *ggufExport) note(format string, v ...any) {
	e.out.Notes = append(e.out.Notes, fmt.Sprintf(format, v...))
}
func (e *ggufExport) fail(format string, v ...any) { e.errs = append(e.errs, fmt.Errorf(format, v...)) }

// shape is that of a tensor of the family in the first layer that has it; zeros where none
// has.
func (e *ggufExport) shape(rest string, axes int) []int {
	for i := range e.Model.Layers {
		if a, ok := e.weights.Look(fmt.Sprintf("%slayers.%d.%s", e.table.prefix, i, rest)); ok && len(a.Shape) >= axes {
			return a.Shape
		}
	}
	return make([]int, axes)
}

func (e *ggufExport) has(rest string) bool { return e.shape(rest, 1)[0] > 0 }

// common are the keys of all architectures.
func (e *ggufExport) common() {
	embeddings, _ := e.weights.Look(e.embeddings())
	if len(embeddings.Shape) != 2 {
		e.fail("the checkpoint has no embedding")
		return
	}
	e.int("context_length", e.config.Int("max_position_embeddings", 1<<20, 1))
	e.int("embedding_length", embeddings.Shape[1])
	e.int("block_count", e.Model.Layers)
	e.int("vocab_size", e.Model.Vocab)
	if act := e.config.OneOf("hidden_act", "silu", activations); act != "silu" {
		e.note("hidden_act is %s; other programs take silu", act)
	}
}

// embeddings is what the checkpoint calls them.
func (e *ggufExport) embeddings() string {
	if _, ok := e.weights.Look(backboneNames.older); ok {
		return backboneNames.older
	}
	return e.table.outer["token_embd.weight"]
}

func (e *ggufExport) outer() map[string]string {
	out := map[string]string{}
	for theirs, ours := range e.table.outer {
		out[ours] = theirs
	}
	out[backboneNames.older] = "token_embd.weight"
	return out
}

// selective are the keys of a selective mixer, and SSD those of the other.
func (e *ggufExport) selective(under string) {
	e.int("ssm.conv_kernel", e.shape(under+"conv1d.weight", 3)[len(e.shape(under+"conv1d.weight", 3))-1])
	inner := e.shape(under+"D", 1)[0]
	e.int("ssm.inner_size", inner)
	e.int("ssm.time_step_rank", e.shape(under+"dt_proj.weight", 2)[1])
	e.int("ssm.state_size", max(e.shape(under+"A_log", 2)[1], e.shape(under+"A", 2)[1]))
	if a, _ := e.weights.Look(e.embeddings()); len(a.Shape) == 2 && inner != 2*a.Shape[1] {
		e.note("the inner width is %d, and the model's %d; llama.cpp loads only twice the width", inner, a.Shape[1])
	}
	e.biases(under)
}

func (e *ggufExport) ssd(under string, groups, state int) {
	e.int("ssm.conv_kernel", e.shape(under+"conv1d.weight", 3)[len(e.shape(under+"conv1d.weight", 3))-1])
	e.int("ssm.inner_size", e.shape(under+"out_proj.weight", 2)[1])
	e.int("ssm.time_step_rank", e.shape(under+"D", 1)[0])
	e.int("ssm.state_size", state)
	e.int("ssm.group_count", groups)
	e.biases(under)
}

func (e *ggufExport) biases(under string) {
	if e.has(under+"in_proj.bias") || e.has(under+"out_proj.bias") {
		e.note("in_proj or out_proj has a bias, of which llama.cpp knows nothing: it does not load the file")
	}
	if !e.has(under + "conv1d.bias") {
		e.note("the convolution has no bias; llama.cpp loads only files with one")
	}
}

func exportMamba(e *ggufExport) {
	c := e.config
	e.int("feed_forward_length", 0)
	e.int("attention.head_count", 0)
	e.selective("mixer.")
	eps := c.Positive("layer_norm_epsilon", 1e-5)
	e.float("attention.layer_norm_rms_epsilon", eps)
	e.put("mamba.ssm.dt_b_c_rms", e.Model.Family == "falcon_mamba")
	if e.Model.Family == "falcon_mamba" && c.Positive("mixer_rms_eps", 1e-6) != eps {
		e.note("mixer_rms_eps is not layer_norm_epsilon; other programs take that for both")
	}
}

func exportMamba2(e *ggufExport) {
	c := e.config
	e.int("feed_forward_length", 0)
	e.int("attention.head_count", 0)
	groups := c.Int("n_groups", 8, 1)
	e.ssd("mixer.", groups, c.Int("state_size", 128, 1))
	e.float("attention.layer_norm_rms_epsilon", c.Positive("layer_norm_epsilon", 1e-5))
	if c.Int(normGroups, 1, 1) != groups {
		e.note("the gated norm is over all channels, as Hugging Face's code has it; other programs norm each of the %d groups, as the original code did", groups)
	}
	e.limits("time_step_limit")
}

// limits notes what clamps dt.
func (e *ggufExport) limits(key string) {
	if l := e.config.Range(key); l != [2]float64{0, math.Inf(1)} {
		e.note("%s is %v; other programs do not clamp dt", key, l)
	}
}

func (e *ggufExport) attention(kv []uint32) {
	e.int("attention.head_count", e.config.Int("num_attention_heads", 32, 1))
	if kv != nil {
		list := make([]int32, len(kv))
		for i, n := range kv {
			list[i] = int32(n)
		}
		e.put(e.arch+".attention.head_count_kv", list)
	}
}

// groups is how many heads of keys each layer has: none where there is no attention.
func (e *ggufExport) groups(rest string, heads int) []uint32 {
	out := make([]uint32, e.Model.Layers)
	for i := range out {
		if _, ok := e.weights.Look(fmt.Sprintf("%slayers.%d.%s", e.table.prefix, i, rest)); ok {
			out[i] = uint32(heads)
		}
	}
	return out
}

func exportJamba(e *ggufExport) {
	c := e.config
	e.int("feed_forward_length", c.Int("intermediate_size", 14336, 1))
	e.attention(e.groups("self_attn.k_proj.weight", c.Int("num_key_value_heads", 8, 1)))
	e.selective("mamba.")
	e.float("attention.layer_norm_rms_epsilon", c.Positive("rms_norm_eps", 1e-6))
	e.int("expert_count", c.Count("num_experts", 16, 1))
	e.int("expert_used_count", c.Int("num_experts_per_tok", 2, 1))
}

func exportFalconH1(e *ggufExport) {
	c := e.config
	hidden := c.Int("hidden_size", 4096, 1)
	heads := c.Int("num_attention_heads", 32, 1)
	e.int("feed_forward_length", c.Int("intermediate_size", 14336, 1))
	e.int("attention.head_count", heads)
	e.int("attention.head_count_kv", c.Int("num_key_value_heads", 8, 1))
	size := c.Int("head_dim", hidden/heads, 1)
	e.int("attention.key_length", size)
	e.int("attention.value_length", size)
	theta, _ := c.rotary(100000, 1)
	e.float("rope.freq_base", theta)
	e.ssd("mamba.", c.Int("mamba_n_groups", 1, 1), c.Int("mamba_d_state", 256, 1))
	e.float("attention.layer_norm_rms_epsilon", c.Positive("rms_norm_eps", 1e-5))
	if e.has("mamba.norm.weight") && c.Bool("mamba_norm_before_gate", true) {
		e.note("the norm is before the gate; other programs have it after")
	}
	if e.has("self_attn.o_proj.bias") || e.has("feed_forward.down_proj.bias") {
		e.note("there are biases whose factors llama.cpp's converter leaves out; they are multiplied here")
	}
	e.scales = falconFactors(c)
}

func exportGranite(e *ggufExport) {
	c := e.config
	experts := c.Count("num_local_experts", 8, 0)
	e.not = []string{"ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"}
	shared := c.Int("shared_intermediate_size", 1024, 1)
	if experts > 0 {
		e.not = []string{"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"}
		e.int("feed_forward_length", c.Int("intermediate_size", 11008, 1))
		e.int("expert_shared_feed_forward_length", shared)
		e.int("expert_count", experts)
		e.int("expert_used_count", c.Int("num_experts_per_tok", 2, 0))
	} else {
		e.int("feed_forward_length", shared)
	}
	heads := c.Int("num_attention_heads", 32, 1)
	e.heads(heads, c.Int("num_key_value_heads", heads, 1), "self_attn.")
	e.float("attention.layer_norm_rms_epsilon", c.Positive("rms_norm_eps", 1e-6))
	e.float("attention.scale", c.Scale("attention_multiplier"))
	e.float("embedding_scale", c.Scale("embedding_multiplier"))
	e.float("residual_scale", c.Scale("residual_multiplier"))
	e.float("logit_scale", c.Positive("logits_scaling", 1))
	turned := c.OneOf("position_embedding_type", "nope", map[string]string{"rope": "rope", "nope": "nope"}) == "rope"
	e.put(e.arch+".rope.scaling.finetuned", turned)
	if turned {
		theta, _ := c.rotary(10000, 1)
		e.float("rope.freq_base", theta)
	}
	groups := c.Int("mamba_n_groups", 1, 1)
	e.ssd("mamba.", groups, c.Int("mamba_d_state", 256, 1))
	if c.Int(normGroups, 1, 1) != groups {
		e.note("the gated norm is over all channels, as Hugging Face's code has it; other programs norm each of the %d groups", groups)
	}
	e.limits("time_step_limit")
}

// heads are the keys of attention where some layers have it, and what turns its rows.
func (e *ggufExport) heads(queries, groups int, under string) {
	kv := e.groups(under+"k_proj.weight", groups)
	e.attention(kv)
	e.table.heads = func(layer int) [2]int { return [2]int{queries, int(kv[layer])} }
}

func exportNemotron(e *ggufExport) {
	c := e.config
	e.heads(c.Int("num_attention_heads", 32, 1), c.Int("num_key_value_heads", 8, 1), "mixer.")
	head := c.Int(c.either("head_dim", "attention_head_dim"), 128, 1)
	e.int("attention.key_length", head)
	e.int("attention.value_length", head)
	eps := c.Positive("layer_norm_epsilon", 1e-5)
	e.float("attention.layer_norm_rms_epsilon", eps)
	e.float("attention.layer_norm_epsilon", eps)
	e.ssd("mixer.", c.Int("n_groups", 8, 1), c.Int("ssm_state_size", 128, 1))
	e.limits("time_step_limit")
	inner := make([]int32, e.Model.Layers)
	for i := range inner {
		for rest, axis := range map[string]int{"mixer.up_proj.weight": 0, "mixer.experts.0.up_proj.weight": 0} {
			if a, ok := e.weights.Look(fmt.Sprintf("backbone.layers.%d.%s", i, rest)); ok {
				inner[i] = int32(a.Shape[axis])
			}
		}
	}
	e.put(e.arch+".feed_forward_length", inner)
	if act := c.OneOf("mlp_hidden_act", "relu2", activations); act != activations["relu2"] {
		e.note("mlp_hidden_act is %s; other programs take relu2", act)
	}
	if e.arch == "nemotron_h" {
		return
	}
	e.int("expert_count", e.shape("mixer.gate.weight", 2)[0])
	e.int("expert_used_count", c.Int("num_experts_per_tok", 2, 1))
	e.int("expert_feed_forward_length", e.shape("mixer.experts.0.up_proj.weight", 2)[0])
	e.int("expert_shared_feed_forward_length", e.shape("mixer.shared_experts.up_proj.weight", 2)[0])
	e.int("expert_shared_count", 1)
	e.put(e.arch+".expert_weights_norm", c.Bool("norm_topk_prob", true))
	e.float("expert_weights_scale", c.Scale("routed_scaling_factor"))
	e.int("expert_group_count", 1)
	if n := c.Int("moe_latent_size", 0, 1); n > 0 {
		e.int("moe_latent_size", n)
	}
}

// falconFactors are the factors of the config that go into the matrices, for each row.
func falconFactors(c *Config) func(rest string, rows int) []float64 {
	in, out := c.Scale("attention_in_multiplier"), c.Scale("attention_out_multiplier")
	ssmIn, ssmOut, key := c.Scale("ssm_in_multiplier"), c.Scale("ssm_out_multiplier"), c.Scale("key_multiplier")
	fields, mlp := c.Scales("ssm_multipliers", 5), c.Scales("mlp_multipliers", 2)
	group := c.Int("mamba_n_groups", 1, 1) * c.Int("mamba_d_state", 256, 1)
	heads := c.Int("mamba_n_heads", 128, 1)
	whole := map[string]float64{
		"token_embd.weight": c.Scale("embedding_multiplier"), "output.weight": c.Scale("lm_head_multiplier"),
		"attn_q.weight": in, "attn_k.weight": in * key, "attn_v.weight": in, "attn_k.bias": key, "attn_output.weight": out, "attn_output.bias": out,
		"ssm_out.weight": ssmOut, "ssm_out.bias": ssmOut, "ffn_gate.weight": mlp[0], "ffn_gate.bias": mlp[0], "ffn_down.weight": mlp[1], "ffn_down.bias": mlp[1],
	}
	return func(rest string, rows int) []float64 {
		by := slices.Repeat([]float64{1}, rows)
		switch rest {
		case "ssm_in.weight", "ssm_in.bias":
			inner := (rows - 2*group - heads) / 2
			for i := range by {
				field := 0
				for _, end := range []int{inner, 2 * inner, 2*inner + group, 2*inner + 2*group} {
					if i >= end {
						field++
					}
				}
				if by[i] = fields[field]; rest == "ssm_in.weight" {
					by[i] *= ssmIn
				}
			}
		default:
			f, ok := whole[rest]
			if !ok || f == 1 {
				return nil
			}
			for i := range by {
				by[i] = f
			}
		}
		if slices.Max(by) == 1 && slices.Min(by) == 1 {
			return nil
		}
		return by
	}
}

// tensors lists what is written, in the order of layers.
func (e *ggufExport) tensors() {
	outer := e.outer()
	reverse := map[string]ggufName{}
	for theirs, n := range e.table.blocks {
		if slices.Contains(e.not, theirs) {
			continue
		}
		if old, ok := reverse[n.name]; !ok || len(theirs) < len(old.name) && n.how != ggufJoined {
			reverse[n.name] = ggufName{theirs, n.how}
		}
	}
	for _, name := range e.weights.Names() {
		if e.Copied(name) || slices.Contains(e.Unused, name) {
			continue
		}
		if theirs, ok := outer[name]; ok {
			e.tensor(theirs, ggufPlain, []string{name})
			continue
		}
		layer, rest, ok := layerOf(strings.TrimPrefix(name, e.table.prefix))
		if strings.HasSuffix(rest, ".A_log") {
			rest = strings.TrimSuffix(rest, "_log")
		}
		if n, known := reverse[rest]; ok && known {
			e.tensor(fmt.Sprintf("blk.%d.%s", layer, n.name), n.how, []string{name})
			continue
		}
		if under, packed := strings.CutSuffix(rest, "input_linear.weight"); ok && packed {
			for i, half := range []string{"gate.weight", "up.weight"} {
				e.half(fmt.Sprintf("blk.%d.%s", layer, reverse[under+half].name), name, i)
			}
			continue
		}
		expert := expertIn(rest)
		n, known := reverse[strings.Replace(rest, "."+expert+".", ".#.", 1)]
		if !ok || !known || expert == "" {
			e.fail("tensor %s has no place in GGUF's %s", name, e.arch)
			continue
		}
		into := fmt.Sprintf("blk.%d.%s", layer, n.name)
		e.packed[into] = append(e.packed[into], name)
	}
	for into, names := range e.packed {
		slices.SortFunc(names, func(a, b string) int {
			x, _ := strconv.Atoi(expertIn(a))
			y, _ := strconv.Atoi(expertIn(b))
			return cmp.Compare(x, y)
		})
		e.tensor(into, ggufExperts, names)
	}
	e.untie()
	slices.SortFunc(e.out.Tensors, func(a, b Written[gguf.Tensor]) int {
		return cmp.Or(cmp.Compare(ggufOrder(a.Tensor.Name), ggufOrder(b.Tensor.Name)), cmp.Compare(a.Tensor.Name, b.Tensor.Name))
	})
}

// untie writes a head of its own where it is the embedding times another factor.
func (e *ggufExport) untie() {
	if e.scales == nil || slices.ContainsFunc(e.out.Tensors, func(w Written[gguf.Tensor]) bool { return w.Tensor.Name == "output.weight" }) {
		return
	}
	a, b := e.scales("token_embd.weight", 1), e.scales("output.weight", 1)
	if !slices.Equal(a, b) {
		e.tensor("output.weight", ggufPlain, []string{e.embeddings()})
	}
}

func ggufOrder(name string) int {
	if layer, _, ok := ggufLayer(name); ok {
		return layer + 1
	}
	if name == "token_embd.weight" {
		return 0
	}
	return math.MaxInt
}

// layerOf takes layers.N. apart.
func layerOf(name string) (layer int, rest string, ok bool) {
	number, rest, ok := strings.Cut(strings.TrimPrefix(name, "layers."), ".")
	layer, err := strconv.Atoi(number)
	return layer, rest, ok && err == nil && strings.HasPrefix(name, "layers.")
}

// expertIn is the number of an expert in a name; empty where there is none.
func expertIn(name string) string {
	_, rest, ok := strings.Cut(name, "experts.")
	number, _, _ := strings.Cut(rest, ".")
	if _, err := strconv.Atoi(number); !ok || err != nil {
		return ""
	}
	return number
}

// tensor adds one of the file, made of some of the checkpoint.
func (e *ggufExport) tensor(name string, how ggufHow, from []string) {
	a, _ := e.weights.Look(from[0])
	shape := slices.Clone(a.Shape)
	switch how {
	case ggufConv:
		shape = []int{shape[0], shape[len(shape)-1]}
	case ggufFlat:
		if groups := 1; strings.HasSuffix(name, "ssm_norm.weight") {
			for _, p := range e.out.Metadata {
				if n, ok := p.Value.(uint32); ok && p.Key == e.arch+".ssm.group_count" {
					groups = int(n)
				}
			}
			shape = []int{groups, shape[0] / groups}
		} else {
			shape = []int{shape[0], 1}
		}
	case ggufExperts:
		shape = append([]int{len(from)}, shape...)
	}
	t := gguf.Tensor{Name: name, Type: e.typeOf(name, how, shape), Shape: shape}
	layer, rest, ok := ggufLayer(name)
	if !ok {
		rest = name
	}
	e.out.Tensors = append(e.out.Tensors, Written[gguf.Tensor]{t, func() ([]byte, error) { return e.data(layer, rest, t, from) }})
	if strings.HasSuffix(from[0], ".A_log") && e.format != gguf.Q8_0 {
		e.keepRates(layer, from[0])
	}
}

// half adds the first or the second half of the rows of a matrix, or of each of several.
func (e *ggufExport) half(name, from string, which int) {
	a, _ := e.weights.Look(from)
	shape := slices.Clone(a.Shape)
	at := len(shape) - 2
	shape[at] /= 2
	t := gguf.Tensor{Name: name, Type: e.typeOf(name, ggufPlain, shape), Shape: shape}
	e.out.Tensors = append(e.out.Tensors, Written[gguf.Tensor]{t, func() ([]byte, error) {
		x, err := e.Tensor(from)
		if err != nil {
			return nil, err
		}
		n := 2 // halves
		if at > 0 {
			n *= shape[0]
		}
		var out []byte
		line := len(x.Data) / n
		for i := which; i < n; i += 2 {
			out = append(out, x.Data[i*line:][:line]...)
		}
		return converted(graph.Array{DType: x.DType, Shape: shape, Data: out, From: x.From}, t.Type)
	}})
}

// typeOf is the format of a tensor.
func (e *ggufExport) typeOf(name string, how ggufHow, shape []int) gguf.Type {
	switch {
	case len(shape) < 2, how == ggufConv, how == ggufFlat, how == ggufExact, !strings.HasSuffix(name, ".weight"):
		return gguf.F32
	case e.format == gguf.Q8_0 && shape[len(shape)-1]%graph.BlockLen != 0:
		return gguf.F16
	}
	return e.format
}

// data makes a tensor of the file.
func (e *ggufExport) data(layer int, rest string, t gguf.Tensor, from []string) ([]byte, error) {
	var out []byte
	for _, name := range from {
		a, err := e.Tensor(name)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, ".A_log") {
			a = graph.ArrayOf(rates(a.Float32s()), a.Shape...)
		}
		if e.scales != nil {
			if by := e.scales(rest, a.Shape[0]); by != nil {
				a = scaled(a, by)
			}
		}
		b, err := converted(a, t.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if n := e.table.headsOf(layer, rest, a.Shape[0]); n > 0 {
			b = turn(b, a.Shape[0], n, false)
		}
		out = append(out, b...)
	}
	return out, nil
}

// converted is an array in a format of GGUF.
func converted(a graph.Array, t gguf.Type) ([]byte, error) {
	to := ggufFormats[t]
	b, err := a.Convert(to)
	if err != nil {
		return nil, err
	}
	if to == graph.F16 && a.DType != graph.F16 {
		for i, v := range a.Float32s() {
			if math.Abs(float64(v)) >= 65520 && !math.IsInf(float64(v), 0) {
				return nil, fmt.Errorf("element %d is %g, which f16 cannot hold; choose another type", i, v)
			}
		}
	}
	return b.Data, nil
}

// scaled multiplies rows.
func scaled(a graph.Array, by []float64) graph.Array {
	x := a.Float32s()
	line := len(x) / max(1, len(by))
	for i := range x {
		x[i] *= float32(by[i/line])
	}
	return graph.ArrayOf(x, a.Shape...)
}

// rates are A of A_log.
func rates(logs []float32) []float32 {
	out := make([]float32, len(logs))
	for i, x := range logs {
		out[i] = float32(-min(math.Exp(float64(x)), math.MaxFloat32))
	}
	return out
}

// logs are A_log of A, as near as they can be told.
func logs(rates []float32) []float32 {
	out := make([]float32, len(rates))
	for i, a := range rates {
		out[i] = float32(math.Log(-float64(a)))
	}
	return out
}

// keepRates writes A_log where A does not give it back.
func (e *ggufExport) keepRates(layer int, name string) {
	a, err := e.Tensor(name)
	if err != nil {
		e.errs = append(e.errs, err)
		return
	}
	if x := a.Float32s(); !slices.Equal(logs(rates(x)), x) {
		e.put(ggufKeepRates+strconv.Itoa(layer), x)
	}
}

// keptRates is A_log as the metadata have it, where it is that of A; nil where not.
func keptRates(f *gguf.File, name string, a []float32) []float32 {
	for part := range strings.SplitSeq(name, ".") {
		v, _ := f.Value(ggufKeepRates + part)
		if x, ok := v.([]float32); ok && slices.Equal(rates(x), a) {
			return x
		}
	}
	return nil
}

// bytesOf are values in f32.
func bytesOf(x []float32) []byte {
	out := make([]byte, 0, 4*len(x))
	for _, v := range x {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}
