package convert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/graph"
)

func golden(name string) string { return filepath.Join("../../testdata/golden", name) }

func write(t *testing.T, from, to, kind string) *Made {
	t.Helper()
	made, err := Write(context.Background(), from, to, kind, nil)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestRoundTrip: a folder that became GGUF in f32 and a folder again has the same tensors,
// to the bit, and describes the same model.
func TestRoundTrip(t *testing.T) {
	for _, name := range []string{"mamba-a", "mamba-b", "mamba2-g1", "mamba2-g4", "mamba2-clamp", "falcon-mamba", "jamba", "granite-hybrid", "granite-hybrid-dense", "nemotron-h", "nemotron-h-moe", "lfm2", "lfm2-moe"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, back := filepath.Join(dir, "x.gguf"), filepath.Join(dir, "back")
			write(t, golden(name), file, "f32")
			write(t, file, back, "")
			equal(t, golden(name), back)
			_, g, err := checkpoint.Describe(golden(name))
			_, h, err2 := checkpoint.Describe(back)
			if err != nil || err2 != nil || graph.Print(g) != graph.Print(h) {
				t.Errorf("%v, %v: the graphs differ", err, err2)
			}
		})
	}
}

// TestRoundTripOfNorms: of gated delta nets a folder that became GGUF and a folder again gives the
// same tensors but for norms, to which GGUF adds 1, and what its text model has no use for.
func TestRoundTripOfNorms(t *testing.T) {
	for _, name := range []string{"qwen3-next", "qwen3-5", "qwen3-5-moe"} {
		dir := t.TempDir()
		file, back := filepath.Join(dir, "x.gguf"), filepath.Join(dir, "back")
		write(t, golden(name), file, "f32")
		write(t, file, back, "")
		x, err := safetensors.OpenDir(golden(name))
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		y, err := safetensors.OpenDir(back)
		if err != nil {
			t.Fatal(err)
		}
		defer y.Close()
		same, near := 0, 0
		for _, tensor := range x.Names() {
			s, _ := x.Tensor(tensor)
			u, ok := y.Tensor(strings.Replace(tensor, "model.language_model.", "model.", 1))
			switch a, _ := s.Float64s(); {
			case strings.HasPrefix(tensor, "mtp."), strings.HasPrefix(tensor, "model.visual."), strings.Contains(tensor, ".experts."): // which are apart then
			case !ok || fmt.Sprint(s.Shape) != fmt.Sprint(u.Shape):
				t.Errorf("%s: %s is %v, want %v", name, tensor, u.Shape, s.Shape)
			case bytes.Equal(s.Data, u.Data):
				same++
			case strings.HasSuffix(tensor, "norm.weight"):
				b, _ := u.Float64s()
				for i := range a {
					if d := math.Abs(a[i] - b[i]); d > 0x1p-24*math.Abs(1+a[i])*1.01 { // half the last bit of the sum
						t.Errorf("%s: %s at %d is %g, want %g", name, tensor, i, b[i], a[i])
					}
				}
				near++
			default:
				t.Errorf("%s: %s differs", name, tensor)
			}
		}
		if same < 30 || near < 8 {
			t.Errorf("%s: %d tensors are the same, and %d norms near", name, same, near)
		}
	}
}

// equal holds the tensors of two folders to each other, in f32.
func equal(t *testing.T, a, b string) {
	t.Helper()
	x, err := safetensors.OpenDir(a)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	y, err := safetensors.OpenDir(b)
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	if fmt.Sprint(x.Names()) != fmt.Sprint(y.Names()) {
		t.Fatalf("%s has %v, %s %v", a, x.Names(), b, y.Names())
	}
	for _, name := range x.Names() {
		s, _ := x.Tensor(name)
		u, _ := y.Tensor(name)
		if fmt.Sprint(s.Shape) != fmt.Sprint(u.Shape) || s.DType != u.DType || !bytes.Equal(s.Data, u.Data) {
			t.Errorf("%s: %s %v and %s %v differ", name, s.DType, s.Shape, u.DType, u.Shape)
		}
	}
}

