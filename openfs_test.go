package krait

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// inMemory is a folder as a file system of the process's memory.
func inMemory(t *testing.T, dir string) fstest.MapFS {
	t.Helper()
	m := fstest.MapFS{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		m[e.Name()] = &fstest.MapFile{Data: data}
	}
	return m
}

// TestOpenFS: a model of a file system, mapped or in memory, is that of the folder.
func TestOpenFS(t *testing.T) {
	const dir = "testdata/golden/mamba-a"
	want := openModel(t, dir, Options{})
	prompt := tokensOf(want, 20, 1)
	ids, err := want.GenerateIDs(t.Context(), prompt, Generate{MaxTokens: 8})
	if err != nil {
		t.Fatal(err)
	}
	for name, fsys := range map[string]fs.FS{"mapped": os.DirFS(dir), "in memory": inMemory(t, dir)} {
		m, err := OpenFS(fsys, Options{Strict: true, Sharding: Sharding{Ranks: 2}})
		if err != nil {
			t.Fatal(name, err)
		}
		defer m.Close()
		got, err := m.GenerateIDs(t.Context(), prompt, Generate{MaxTokens: 8})
		if err != nil || !slices.Equal(got.IDs, ids.IDs) || m.Family() != "mamba" || m.Name != "mamba" {
			t.Errorf("%s: %v, %v; want %v", name, got, err, ids.IDs)
		}
		a, errA := m.Tokenizer()
		b, errB := want.Tokenizer()
		if (a == nil) != (b == nil) || (errA == nil) != (errB == nil) {
			t.Errorf("%s: tokenizers %v and %v: %v, %v", name, a, b, errA, errB)
		}
	}
}

// TestOpenFSErrors: what is missing, or cut, is named.
func TestOpenFSErrors(t *testing.T) {
	for want, change := range map[string]func(m fstest.MapFS){
		"no config.json in its root":    func(m fstest.MapFS) { delete(m, "config.json") },
		"neither model.safetensors nor": func(m fstest.MapFS) { delete(m, "model.safetensors") },
		"the file system has a.gguf, and weights in a file system must be safetensors": func(m fstest.MapFS) {
			m["a.gguf"] = m["model.safetensors"]
			delete(m, "model.safetensors")
			delete(m, "config.json")
		},
		"the file system has pytorch_model.bin, and weights": func(m fstest.MapFS) {
			m["pytorch_model.bin"] = m["model.safetensors"]
			delete(m, "model.safetensors")
		},
		"model.safetensors: ":            func(m fstest.MapFS) { m["model.safetensors"].Data = m["model.safetensors"].Data[:900] },
		"config.json: not a JSON object": func(m fstest.MapFS) { m["config.json"].Data = []byte("[]") },
		"is not a regular file":          func(m fstest.MapFS) { m["model.safetensors"] = &fstest.MapFile{Mode: fs.ModeDir} },
		"names the shard \"a.safetensors\", w": func(m fstest.MapFS) {
			delete(m, "model.safetensors")
			m["model.safetensors.index.json"] = &fstest.MapFile{Data: []byte(`{"weight_map": {"x": "a.safetensors"}}`)}
		},
	} {
		m := inMemory(t, "testdata/golden/mamba-a")
		change(m)
		if _, err := OpenFS(m, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
