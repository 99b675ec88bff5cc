package models

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
)

func graphText(t *testing.T, m *Model) string {
	t.Helper()
	g, err := m.Graph(nil)
	if err != nil {
		t.Fatal(err)
	}
	return graph.Print(g)
}

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

// checkpoint writes a small one with a config, whose tensors edit may change.
func checkpoint(t *testing.T, config string, edit func(map[string]safetensors.Tensor)) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := read(config)
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
		if _, err := Open(checkpoint(t, minimal+"}", c.edit)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
	broken := checkpoint(t, minimal+"}", func(map[string]safetensors.Tensor) {})
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
	dir := checkpoint(t, minimal+"}", func(m map[string]safetensors.Tensor) {
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