// TestTheirs: what we make of a folder has the names, formats, shapes, data and metadata
// that llama.cpp's library gave it, but for what is ours.
func TestTheirs(t *testing.T) {
	for _, c := range [][3]string{{"mamba-a", "f32", "mamba-a-f32"}, {"mamba2-g1", "f32", "mamba2-g1-f32"}, {"mamba-a", "q8_0", "mamba-a-q8_0"}} {
		file := filepath.Join(t.TempDir(), "x.gguf")
		write(t, golden(c[0]), file, c[1])
		ours, err := gguf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		theirs, err := gguf.Open(golden("gguf/" + c[2] + ".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		for _, key := range theirs.Keys() {
			want, _ := theirs.Value(key)
			if got, _ := ours.Value(key); !strings.HasPrefix(key, "tokenizer.") && key != "general.name" && got != want {
				t.Errorf("%s: %s is %v, want %v", c[2], key, got, want)
			}
		}
		if fmt.Sprint(ours.Names()) != fmt.Sprint(theirs.Names()) {
			t.Fatalf("%s: %v, want %v", c[2], ours.Names(), theirs.Names())
		}
		for _, name := range theirs.Names() {
			a, _ := ours.Tensor(name)
			b, _ := theirs.Tensor(name)
			if a.Type != b.Type || fmt.Sprint(a.Shape) != fmt.Sprint(b.Shape) {
				t.Errorf("%s: %s is %s %v, want %s %v", c[2], name, a.Type, a.Shape, b.Type, b.Shape)
				continue
			}
			near(t, name, a, b)
		}
	}
}

// near: the same numbers, but for the last bit of exp, and one of a block's steps.
func near(t *testing.T, name string, a, b gguf.Tensor) {
	t.Helper()
	x, err := a.Float32s()
	y, err2 := b.Float32s()
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for i := range x {
		d, most := x[i]-y[i], float32(0)
		if strings.HasSuffix(name, "ssm_a") {
			most = -y[i] * 2e-7
		}
		if a.Type == gguf.Q8_0 {
			for _, v := range y[i/32*32:][:32] {
				most = max(most, v*1.01/127, -v*1.01/127)
			}
		}
		if d < -most || d > most {
			t.Fatalf("%s: element %d is %g, want %g", name, i, x[i], y[i])
		}
	}
}

// TestNotes: what other programs make otherwise is said, and not for others.
func TestNotes(t *testing.T) {
	for name, want := range map[string]string{
		"mamba-a": "", "mamba2-g1": "", "falcon-h1": "", "mamba-b": "has a bias, of which llama.cpp knows nothing",
		"mamba2-g4": "other programs norm each of the 4 groups", "mamba2-clamp": "other programs do not clamp dt", "falcon-mamba": "mixer_rms_eps is not", "jamba": "", "nemotron-h": "", "nemotron-h-moe": "", "lfm2": "", "lfm2-moe": "",
		"qwen3-5": "heads of keys have 8 channels and those of values 12", "qwen3-next": "not every 4-th layer attends", "granite-hybrid": "norm each of the 2 groups",
	} {
		made := write(t, golden(name), filepath.Join(t.TempDir(), "x.gguf"), "bf16")
		if notes := strings.Join(made.Notes, "\n"); !strings.Contains(notes, want) || want == "" && notes != "" {
			t.Errorf("%s: the notes are %q, want %q", name, notes, want)
		}
	}
}

// TestErrors: what cannot be made is an error, and leaves nothing.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there.gguf")
	if err := os.WriteFile(there, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string][3]string{
		"there.gguf is there already; name another file": {golden("mamba-a"), there, ""},
		"is not empty; name another folder":              {golden("mamba-a"), dir, ""},
		"--type is q9; it must be one of bf16, f16, f32, iq4_nl, iq4_xs, q4_0, q4_k_m, q5_0, q5_k_m, q6_k, q8_0": {golden("mamba-a"), filepath.Join(dir, "x.gguf"), "q9"},
		"--type q8_0 is a format of a GGUF file":                         {golden("mamba-a"), filepath.Join(dir, "x"), "q8_0"},
		"GGUF has no architecture for the family zamba2; it has one for": {golden("zamba2"), filepath.Join(dir, "x.gguf"), ""},
		"there is no such folder":                                        {filepath.Join(dir, "nothing"), filepath.Join(dir, "x.gguf"), ""},
	} {
		if _, err := Write(context.Background(), c[0], c[1], c[2], nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, to := range []string{"x.gguf", "x"} {
		ctx, cancel := context.WithCancel(context.Background())
		first := int64(-1)
		_, err := Write(ctx, golden("mamba-a"), filepath.Join(dir, to), "", func(done, total int64) {
			if first < 0 {
				first = done
			}
			if done > 0 {
				cancel()
			}
		})
		cancel()
		if err == nil || !strings.Contains(err.Error(), "context canceled") || first != 0 {
			t.Errorf("%s: %v; the first amount is %d", to, err, first)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v are left", entries, err)
	}
}

// TestTokenizer: a tokenizer goes there and back.
func TestTokenizer(t *testing.T) {
	dir := t.TempDir()
	from, file, back := filepath.Join(dir, "from"), filepath.Join(dir, "x.gguf"), filepath.Join(dir, "back")
	config, err := os.ReadFile(filepath.Join(golden("mamba-a"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	weights, err := os.ReadFile(filepath.Join(golden("mamba-a"), "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"version":"1.0","added_tokens":[{"id":3,"content":"<e>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}],"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`)
	settings, _ := json.Marshal(map[string]any{"eos_token": "<e>", "chat_template": "{{ x }}"})
	all := map[string][]byte{"config.json": config, "model.safetensors": weights, "tokenizer.json": text, "tokenizer_config.json": settings}
	if err := os.Mkdir(from, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range all {
		if err := os.WriteFile(filepath.Join(from, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if made := write(t, from, file, ""); len(made.Notes) > 0 {
		t.Error(made.Notes)
	}
	f, err := gguf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tokens, err := f.Strings("tokenizer.ggml.tokens")
	if pre, _ := f.String("tokenizer.ggml.pre"); err != nil || len(tokens) != 256 || tokens[2] != "ab" || tokens[255] != "[PAD255]" || pre != "gpt-2" {
		t.Errorf("%v, %q, %v", tokens, pre, err)
	}
	write(t, file, back, "")
	for name, want := range all {
		got, err := os.ReadFile(filepath.Join(back, name))
		if err != nil || strings.HasPrefix(name, "tokenizer") && !bytes.Equal(got, want) {
			t.Errorf("%s: %v, %s", name, err, got)
		}
	}
}

// TestProgress: of a tensor that takes long, the bytes of each piece are told, and a conversion
// that is stopped in it leaves no file.
func TestProgress(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "x.gguf")
	if _, err := synth.Write(t.Context(), src, synth.Options{Like: "mamba-130m", Layers: 1, Vocab: 2000}); err != nil {
		t.Fatal(err)
	}
	var last, first, all int64
	calls := 0
	tell := func(done, total int64) {
		if calls++; done < last || done > total {
			t.Errorf("%d bytes of %d after %d", done, total, last)
		}
		if last = done; first == 0 {
			first = done
		}
		all = total
	}
	made, err := Write(t.Context(), src, dst, "q8_0", tell)
	if err != nil {
		t.Fatal(err)
	}
	if last != all || all != made.Bytes || first > all/4 || calls < 2*made.Tensors {
		t.Errorf("%d calls for %d tensors: %d bytes first and %d last, of %d", calls, made.Tensors, first, last, all)
	}
	ctx, cancel := context.WithCancel(t.Context())
	dst = filepath.Join(dir, "y.gguf")
	_, err = Write(ctx, src, dst, "q8_0", func(done, total int64) {
		if done > 0 {
			cancel()
		}
	})
	if left, _ := filepath.Glob(filepath.Join(dir, "*y.gguf*")); !errors.Is(err, context.Canceled) || len(left) > 0 {
		t.Errorf("stopped: %v, and %v is left", err, left)
	}
}
