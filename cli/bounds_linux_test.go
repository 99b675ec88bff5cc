package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/torchsave"
)

// hostile makes input in a folder.
type hostile struct {
	*testing.T
	dir string
}

func (h hostile) write(name string, data []byte) {
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		h.Fatal(err)
	}
}

func (h hostile) text(name, format string, args ...any) {
	h.write(name, fmt.Appendf(nil, format, args...))
}

// config is a small model's, with keys changed.
func (h hostile) config(keys map[string]any) {
	all := map[string]any{"model_type": "mamba", "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 3, "state_size": 16, "time_step_rank": 8}
	for k, v := range keys {
		all[k] = v
	}
	data, err := json.Marshal(all)
	if err != nil {
		h.Fatal(err)
	}
	h.write("config.json", data)
}

// weights is a safetensors file with a header.
func (h hostile) weights(header string) {
	h.config(nil)
	h.write("model.safetensors", append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...))
}

func (h hostile) golden(file string) {
	data, err := os.ReadFile("../testdata/golden/mamba-a/" + file)
	if err != nil {
		h.Fatal(err)
	}
	h.write(file, data)
}

func (h hostile) link(name, to string) {
	if err := os.Symlink(to, filepath.Join(h.dir, name)); err != nil {
		h.Fatal(err)
	}
}

// repeat writes a line some times, with its number.
func repeat(n int, line string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(line, "#", fmt.Sprint(i)))
	}
	return b.String()
}

