package checkpoint

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/goldens"
)

// ggufOf is a golden as a GGUF file in memory.
func ggufOf(t testing.TB, name string) ([]gguf.Pair, []gguf.Tensor) {
	t.Helper()
	c, err := Open(filepath.Join("../testdata/golden", name))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, err := c.GGUF(name, Mixtures["f32"])
	if err != nil {
		t.Fatal(err)
	}
	var tensors []gguf.Tensor
	for _, x := range g.Tensors {
		if x.Tensor.Data, err = x.Make(); err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, x.Tensor)
	}
	return g.Metadata, tensors
}

// openGGUF opens what is written, as far as the checks of all tensors.
func openGGUF(metadata []gguf.Pair, tensors []gguf.Tensor) error {
	var b bytes.Buffer
	if err := gguf.Write(&b, metadata, tensors); err != nil {
		return err
	}
	f, err := gguf.Parse("x.gguf", b.Bytes())
	if err != nil {
		return err
	}
	m, w, err := readGGUF(f)
	if err != nil {
		return err
	}
	c, err := newCheckpoint(m, w)
	if err == nil {
		err = c.Close()
	}
	return err
}

// TestGGUFHostile: metadata of any values, each in place of a good one, and tensors that
// are gone or of another shape, are errors or another model, and no panic.
func TestGGUFHostile(t *testing.T) {
	kept := []gguf.Pair{{Key: "general.architecture", Value: "mamba"}, {Key: ggufKeep, Value: "{"}}
	if err := openGGUF(kept, nil); !strings.Contains(fmt.Sprint(err), "the key krait.config is damaged") {
		t.Errorf("a cut config gives %v", err)
	}
	values := []any{uint32(0), uint32(1), uint32(3), uint32(math.MaxUint32), int32(-1), uint64(1) << 40, float32(0), float32(math.NaN()), "", true, []int32{}, []int32{-1, 1 << 30}, []string{"x"}, nil}
	for _, name := range []string{"mamba-a", "mamba2-g4", "jamba", "falcon-h1", "granite-hybrid", "nemotron-h-moe", "lfm2-moe", "qwen3-5-moe"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, tensors := ggufOf(t, name)
			if err := openGGUF(good, tensors); err != nil {
				t.Fatal(err)
			}
			refused, tried := 0, 0
			for i := range good {
				for _, kept := range []bool{true, false} { // with the config that convert keeps, and as others write
					for j, v := range values {
						if !goldens.All() && (i+j)%16 > 0 {
							continue
						}
						var metadata []gguf.Pair
						for k, p := range good {
							if k == i {
								p.Value = v
							}
							if p.Value != nil && (kept || p.Key != ggufKeep) {
								metadata = append(metadata, p)
							}
						}
						tried++
						if err := openGGUF(metadata, tensors); err != nil {
							refused++
						}
					}
				}
			}
			if refused < tried/8 {
				t.Errorf("%d of %d are refused", refused, tried)
			}
			for i, x := range tensors {
				if !goldens.All() && i%8 > 0 {
					continue
				}
				rest := append(append([]gguf.Tensor{}, tensors[:i]...), tensors[i+1:]...)
				if err := openGGUF(good, rest); err == nil && x.Name != "output.weight" && !strings.HasSuffix(x.Name, ".bias") {
					t.Errorf("without %s it is no error", x.Name)
				}
				x.Shape, x.Data = []int{7}, make([]byte, 28)
				if err := openGGUF(good, append(rest, x)); err == nil {
					t.Errorf("with %s of shape [7] it is no error", x.Name)
				}
			}
		})
	}
}

