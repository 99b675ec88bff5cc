package safetensors

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shard is a file with one-byte tensors, each holding the first byte of its name.
func shard(t *testing.T, names ...string) string {
	t.Helper()
	var tensors []Tensor
	for _, name := range names {
		tensors = append(tensors, Tensor{name, "U8", []int{1}, []byte(name[:1])})
	}
	var b bytes.Buffer
	if err := Write(&b, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// folder makes a directory with the given files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpenDir(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  map[string]string // file of each tensor
	}{
		{"one file", map[string]string{singleName: shard(t, "a", "b")}, map[string]string{"a": singleName, "b": singleName}},
		{
			"shards, one in a folder, with a tensor that the index leaves out",
			map[string]string{
				indexName:       `{"metadata":{"total_size":3},"weight_map":{"a":"1.safetensors","b":"more/2.safetensors"}}`,
				"1.safetensors": shard(t, "a", "extra"), "more/2.safetensors": shard(t, "b"),
			},
			map[string]string{"a": "1.safetensors", "b": filepath.Join("more", "2.safetensors"), "extra": "1.safetensors"},
		},
		{
			"one shard by two paths",
			map[string]string{indexName: `{"weight_map":{"a":"1.safetensors","b":"./1.safetensors"}}`, "1.safetensors": shard(t, "a", "b")},
			map[string]string{"a": "1.safetensors", "b": "1.safetensors"},
		},
		{
			"one file and an index",
			map[string]string{singleName: shard(t, "a"), indexName: "not JSON"},
			map[string]string{"a": singleName},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t, c.files)
			set, err := OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := set.Names(), slices.Sorted(maps.Keys(c.want)); !cmp.Equal(got, want) {
				t.Errorf("names %q, want %q", got, want)
			}
			for name, file := range c.want {
				if tensor, ok := set.Tensor(name); !ok || string(tensor.Data) != name[:1] {
					t.Errorf("tensor %q: %v, %v", name, tensor, ok)
				}
				if got := set.FileOf(name); got != filepath.Join(dir, file) {
					t.Errorf("tensor %q is in %s, want %s", name, got, file)
				}
			}
			if _, ok := set.Tensor("x"); ok || set.FileOf("x") != "" {
				t.Error("found a tensor that is not there")
			}
			for range 2 {
				if err := set.Close(); err != nil {
					t.Error(err)
				}
			}
			if _, ok := set.Tensor("a"); ok {
				t.Error("a closed set still holds tensors")
			}
		})
	}
}

