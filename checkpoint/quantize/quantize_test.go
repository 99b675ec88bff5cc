package quantize_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/quantize"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/x448/float16"
)

// encode is a matrix in blocks, as the format says.
func encode(x []float32, cols int) []byte {
	var out []byte
	for row := range slices.Chunk(x, cols) {
		for block := range slices.Chunk(row, 32) {
			most := float32(0)
			for _, v := range block {
				most = max(most, v, -v)
			}
			scale := float16.Fromfloat32(most / 127)
			if float64(scale.Float32())*127.5 < float64(most) {
				scale = float16.Frombits(scale.Bits() + 1)
			}
			out = binary.LittleEndian.AppendUint16(out, scale.Bits())
			numbers := make([]byte, 32)
			for i, v := range block {
				if v != 0 {
					numbers[i] = byte(int8(math.Round(float64(v) / float64(scale.Float32()))))
				}
			}
			out = append(out, numbers...)
		}
	}
	return out
}

func open(t *testing.T, dir string) *safetensors.Set {
	t.Helper()
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set
}

// compare holds a folder in blocks against the one it was made of: each tensor to the
// byte, and each file to its size.
func compare(t *testing.T, from, to string, made *quantize.Made) {
	t.Helper()
	was, is := open(t, from), open(t, to)
	matrices, total := 0, int64(0)
	for _, name := range is.Names() {
		a, _ := was.Tensor(name)
		b, _ := is.Tensor(name)
		total += int64(len(b.Data))
		if b.DType != "U8" {
			if a.DType != b.DType || !slices.Equal(a.Shape, b.Shape) || !bytes.Equal(a.Data, b.Data) {
				t.Errorf("%s: %s changed", to, name)
			}
			continue
		}
		matrices++
		wide, err := a.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		var x []float32
		for _, v := range wide {
			x = append(x, float32(v))
		}
		if want := encode(x, a.Shape[len(a.Shape)-1]); !bytes.Equal(b.Data, want) || len(b.Data) >= len(a.Data) {
			t.Errorf("%s: %s is not what the format says, or larger than before", to, name)
		}
		if strings.Contains(name, "norm") || strings.HasSuffix(name, "conv.weight") || strings.Contains(name, "conv1d") || strings.Contains(name, "router") || strings.HasSuffix(name, "bias") {
			t.Errorf("%s is in blocks", name)
		}
	}
	if matrices != made.Matrices || made.Others != len(is.Names())-matrices || made.After != total {
		t.Errorf("%s: %d matrices of %d tensors, %d bytes; said %+v", to, matrices, len(is.Names()), total, made)
	}
	for _, f := range is.Files() {
		info, err := os.Stat(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, name := range f.Names() {
			x, _ := f.Tensor(name)
			size += int64(len(x.Data))
		}
		data, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if header := 8 + int64(binary.LittleEndian.Uint64(data)); info.Size() != header+size {
			t.Errorf("%s has %d bytes, a header of %d and tensors of %d", f.Name(), info.Size(), header, size)
		}
	}
}

func write(t *testing.T, from, to string) *quantize.Made {
	t.Helper()
	var last, total int64
	made, err := quantize.Write(context.Background(), from, to, "q8", func(done, all int64) { last, total = max(last, done), all })
	if err != nil {
		t.Fatal(err)
	}
	if last != total || total != made.After {
		t.Errorf("%d bytes of %d were told", last, total)
	}
	return made
}

func TestWrite(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large") // a table that is written in parts
	config := `{"model_type": "mamba", "vocab_size": 40000, "hidden_size": 40, "num_hidden_layers": 1}`
	if _, err := synth.Write(context.Background(), large, synth.Options{Config: []byte(config)}); err != nil {
		t.Fatal(err)
	}
	for _, from := range append(goldens.Folders(t, "../.."), large) {
		to := filepath.Join(t.TempDir(), "q8")
		compare(t, from, to, write(t, from, to))
		c, err := checkpoint.Open(to)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Unused)+len(c.Model.Unknown) > 0 {
			t.Errorf("%s: unused %v, unknown %v", from, c.Unused, c.Model.Unknown)
		}
		c.Close()
	}
}

// copied is a folder with the files of another, to be changed.
func copied(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestShards: shards stay shards, and what belongs to the model comes along.
func TestShards(t *testing.T) {
	const golden = "../../testdata/golden/jamba"
	from, set := copied(t, golden), open(t, golden)
	halves, index := [2][]safetensors.Tensor{}, map[string]string{}
	for i, name := range set.Names() {
		x, _ := set.Tensor(name)
		halves[i%2] = append(halves[i%2], x)
		index[name] = fmt.Sprintf("model-%05d-of-00002.safetensors", i%2+1)
	}
	for _, half := range halves {
		if err := safetensors.WriteFile(filepath.Join(from, index[half[0].Name]), half, nil); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"weight_map": index})
	if err == nil {
		err = os.WriteFile(filepath.Join(from, "model.safetensors.index.json"), text, 0o600)
	}
	if err == nil {
		err = os.Remove(filepath.Join(from, "model.safetensors"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"tokenizer.json": "{}", "vocab.txt": "a", "LICENSE": "free", "notes.md": "x", "pytorch_model.bin": "x"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(t.TempDir(), "to")
	made := write(t, from, to)
	compare(t, from, to, made)
	if n := len(open(t, to).Files()); n != len(open(t, from).Files()) || n < 2 {
		t.Errorf("%d files", n)
	}
	var names []string
	entries, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".safetensors" && !strings.HasPrefix(e.Name(), "expected") {
			names = append(names, e.Name())
		}
	}
	if want := []string{"LICENSE", "config.json", "model.safetensors.index.json", "tokenizer.json", "vocab.txt"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// TestRefused: what cannot be written is said, and nothing is left behind.
func TestRefused(t *testing.T) {
	golden := "../../testdata/golden/mamba-a"
	again := filepath.Join(t.TempDir(), "again")
	write(t, golden, again)
	broken := copied(t, golden)
	set := open(t, golden)
	var tensors []safetensors.Tensor
	for _, name := range set.Names() {
		x, _ := set.Tensor(name)
		if strings.HasSuffix(name, "layers.1.mixer.out_proj.weight") {
			x.Data = slices.Clone(x.Data)
			binary.LittleEndian.PutUint32(x.Data[4*1000:], math.Float32bits(float32(math.NaN())))
		}
		tensors = append(tensors, x)
	}
	if err := safetensors.WriteFile(filepath.Join(broken, "model.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{again, "", "is in 8-bit blocks already"},
		{golden, full, "is not empty; name another folder"},
		{golden, golden, "is not empty; name another folder"},
		{t.TempDir(), "", "there is no config.json"},
		{filepath.Join(full, "x"), "", "is a file; a model is a folder"},
		{filepath.Join(full, "nowhere"), "", "there is no such folder"},
		{broken, "", "layers.1.mixer.out_proj.weight: row "},
		{broken, "", "NaN is not a finite number"},
	} {
		to := c.to
		if to == "" {
			to = filepath.Join(t.TempDir(), "to")
		}
		before, _ := os.ReadDir(to)
		if _, err := quantize.Write(context.Background(), c.from, to, "q8", nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %s: %v, want %s", c.from, to, err, c.want)
		}
		if after, _ := os.ReadDir(to); len(after) != len(before) {
			t.Errorf("%s has %v", to, after)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	to := filepath.Join(t.TempDir(), "to")
	if _, err := quantize.Write(ctx, golden, to, "q8", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Error("a folder is left:", err)
	}
}