// TestGGUFErrors: errors say which key or tensor, and what it must be.
func TestGGUFErrors(t *testing.T) {
	good, tensors := ggufOf(t, "jamba")
	for want, change := range map[string]gguf.Pair{
		`general.architecture is "llama"; Krait knows falcon-h1, granitehybrid, jamba, lfm2, lfm2moe, mamba, mamba2, nemotron_h`: {Key: "general.architecture", Value: "llama"},
		"jamba.block_count: is 1000000; the most that Krait reads is 4096":                                                       {Key: "jamba.block_count", Value: uint32(1000000)},
		"jamba.ssm.conv_kernel: is 0; it must be a whole number of at least 1":                                                   {Key: "jamba.ssm.conv_kernel", Value: uint32(0)},
		"jamba.attention.head_count_kv: has 1 numbers, and there are 4 layers":                                                   {Key: "jamba.attention.head_count_kv", Value: []int32{1}},
		"jamba.attention.head_count_kv: layers have 1 and 2":                                                                     {Key: "jamba.attention.head_count_kv", Value: []int32{1, 2, 0, 0}},
		"the layers in which attention.head_count_kv is not 0 are [0 1 3]":                                                       {Key: "jamba.attention.head_count_kv", Value: []int32{2, 2, 0, 2}},
		"jamba.attention.layer_norm_rms_epsilon: the metadata lack it, or it is no float":                                        {Key: "jamba.attention.layer_norm_rms_epsilon", Value: true},
		"jamba.rope.scaling.type: is yarn, which Krait does not support":                                                         {Key: "jamba.rope.scaling.type", Value: "yarn"},
	} {
		var metadata []gguf.Pair
		for _, p := range good {
			if p.Key != change.Key {
				metadata = append(metadata, p)
			}
		}
		if err := openGGUF(append(metadata, change), tensors); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestGGUFQKV: queries, keys and values in one tensor are taken apart.
func TestGGUFQKV(t *testing.T) {
	for _, name := range []string{"jamba", "granite-hybrid"} {
		good, tensors := ggufOf(t, name)
		var joined []gguf.Tensor
		for _, x := range tensors {
			switch {
			case strings.Contains(x.Name, "attn_q.weight"):
				rows, data := 0, []byte(nil)
				for _, part := range []string{"attn_q.", "attn_k.", "attn_v."} {
					for _, y := range tensors {
						if y.Name == strings.Replace(x.Name, "attn_q.", part, 1) {
							data, rows = append(data, y.Data...), rows+y.Shape[0]
						}
					}
				}
				joined = append(joined, gguf.Tensor{Name: strings.Replace(x.Name, "attn_q", "attn_qkv", 1), Shape: []int{rows, x.Shape[1]}, Data: data})
			case strings.Contains(x.Name, "attn_k.weight"), strings.Contains(x.Name, "attn_v.weight"):
			default:
				joined = append(joined, x)
			}
		}
		one, two := arrays(t, good, tensors), arrays(t, good, joined)
		if len(one) < 20 || len(one) != len(two) {
			t.Fatalf("%s: %d tensors and %d", name, len(one), len(two))
		}
		for tensor, data := range one {
			if !bytes.Equal(data, two[tensor]) {
				t.Errorf("%s: %s differs", name, tensor)
			}
		}
	}
}

func arrays(t *testing.T, metadata []gguf.Pair, tensors []gguf.Tensor) map[string][]byte {
	t.Helper()
	var b bytes.Buffer
	if err := gguf.Write(&b, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("x", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	_, w, err := readGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, name := range w.Names() {
		a, err := w.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprint(name, a.Shape)] = a.Data
	}
	return out
}

// TestGGUFAt: a folder means its GGUF file, if it has one and no config.
func TestGGUFAt(t *testing.T) {
	dir := t.TempDir()
	put := func(name string) {
		t.Helper()
		if err := files.Write(filepath.Join(dir, name), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name string) {
		t.Helper()
		if name != "" {
			name = filepath.Join(dir, name)
		}
		if got, err := GGUFAt(dir); err != nil || got != name {
			t.Errorf("got %q, %v, want %q", got, err, name)
		}
	}
	want("")
	put("b-00002-of-00002.gguf")
	put("mmproj-x.gguf")
	want("")
	put("b-00001-of-00002.gguf")
	want("b-00001-of-00002.gguf")
	put("c.gguf")
	if _, err := GGUFAt(dir); err == nil || !strings.Contains(err.Error(), "there are 2 GGUF files, such as b-00001-of-00002.gguf and c.gguf; name the one that is meant") {
		t.Error(err)
	}
	put("config.json")
	want("")
}

// TestGGUFEnds: what ends a text and what ends a turn both end it.
func TestGGUFEnds(t *testing.T) {
	good, tensors := ggufOf(t, "mamba-a")
	metadata := []gguf.Pair{{Key: "tokenizer.ggml.bos_token_id", Value: uint32(1)}, {Key: "tokenizer.ggml.eos_token_id", Value: uint32(2)}, {Key: "tokenizer.ggml.eot_token_id", Value: uint32(7)}}
	for _, p := range good {
		if p.Key != ggufKeep {
			metadata = append(metadata, p)
		}
	}
	var b bytes.Buffer
	if err := gguf.Write(&b, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("x", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := readGGUF(f)
	if err != nil || fmt.Sprint(m.BOS, m.EOS) != "[1] [2 7]" {
		t.Errorf("%v, %v, %v", m.BOS, m.EOS, err)
	}
}

// TestGGUFTurned: rows of queries and keys are in llama.cpp's order in the file: those that
// its rotary embedding turns together lie beside each other.
func TestGGUFTurned(t *testing.T) {
	c, err := Open("../testdata/golden/granite-hybrid-dense")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, tensors := ggufOf(t, "granite-hybrid-dense")
	heads := map[string]int{"q": c.Model.Config().Int("num_attention_heads", 0, 1), "k": c.Model.Config().Int("num_key_value_heads", 0, 1)}
	compared := 0
	for _, x := range tensors {
		layer, rest, _ := ggufLayer(x.Name)
		for which, n := range heads {
			if rest != "attn_"+which+".weight" {
				continue
			}
			ours, err := c.Tensor(fmt.Sprintf("model.layers.%d.self_attn.%s_proj.weight", layer, which))
			if err != nil {
				t.Fatal(err)
			}
			line, size := len(x.Data)/x.Shape[0], x.Shape[0]/n
			for r := range x.Shape[0] {
				head, i := r/size, r%size
				from := head*size + i%2*size/2 + i/2
				if !bytes.Equal(x.Data[r*line:][:line], ours.Data[from*line:][:line]) {
					t.Fatalf("%s: row %d is not row %d of the folder's", x.Name, r, from)
				}
			}
			compared++
		}
	}
	if compared < 2 {
		t.Errorf("%d matrices compared", compared)
	}
}

// TestGGUFWide: what chooses between experts, and what has one axis, is not taken in
// blocks, whatever the file has.
func TestGGUFWide(t *testing.T) {
	good, tensors := ggufOf(t, "jamba")
	for i, x := range tensors {
		if strings.HasSuffix(x.Name, "ffn_gate_inp.weight") || strings.HasSuffix(x.Name, "ffn_norm.weight") {
			x.Type = gguf.Q8_0
			size, err := x.Type.Size(x.Shape)
			if err != nil {
				t.Fatal(err)
			}
			x.Data = make([]byte, size)
			tensors[i] = x
		}
	}
	var b bytes.Buffer
	if err := gguf.Write(&b, good, tensors); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("x", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	_, w, err := readGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range w.Names() {
		if !strings.HasSuffix(name, "router.weight") && !strings.HasSuffix(name, "pre_ff_layernorm.weight") {
			continue
		}
		a, err := w.Tensor(name)
		if look, _ := w.Look(name); err != nil || a.DType != graph.F32 || look.DType != graph.F32 || len(a.Data) != 4*a.Elems() {
			t.Errorf("%s: %s with %d bytes, %v", name, a.DType, len(a.Data), err)
		}
		seen++
	}
	if seen < 5 {
		t.Errorf("%d tensors", seen)
	}
}

// TestGGUFPairs: gate and up in different formats are the one matrix that the family has of
// them, to the bit, for the model and in a folder; also those of experts.
func TestGGUFPairs(t *testing.T) {
	good, tensors := ggufOf(t, "granite-hybrid")
	kinds := []gguf.Type{gguf.F32, gguf.F16, gguf.BF16}
	for _, gate := range kinds {
		for _, up := range kinds {
			var mixed, same []gguf.Tensor // as they are, and the same numbers in f32
			pairs := 0
			for _, x := range tensors {
				y, kind := x, gguf.F32
				switch {
				case strings.Contains(x.Name, "ffn_gate") && !strings.Contains(x.Name, "inp"):
					kind = gate
				case strings.Contains(x.Name, "ffn_up"):
					kind = up
				}
				if kind != gguf.F32 {
					x.Type, x.Data = kind, inFormat(t, x, kind)
					values, err := x.Float32s()
					if err != nil {
						t.Fatal(err)
					}
					y.Data = bytesOf(values)
					pairs++
				}
				mixed, same = append(mixed, x), append(same, y)
			}
			if gate != up && pairs < 4 {
				t.Fatalf("%d tensors are not in f32", pairs)
			}
			got, want := held(t, good, mixed), held(t, good, same)
			if len(got) < 20 || len(got) != len(want) {
				t.Fatalf("%d arrays, and %d", len(got), len(want))
			}
			for name, values := range want {
				if !slices.Equal(got[name], values) {
					t.Errorf("%s and %s: %s differs", gate, up, name)
				}
			}
		}
	}
}

func inFormat(t *testing.T, x gguf.Tensor, to gguf.Type) []byte {
	t.Helper()
	values, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	made, err := converted(graph.ArrayOf(values, x.Shape...), to.DType(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return made.Data
}

// reread is the checkpoint of a GGUF file of tensors.
func reread(t *testing.T, metadata []gguf.Pair, tensors []gguf.Tensor) *Checkpoint {
	t.Helper()
	var b bytes.Buffer
	if err := gguf.Write(&b, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("x.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	m, w, err := readGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCheckpoint(m, w)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// held are the values of all parameters of a GGUF file's model, and of all tensors of its
// folder.
func held(t *testing.T, metadata []gguf.Pair, tensors []gguf.Tensor) map[string][]float32 {
	t.Helper()
	c := reread(t, metadata, tensors)
	out := map[string][]float32{}
	for _, n := range c.Graph.Leaves("param") {
		v := n.Results[0]
		a, err := n.Storage.Load(v.Name, v.Type, 1, 0, c.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		out[v.Name] = a.Float32s()
	}
	folder, err := c.Folder(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range folder.Tensors {
		data, err := x.Make()
		if err != nil {
			t.Fatal(err)
		}
		a := graph.Array{DType: floats[x.Tensor.DType], Shape: x.Tensor.Shape, Data: data}
		out["folder "+x.Tensor.Name] = a.Float32s()
	}
	return out
}

// TestGGUFKeys: a key that a row both writes and reads is the one of llama.cpp: two wrong
// directions would cancel out in a round trip.
func TestGGUFKeys(t *testing.T) {
	for _, c := range []struct{ golden, arch, keys string }{
		{"mamba-a", "mamba", "ssm.inner_size=intermediate_size ssm.state_size=state_size ssm.time_step_rank=time_step_rank"},
		{"mamba2-g4", "mamba2", "ssm.time_step_rank=num_heads ssm.group_count=n_groups ssm.state_size=state_size attention.layer_norm_rms_epsilon=layer_norm_epsilon"},
		{"jamba", "jamba", "feed_forward_length=intermediate_size attention.head_count=num_attention_heads ssm.time_step_rank=mamba_dt_rank"},
		{"falcon-h1", "falcon-h1", "attention.head_count=num_attention_heads attention.head_count_kv=num_key_value_heads feed_forward_length=intermediate_size ssm.inner_size=mamba_d_ssm"},
		{"granite-hybrid", "granitehybrid", "attention.scale=attention_multiplier embedding_scale=embedding_multiplier residual_scale=residual_multiplier logit_scale=logits_scaling ssm.state_size=mamba_d_state"},
		{"nemotron-h", "nemotron_h", "attention.key_length=head_dim ssm.time_step_rank=mamba_num_heads ssm.group_count=n_groups ssm.state_size=ssm_state_size"},
		{"lfm2", "lfm2", "shortconv.l_cache=conv_L_cache attention.layer_norm_rms_epsilon=norm_eps attention.head_count=num_attention_heads"},
		{"lfm2-moe", "lfm2moe", "leading_dense_block_count=num_dense_layers expert_count=num_experts expert_used_count=num_experts_per_tok expert_feed_forward_length=moe_intermediate_size"},
		{"qwen3-5", "qwen35", "ssm.group_count=linear_num_key_heads ssm.time_step_rank=linear_num_value_heads ssm.state_size=linear_key_head_dim ssm.conv_kernel=linear_conv_kernel_dim attention.key_length=head_dim feed_forward_length=intermediate_size"},
		{"qwen3-next", "qwen3next", "expert_shared_feed_forward_length=shared_expert_intermediate_size attention.head_count_kv=num_key_value_heads"},
	} {
		m, _, err := Describe(filepath.Join("../testdata/golden", c.golden))
		if err != nil {
			t.Fatal(err)
		}
		metadata, _ := ggufOf(t, c.golden)
		for pair := range strings.FieldsSeq(c.keys) {
			key, config, _ := strings.Cut(pair, "=")
			i := slices.IndexFunc(metadata, func(p gguf.Pair) bool { return p.Key == c.arch+"."+key })
			want, ok := m.Config().Value(config).(float64)
			if i < 0 || !ok || fmt.Sprint(metadata[i].Value) != fmt.Sprint(float32(want)) {
				t.Errorf("%s: %s is not %s %v of the config", c.golden, key, config, want)
			}
		}
	}
}
