package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/graph"
)

// withMTP makes a checkpoint like a golden with an MTP head.
func withMTP(t *testing.T, golden string) *Checkpoint {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../testdata/golden", golden, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	in := config
	if nested, ok := config["text_config"].(map[string]any); ok {
		in = nested
	}
	in["mtp_num_hidden_layers"], in["mlp_only_layers"] = 1, []int{}
	if text, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), golden)
	if _, err := synth.Write(t.Context(), dir, synth.Options{Config: text, From: golden, DType: "f32"}); err != nil {
		t.Fatal(err)
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// nextnNames are llama.cpp's names of the tensors of a head; # counts experts.
var nextnNames = map[string]string{
	"mtp.pre_fc_norm_embedding.weight": "nextn.enorm", "mtp.pre_fc_norm_hidden.weight": "nextn.hnorm", "mtp.fc.weight": "nextn.eh_proj", "mtp.norm.weight": "nextn.shared_head_norm",
	"mtp.layers.0.input_layernorm.weight": "attn_norm", "mtp.layers.0.post_attention_layernorm.weight": "post_attention_norm",
	"mtp.layers.0.self_attn.q_proj.weight": "attn_q", "mtp.layers.0.self_attn.k_proj.weight": "attn_k", "mtp.layers.0.self_attn.v_proj.weight": "attn_v",
	"mtp.layers.0.self_attn.o_proj.weight": "attn_output", "mtp.layers.0.self_attn.q_norm.weight": "attn_q_norm", "mtp.layers.0.self_attn.k_norm.weight": "attn_k_norm",
	"mtp.layers.0.mlp.gate_proj.weight": "ffn_gate", "mtp.layers.0.mlp.up_proj.weight": "ffn_up", "mtp.layers.0.mlp.down_proj.weight": "ffn_down",
	"mtp.layers.0.mlp.gate.weight": "ffn_gate_inp", "mtp.layers.0.mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp",
	"mtp.layers.0.mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp", "mtp.layers.0.mlp.shared_expert.up_proj.weight": "ffn_up_shexp", "mtp.layers.0.mlp.shared_expert.down_proj.weight": "ffn_down_shexp",
	"mtp.layers.0.mlp.experts.#.gate_proj.weight": "ffn_gate_exps", "mtp.layers.0.mlp.experts.#.up_proj.weight": "ffn_up_exps", "mtp.layers.0.mlp.experts.#.down_proj.weight": "ffn_down_exps",
}

// nextn returns the block of a head as llama.cpp's converter writes it: norms plus 1, experts
// packed.
func nextn(t *testing.T, c *Checkpoint, block int) (out []gguf.Tensor) {
	t.Helper()
	for ours, theirs := range nextnNames {
		var x []float32
		var shape []int
		for expert := 0; ; expert++ {
			name := strings.Replace(ours, "#", fmt.Sprint(expert), 1)
			if _, ok := c.weights.Look(name); !ok {
				break
			}
			a, err := c.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			x, shape = append(x, a.Float32s()...), a.Shape
			if name == ours {
				break
			}
			shape = append([]int{expert + 1}, shape...)
		}
		if x == nil {
			continue
		}
		if strings.HasSuffix(theirs, "norm") {
			for i := range x {
				x[i]++
			}
		}
		a := graph.ArrayOf(x, shape...)
		out = append(out, gguf.Tensor{Name: fmt.Sprintf("blk.%d.%s.weight", block, theirs), Type: gguf.F32, Shape: a.Shape, Data: a.Data})
	}
	return out
}

// TestMTPInGGUF: the head is written as the block after the model's, and read from it; embeddings
// of its own are refused where the head is asked for.
func TestMTPInGGUF(t *testing.T) {
	for _, golden := range []string{"qwen3-next", "qwen3-5"} {
		c := withMTP(t, golden)
		g, err := c.GGUF(golden, Mixtures["f32"])
		if err != nil {
			t.Fatal(err)
		}
		metadata := slices.DeleteFunc(g.Metadata, func(p gguf.Pair) bool { return p.Key == ggufKeep })
		var tensors, without []gguf.Tensor
		written := map[string]gguf.Tensor{}
		for _, x := range g.Tensors {
			if x.Tensor.Data, err = x.Make(); err != nil {
				t.Fatal(err)
			}
			tensors = append(tensors, x.Tensor)
			if layer, _, ok := ggufLayer(x.Tensor.Name); ok && layer == c.Model.Layers {
				written[x.Tensor.Name] = x.Tensor
			} else {
				without = append(without, x.Tensor)
			}
		}
		head := nextn(t, c, c.Model.Layers)
		for _, want := range head {
			if got := written[want.Name]; got.Type != want.Type || !slices.Equal(got.Shape, want.Shape) || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("%s: %s is not what llama.cpp's converter writes", golden, want.Name)
			}
		}
		if len(written) != len(head) {
			t.Errorf("%s: the head has %d tensors, want %d", golden, len(written), len(head))
		}
		open := func(tensors []gguf.Tensor) *Checkpoint {
			got := reread(t, metadata, tensors)
			if len(got.Unused) > 0 {
				t.Errorf("%s: unused %v", golden, got.Unused)
			}
			return got
		}
		got := open(tensors)
		mtp, err := got.MTP()
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for _, n := range mtp.Leaves("param") {
			for _, p := range n.Storage.Pieces {
				if !strings.HasPrefix(p.Tensor, "mtp.") {
					continue
				}
				a, err := got.Tensor(p.Tensor)
				b, err2 := c.Tensor(p.Tensor)
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				read := a.Float32s()
				for i, want := range b.Float32s() {
					if x := read[i]; math.Abs(float64(x-want)) > 1e-6 {
						t.Fatalf("%s: %s %d is %v, want %v", golden, p.Tensor, i, x, want)
					}
				}
				compared++
			}
		}
		if compared < 15 || len(got.LeftOut) > 0 {
			t.Errorf("%s: %d tensors are compared, left out %v", golden, compared, got.LeftOut)
		}
		own := tensors[slices.IndexFunc(tensors, func(x gguf.Tensor) bool { return x.Name == "token_embd.weight" })]
		own.Name = fmt.Sprintf("blk.%d.nextn.embed_tokens.weight", c.Model.Layers)
		if _, err := open(append(slices.Clone(tensors), own)).MTP(); err == nil || !strings.Contains(err.Error(), "mtp_use_dedicated_embeddings is true") {
			t.Errorf("%s: %v", golden, err)
		}
		if _, err := open(without).MTP(); err == nil || !strings.Contains(err.Error(), "no MTP head") {
			t.Errorf("%s: %v", golden, err)
		}
	}
}