func TestOpenDirErrors(t *testing.T) {
	index := func(weightMap string) string { return `{"weight_map":` + weightMap + `}` }
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"empty", nil, "neither model.safetensors nor model.safetensors.index.json found: the directory is empty"},
		{"config only", map[string]string{"config.json": "{}"}, "found: there is config.json"},
		{"PyTorch only", map[string]string{"pytorch_model.bin": "", "config.json": "{}"}, "there is pytorch_model.bin, but no safetensors; convert it"},
		{"shards without index", map[string]string{"model-00001-of-00002.safetensors": ""}, "the index that lists them is missing"},
		{"another name", map[string]string{"weights.safetensors": ""}, "there is weights.safetensors; rename"},
		{"damaged file", map[string]string{singleName: "x"}, "model.safetensors: the file has 1 bytes"},
		{"empty file", map[string]string{singleName: ""}, "model.safetensors: the file is empty"},
		{"directory as file", map[string]string{singleName + "/x": ""}, "model.safetensors: is a directory"},
		{"directory as index", map[string]string{indexName + "/x": ""}, "model.safetensors.index.json: is a folder"},
		{"index not JSON", map[string]string{indexName: "{"}, "model.safetensors.index.json: the JSON ends too early"},
		{"index empty", map[string]string{indexName: ""}, "model.safetensors.index.json: the JSON ends too early"},
		{"no weight_map", map[string]string{indexName: `{"metadata":{}}`}, "there is no weight_map"},
		{"weight_map empty", map[string]string{indexName: index(`{}`)}, "weight_map is empty"},
		{"weight_map null", map[string]string{indexName: index(`null`)}, `"weight_map": expected '{'`},
		{"weight_map of numbers", map[string]string{indexName: index(`{"a":1}`)}, `"a": expected a string`},
		{"tensor twice in the index", map[string]string{indexName: index(`{"a":"1","a":"2"}`)}, `"a" appears twice`},
		{"path above", map[string]string{indexName: index(`{"a":"../1.safetensors"}`)}, `weight_map places tensor "a" in "../1.safetensors", which is not a path inside the model's directory`},
		{"path above, hidden", map[string]string{indexName: index(`{"a":"x/../../1"}`)}, "not a path inside"},
		{"path absolute", map[string]string{indexName: index(`{"a":"/etc/passwd"}`)}, "not a path inside"},
		{"path empty", map[string]string{indexName: index(`{"a":""}`)}, "not a path inside"},
		{"path the directory itself", map[string]string{indexName: index(`{"a":"x/.."}`)}, "not a path inside"},
		{"shard missing", map[string]string{indexName: index(`{"a":"1"}`)}, `names the shard "1", which is missing; download it`},
		{"shard damaged", map[string]string{indexName: index(`{"a":"1"}`), "1": "x"}, "1: the file has 1 bytes"},
		{"tensor missing", map[string]string{indexName: index(`{"a":"1","b":"1"}`), "1": shard(t, "a")}, `but no shard holds it`},
		{
			"tensor in another shard",
			map[string]string{indexName: index(`{"a":"2","b":"1"}`), "1": shard(t, "a"), "2": shard(t, "b")},
			`expects tensor "a" in `,
		},
		{
			"tensor in two shards",
			map[string]string{indexName: index(`{"a":"1","b":"2"}`), "1": shard(t, "a"), "2": shard(t, "a", "b")},
			`tensor "a" is in two shards`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t, c.files)
			set, err := OpenDir(dir)
			if err == nil {
				t.Fatalf("got %q, want an error with %q", set.Names(), c.want)
			}
			if text := err.Error(); !strings.Contains(text, dir) || !strings.Contains(text, c.want) {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}

func TestOpenDirNotADirectory(t *testing.T) {
	dir := folder(t, map[string]string{singleName: shard(t, "a")})
	if _, err := OpenDir(filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want not exist", err)
	}
	if _, err := OpenDir(filepath.Join(dir, singleName)); err == nil || !strings.Contains(err.Error(), "is a file; give the directory") {
		t.Errorf("got %v", err)
	}
}

// A link whose target is gone is reported as it is, not as a folder without weights.
func TestOpenDirDanglingLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("gone", filepath.Join(dir, singleName)); err != nil {
		t.Logf("no symbolic links here: %v", err)
		return
	}
	if _, err := OpenDir(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), singleName) {
		t.Errorf("got %v, want not exist", err)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want not exist", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("got %v", err)
	}
	if _, err := Open(os.DevNull); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("got %v", err)
	}
}

func TestSetOf(t *testing.T) {
	f, err := Parse("embedded", []byte(shard(t, "b", "a")))
	if err != nil {
		t.Fatal(err)
	}
	set := SetOf(f)
	if tensor, ok := set.Tensor("b"); !ok || string(tensor.Data) != "b" || set.FileOf("b") != "embedded" {
		t.Errorf("got %v, %v in %s", tensor, ok, set.FileOf("b"))
	}
	if got := set.Names(); !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("names %q", got)
	}
	if err := set.Close(); err != nil {
		t.Error(err)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":3},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"x/../y"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../b"},"weight_map":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		weightMap, err := parseIndex(data)
		if err != nil {
			return
		}
		if len(weightMap) == 0 {
			t.Fatal("empty, without an error")
		}
		for name, path := range weightMap {
			if !strings.HasPrefix(filepath.Join("dir", path), "dir"+string(filepath.Separator)) {
				t.Fatalf("tensor %q is in %q, outside the directory", name, path)
			}
		}
	})
}
