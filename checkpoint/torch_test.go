package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/torchsave"
)

// TestTorchIndex: the files that an index names are one checkpoint; and what an index says
// wrongly is an error.
func TestTorchIndex(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	part := func(tensor string, first byte) []byte {
		t.Helper()
		list := []torchsave.Tensor{{Name: tensor, Class: "FloatStorage", Shape: []int{1}, Elems: 1, Data: []byte{first, 0, 0, 0}}}
		data, err := torchsave.Archive(torchsave.Program(list), list)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	put("one.bin", part("b", 1))
	put("two.bin", part("a", 2))
	put(torchIndex, []byte(`{"metadata": {}, "weight_map": {"a": "two.bin", "b": "one.bin"}}`))
	w, err := openTorch(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, first := range map[string]byte{"a": 2, "b": 1} {
		if x, err := w.Tensor(name); err != nil || !bytes.Equal(x.Data, []byte{first, 0, 0, 0}) {
			t.Errorf("%s: %v, %v", name, x.Data, err)
		}
	}
	put("three.bin", part("b", 3))
	for want, index := range map[string]string{
		"there is no weight_map":     `{}`,
		"weight_map is empty":        `{"weight_map": {}}`,
		"which is not a path inside": `{"weight_map": {"a": "../two.bin"}}`,
		"nowhere.bin":                `{"weight_map": {"a": "nowhere.bin"}}`,
		"tensor b is in two files":   `{"weight_map": {"a": "one.bin", "b": "three.bin"}}`,
	} {
		put(torchIndex, []byte(index))
		if _, err := openTorch(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