// hostiles are classes of input that took, or would take, minutes or all memory: what
// is made of them, the command line, and how its error ends up; "" for none.
var hostiles = map[string]struct {
	make func(h hostile)
	args string
	want string
	// Bounds: of CPU seconds and MiB; 0 is 5 and 128. They are some times what it takes.
	cpu time.Duration
	mib int64
}{
	"config is a pipe": {func(h hostile) {
		if err := syscall.Mkfifo(filepath.Join(h.dir, "config.json"), 0o600); err != nil {
			h.Fatal(err)
		}
	}, "plan .", "is not a regular file", 0, 0},
	"config never ends":       {func(h hostile) { h.link("config.json", "/dev/zero") }, "plan .", "is not a regular file", 0, 0},
	"config is large":         {func(h hostile) { h.write("config.json", make([]byte, 17<<20)) }, "plan .", "larger than 16 MiB", 0, 0},
	"config is deep":          {func(h hostile) { h.text("config.json", "%s", strings.Repeat("[", 8<<20)) }, "plan .", "exceeded max depth", 0, 0},
	"config is deep within":   {func(h hostile) { h.text("config.json", `{"x": %s`, strings.Repeat(`{"a":`, 2<<20)) }, "plan .", "exceeded max depth", 0, 0},
	"config has a long key":   {func(h hostile) { h.config(map[string]any{strings.Repeat("k", 10<<20): 1}) }, "generate -n 1 --model . --ids 1", "model.safetensors", 0, 0},
	"config has a long value": {func(h hostile) { h.config(map[string]any{"model_type": strings.Repeat("m", 10<<20)}) }, "plan .", "bytes more", 0, 0},
	"config has many keys": {func(h hostile) {
		h.text("config.json", `{%s"model_type": "mamba", "num_hidden_layers": 2}`, repeat(500_000, `"k#": 1, `))
	}, "plan .", "", 15, 512},
	"layers without weights":       {func(h hostile) { h.config(map[string]any{"num_hidden_layers": 1 << 16}) }, "plan .", "must be an integer from 0 to 4096", 0, 0},
	"layers that the file has not": {func(h hostile) { h.config(map[string]any{"num_hidden_layers": 4096}); h.golden("model.safetensors") }, "plan .", "of 4096 layers", 0, 0},
	"most layers":                  {func(h hostile) { h.config(map[string]any{"num_hidden_layers": 1000}) }, "plan .", "", 15, 512},
	"a giant width":                {func(h hostile) { h.config(map[string]any{"hidden_size": 1 << 40}) }, "plan .", "must be an integer from 1 to 268435456", 0, 0},
	"giant shapes":                 {func(h hostile) { h.config(map[string]any{"hidden_size": 1 << 28, "vocab_size": 1 << 28}) }, "plan --tp 4 .", "more than 1099511627776 elements", 0, 0},
	"a batch beyond counting":      {func(h hostile) { h.config(nil) }, "plan --batch 9223372036854775807 --prompt 3 .", "overflow 64 bits", 0, 0},
	"prompts beyond counting":      {func(h hostile) { h.config(nil) }, "plan --batch 1000000000 --prompt 1000000000000 .", "overflow 64 bits", 0, 0},

	"header is deep": {func(h hostile) { h.weights(`{"a": {"x": ` + strings.Repeat("[", 20<<20)) }, "plan .", "max depth", 0, 512},
	"header has many tensors": {func(h hostile) {
		h.weights("{" + repeat(300_000, `"t#":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},`) + "}")
	}, "plan .", "more than 262144 tensors", 20, 512},
	"header has many axes": {func(h hostile) {
		h.weights(`{"a": {"dtype": "F32", "shape": [` + strings.Repeat("1,", 10<<20) + "1]}}")
	}, "plan .", "more than 64 numbers", 0, 0},
	"header has a long name": {func(h hostile) { h.weights(`{"` + strings.Repeat("n", 50<<20) + `": {"dtype": "F32"}}`) }, "plan .", "no shape", 10, 512},
	"sizes overflow": {func(h hostile) {
		h.weights(`{"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}}`)
	}, "plan .", "its size overflows", 0, 0},

	"GGUF counts tensors": {func(h hostile) {
		h.write("x.gguf", append([]byte("GGUF\x03\x00\x00\x00"), bytes.Repeat([]byte{0xff}, 1<<20)...))
	}, "plan x.gguf", "the header counts 18446744073709551615 tensors", 0, 0},
	"GGUF has many tensors": {func(h hostile) {
		list := []gguf.Tensor{{Name: "token_embd.weight", Shape: []int{0, 64}}}
		for i := range 200_000 {
			list = append(list, gguf.Tensor{Name: fmt.Sprint("t", i), Shape: []int{0}})
		}
		h.gguf("mamba", list, nil)
	}, "generate -n 1 --model x.gguf --ids 1", "vocab_size is 0", 15, 512},
	"GGUF has a long list": {func(h hostile) {
		list := []gguf.Tensor{{Name: "token_embd.weight", Shape: []int{8, 64}, Data: make([]byte, 2048)}}
		for i := range 20_000 {
			list = append(list, gguf.Tensor{Name: fmt.Sprintf("blk.%d.attn_q.weight", i), Shape: []int{0}})
		}
		h.gguf("granitehybrid", list, make([]int32, 10<<20))
	}, "generate -n 1 --model x.gguf --ids 1", "granitehybrid.attention.head_count_kv", 10, 1024},
	"GGUF has many tokens": {func(h hostile) {
		h.metadata(nil, gguf.Pair{Key: "tokenizer.ggml.model", Value: "gpt2"}, gguf.Pair{Key: "tokenizer.ggml.tokens", Value: make([]string, 3<<20)})
	}, "tokenize x.gguf", "Krait reads at most 2097152", 10, 1024},
	"pickle has many marks": {func(h hostile) { h.pickle(bytes.Repeat([]byte("("), 60<<20)) }, "plan .", "more than 1048576 values", 0, 512},
	"pickle has many dicts": {func(h hostile) { h.pickle(append([]byte("}q\x00"), bytes.Repeat([]byte("h\x00"), 30<<20)...)) }, "plan .", "more than 1048576 values", 0, 512},
	"pickle nests dicts": {func(h hostile) {
		h.pickle(append([]byte("\x80\x02}"), []byte(strings.Repeat("X\x01\x00\x00\x00a}", 200_000)+strings.Repeat("s", 200_000)+".")...))
	}, "plan .", "more than 8 deep", 0, 256},

	"text grows": {func(h hostile) {
		ten := `{"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"}`
		h.tokenizer(`{"type": "Sequence", "normalizers": [`+ten+","+ten+","+ten+"]}", "null", "a", 1<<20)
	}, "tokenize --jsonl . < text.jsonl", "asks for too much", 0, 0},
	"80 alternatives": {func(h hostile) {
		h.tokenizer("null", `{"type": "Split", "pattern": {"Regex": "`+repeat(79, "a#x|")+`y"}, "behavior": "Isolated", "invert": false}`, "a", 1<<20)
	}, "tokenize --jsonl . < text.jsonl", "asks for too much", 20, 512},
	"tokenizer is deep": {func(h hostile) {
		h.text("tokenizer.json", `{"normalizer": %s`, strings.Repeat(`{"type": "Sequence", "normalizers": [`, 1<<20))
	}, "tokenize .", "max depth", 0, 512},

	"graph has many nodes": {func(h hostile) {
		h.text("x.ir", "graph \"g\" stage=model ranks=1\ninput %%x : f32[t 4]\n%s", repeat(300_000, "%y# = silu %x : f32[t 4]\n"))
	}, "plan x.ir", "more than 262144 nodes", 20, 512},
	"graph has many axes": {func(h hostile) {
		h.text("x.ir", "graph \"g\" stage=model ranks=1\ninput %%x : f32[%s]\n", strings.Repeat("1 ", 1<<20))
	}, "plan x.ir", "more than 6 axes", 0, 0},
	"placement of stars":   {func(h hostile) { h.text("x.place", "%sb split:0\n", strings.Repeat("*a", 50_000)) }, "plan --tp 2 --place x.place", "optional", 0, 0},
	"text that never ends": {func(h hostile) {}, "eval --text /dev/zero", "larger than 256 MiB", 10, 1500},
	"a billion workers":    {func(h hostile) {}, "generate --threads 1000000000 a", "from 1 to 4096", 0, 0},
}

