package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/models"
)

// TestGraphs: the graph of every golden checkpoint checks, parses back from its
// text, and finds every tensor of the files and no other.
func TestGraphs(t *testing.T) {
	for _, dir := range goldens.Folders(t, "..") {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if len(c.Unused) > 0 {
				t.Errorf("unused tensors %v", c.Unused)
			}
			if len(c.Model.Unknown) > 0 {
				t.Errorf("unknown keys %v", c.Model.Unknown)
			}
			text := graph.Print(c.Graph)
			again, err := graph.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if !graph.Equal(c.Graph, again) || graph.Check(again) != nil {
				t.Errorf("not the same after\n%s", text)
			}
			kinds := map[string]bool{}
			for _, b := range again.Blocks() {
				kinds[graph.BlockKey(again, b)] = true
			}
			if len(kinds) == len(again.Blocks()) {
				t.Errorf("no two of the %d blocks are the same", len(kinds))
			}
		})
	}
}

// written writes a small one with a config, whose tensors edit may change.
func written(t *testing.T, config string, edit func(map[string]safetensors.Tensor)) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := models.ParseConfig("config.json", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	m, err := models.Read(c)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph(nil)
	if err != nil {
		t.Fatal(err)
	}
	tensors := tensorsOf(g)
	edit(tensors)
	var list []safetensors.Tensor
	for name, x := range tensors {
		x.Name = name
		list = append(list, x)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), list, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

const minimal = `{"model_type": "mamba", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1`

func TestOpenRefuses(t *testing.T) {
	const inProj = "backbone.layers.0.mixer.in_proj.weight"
	for name, c := range map[string]struct {
		edit func(map[string]safetensors.Tensor)
		want string
	}{
		"missing tensor": {func(m map[string]safetensors.Tensor) { delete(m, inProj) }, "tensor " + inProj + " is missing from the checkpoint"},
		"wrong shape": {func(m map[string]safetensors.Tensor) {
			x := m[inProj]
			x.Shape = []int{8, 32}
			m[inProj] = x
		}, "model.safetensors: tensor " + inProj + " has shape [8 32], expected [32 8]"},
		"wrong shape of the filter": {func(m map[string]safetensors.Tensor) {
			x := m["backbone.layers.0.mixer.conv1d.weight"]
			x.Shape = []int{16, 4}
			m["backbone.layers.0.mixer.conv1d.weight"] = x
		}, "has shape [16 4], expected [16 1 4]"},
		"integers": {func(m map[string]safetensors.Tensor) {
			x := m[inProj]
			x.DType = "I32"
			m[inProj] = x
		}, "has dtype I32; Krait reads F32, BF16, F16 and F64"},
		"everything missing": {func(m map[string]safetensors.Tensor) { clear(m) }, "and 7 more tensors"},
	} {
		if _, err := Open(written(t, minimal+"}", c.edit)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
	broken := written(t, minimal+"}", func(map[string]safetensors.Tensor) {})
	if err := os.Truncate(filepath.Join(broken, "model.safetensors"), 100); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Describe(broken); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("broken weights: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		"/nowhere/at/all":    "there is no such folder",
		"/nowhere/at/a.gguf": "there is no such file",
		file:                 "is a file; a model is a folder",
		t.TempDir():          "there is no config.json",
	} {
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", dir, err, want)
		}
	}
}

func TestOlderNamesAndUnusedTensors(t *testing.T) {
	dir := written(t, minimal+"}", func(m map[string]safetensors.Tensor) {
		x := m["backbone.embeddings.weight"]
		delete(m, x.Name)
		x.Name = "backbone.embedding.weight"
		m[x.Name] = x
		x.Name = "lm_head.weight" // a copy of the tied head
		m[x.Name] = x
		m["extra"] = safetensors.Tensor{Name: "extra", DType: "F32", Shape: []int{1}, Data: make([]byte, 4)}
	})
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Unused) != 1 || c.Unused[0] != "extra" {
		t.Errorf("unused: %v", c.Unused)
	}
}

// TestSharedBlocks: the parameters of a shared block are found under any layer
// that uses it; copies must be the same.
func TestSharedBlocks(t *testing.T) {
	config := `{"model_type": "zamba", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 6, "mamba_d_state": 3, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"]}`
	const norm = ".shared_transf.input_layernorm.weight"
	for _, c := range []struct {
		name string
		edit func(tensors map[string]safetensors.Tensor)
		want string
	}{
		{"under the first layer", func(map[string]safetensors.Tensor) {}, ""},
		{"under the last layer", func(m map[string]safetensors.Tensor) { move(m, "layers.1.shared_transf", "layers.3.shared_transf") }, ""},
		{"under both", func(m map[string]safetensors.Tensor) {
			again := m["model.layers.1"+norm]
			again.Data = bytes.Clone(again.Data)
			m["model.layers.3"+norm] = again
		}, ""},
		{"under both, not the same", func(m map[string]safetensors.Tensor) {
			again := m["model.layers.1"+norm]
			again.Data = bytes.Clone(again.Data)
			again.Data[0]++
			m["model.layers.3"+norm] = again
		}, "tensors model.layers.1" + norm + " and model.layers.3" + norm + " are one parameter of the model, and differ"},
		{"nowhere", func(m map[string]safetensors.Tensor) { delete(m, "model.layers.1"+norm) }, "model.layers.1" + norm + " is missing"},
	} {
		got, err := Open(written(t, config, c.edit))
		if err == nil {
			defer got.Close()
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want == "" && len(got.Unused) > 0:
			t.Errorf("%s: unused %v", c.name, got.Unused)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// TestTensorsOfNemotron: a head for further tokens is no use and no fault; attention has
// biases where the key says so and the file has them.
func TestTensorsOfNemotron(t *testing.T) {
	config := `{"model_type": "nemotron_h", "vocab_size": 10, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 5, "mamba_num_heads": 6, "mamba_head_dim": 5, "n_groups": 2,
		"ssm_state_size": 3, "n_routed_experts": 4, "num_experts_per_tok": 3, "moe_intermediate_size": 3, "moe_shared_expert_intermediate_size": 7, "hybrid_override_pattern": "M-*E", "attention_bias": true}`
	for _, biases := range []bool{true, false} {
		c, err := Open(written(t, config, func(m map[string]safetensors.Tensor) {
			m["mtp.layers.0.norm.weight"] = safetensors.Tensor{DType: "F32", Shape: []int{1}, Data: []byte{1, 2, 3, 4}}
			for name := range m {
				if strings.HasSuffix(name, "_proj.bias") && !biases {
					delete(m, name)
				}
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if len(c.Unused) > 0 {
			t.Errorf("unused: %v", c.Unused)
		}
		if _, ok := c.Graph.Value("layers.2.attention.k_proj.bias"); ok != biases {
			t.Errorf("with biases: %v, in the graph: %v", biases, ok)
		}
	}
}

func move(m map[string]safetensors.Tensor, from, to string) {
	for name, t := range m {
		if strings.Contains(name, from) {
			delete(m, name)
			m[strings.Replace(name, from, to, 1)] = t
		}
	}
}

// tensorsOf are tensors of zeros for all parameters of a graph.
func tensorsOf(g *graph.Graph) map[string]safetensors.Tensor {
	out := map[string]safetensors.Tensor{}
	for _, n := range g.Leaves("param") {
		shape := n.Storage.Shape
		if shape == nil {
			for _, d := range n.Results[0].Type.Dims {
				shape = append(shape, d.Len())
			}
		}
		size := 4
		for _, d := range shape {
			size *= d
		}
		for _, p := range n.Storage.Pieces {
			out[p.Tensor] = safetensors.Tensor{DType: "F32", Shape: shape, Data: make([]byte, size)}
		}
	}
	return out
}