// metadata is a GGUF file.
func (h hostile) metadata(tensors []gguf.Tensor, pairs ...gguf.Pair) {
	var b bytes.Buffer
	if err := gguf.Write(&b, pairs, tensors); err != nil {
		h.Fatal(err)
	}
	h.write("x.gguf", b.Bytes())
}

// gguf is one of a small model, with a list for its layers.
func (h hostile) gguf(arch string, tensors []gguf.Tensor, list []int32) {
	pairs := []gguf.Pair{{Key: "general.architecture", Value: arch}, {Key: arch + ".attention.layer_norm_rms_epsilon", Value: float32(1e-5)}, {Key: arch + ".attention.head_count_kv", Value: list}}
	for _, key := range []string{"embedding_length", "block_count", "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "attention.head_count"} {
		pairs = append(pairs, gguf.Pair{Key: arch + "." + key, Value: uint32(4)})
	}
	h.metadata(tensors, pairs...)
}

// pickle is a folder with a program.
func (h hostile) pickle(program []byte) {
	data, err := torchsave.Archive(program, nil)
	if err != nil {
		h.Fatal(err)
	}
	h.config(nil)
	h.write("pytorch_model.bin", data)
}

// tokenizer is one with parts of its own, and a text of units for it.
func (h hostile) tokenizer(normalizer, preTokenizer, unit string, n int) {
	h.text("tokenizer.json", `{"normalizer": %s, "pre_tokenizer": %s, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`, normalizer, preTokenizer)
	h.text("text.jsonl", `{"text": %q}`, strings.Repeat(unit, n))
}

// TestBounds: hostile input takes little CPU time and memory until its error. The system ends a
// command that takes far more, so that the test itself is bounded. Without KRAIT_TEST_ALL it tries
// a few that take the least.
func TestBounds(t *testing.T) {
	for i, name := range slices.Sorted(maps.Keys(hostiles)) {
		c := hostiles[name]
		if !goldens.All() && (i%4 != 0 || c.cpu > 0) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			h := hostile{t, t.TempDir()}
			c.make(h)
			status, said, mib := h.run(c.args)
			if failed := !status.Success(); failed != (c.want != "") || !strings.Contains(said, c.want) {
				t.Errorf("%v: %.300s", status, said)
			}
			cpu, most := status.UserTime()+status.SystemTime(), max(c.cpu, 5)*time.Second
			room := max(c.mib, 128)
			t.Logf("%v, %d MiB", cpu.Round(time.Millisecond), mib)
			if cpu > most || mib > room {
				t.Errorf("%v of CPU time and %d MiB, want at most %v and %d", cpu, mib, most, room)
			}
		})
	}
}

// run runs a command line in the folder, under limits, and says what memory it took.
func (h hostile) run(line string) (state *os.ProcessState, said string, mib int64) {
	h.Helper()
	line, input, _ := strings.Cut(line, " < ")
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(h.dir, "measured"))
	}
	if err != nil {
		h.Fatal(err)
	}
	c := exec.Command("sh", append([]string{"-c", `ulimit -t 60; ulimit -v 8000000; exec ./measured "$@"`, "sh"}, strings.Fields(line)...)...)
	c.Dir, c.Env = h.dir, append(os.Environ(), "GOGC=100")
	if input != "" {
		f, err := os.Open(filepath.Join(h.dir, input))
		if err != nil {
			h.Fatal(err)
		}
		defer f.Close()
		c.Stdin = f
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	_ = c.Run() // its state tells
	if c.ProcessState == nil {
		h.Fatal("it did not run")
	}
	said, memory, ok := strings.Cut(out.String(), "\nVmHWM:")
	if _, err := fmt.Sscan(memory, &mib); !ok || err != nil {
		h.Fatalf("%v, and it did not say what memory it took: %.300s", c.ProcessState, said)
	}
	return c.ProcessState, said, mib >> 10
}
