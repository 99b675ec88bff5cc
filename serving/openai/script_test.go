package openai_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/serving/openai"
)

// actor is a chat model that says one text, whatever its prompt is.
type actor struct {
	script   string
	template string   // of chats
	specials []string // special tokens, besides <|im_start|> and <|im_end|>
}

// open writes the model's folder, and opens it.
func (a actor) open(t testing.TB, o krait.Options) *krait.Model {
	t.Helper()
	dir := t.TempDir()
	script := a.pieces(t)
	ids, vocab, added := map[string]int{}, map[string]int{}, []map[string]any{}
	for b := range 256 {
		vocab[string(letter(byte(b)))] = b
	}
	for _, piece := range script {
		if !slices.Contains(a.specials, piece) {
			var letters strings.Builder
			for i := range len(piece) {
				letters.WriteRune(letter(piece[i]))
			}
			ids[piece] = len(vocab)
			vocab[letters.String()] = ids[piece]
		}
	}
	for i, piece := range append([]string{"<|im_start|>", "<|im_end|>"}, a.specials...) {
		ids[piece] = len(vocab) + i
		added = append(added, map[string]any{"id": ids[piece], "content": piece, "special": true, "normalized": false, "lstrip": false, "rstrip": false, "single_word": false})
	}
	end, width := ids["<|im_end|>"], len(vocab)+len(added) // of the vocabulary, and of the hidden state
	a.write(t, dir, "tokenizer.json", map[string]any{"version": "1.0", "added_tokens": added, "model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false, "trim_offsets": false}, "decoder": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false, "trim_offsets": false}})
	a.write(t, dir, "tokenizer_config.json", map[string]any{"eos_token": "<|im_end|>", "chat_template": a.template})
	a.write(t, dir, "config.json", map[string]any{"model_type": "mamba", "architectures": []string{"MambaForCausalLM"}, "vocab_size": width, "hidden_size": width, "intermediate_size": 8, "state_size": 4,
		"time_step_rank": 4, "conv_kernel": 4, "num_hidden_layers": 1, "tie_word_embeddings": false, "eos_token_id": end})
	// A token's hidden state is a unit vector, the block adds nothing, and the head says what follows,
	// so surely that a text of temperature 1 is the script.
	next := slices.Repeat([]int{ids[script[0]]}, width)
	for i, piece := range script {
		if next[ids[piece]] = end; i+1 < len(script) {
			next[ids[piece]] = ids[script[i+1]]
		}
	}
	head, embedded := make([]float32, width*width), make([]float32, width*width)
	for id, to := range next {
		embedded[id*width+id], head[to*width+id] = 1, 4
	}
	mixer := "backbone.layers.0.mixer."
	zero, ones := func(shape ...int) []float32 { return make([]float32, product(shape)) }, slices.Repeat([]float32{1}, width)
	err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), []safetensors.Tensor{
		tensor("backbone.embeddings.weight", embedded, width, width), tensor("lm_head.weight", head, width, width), tensor("backbone.norm_f.weight", ones, width), tensor("backbone.layers.0.norm.weight", ones, width),
		tensor(mixer+"in_proj.weight", zero(16, width), 16, width), tensor(mixer+"conv1d.weight", zero(8, 1, 4), 8, 1, 4), tensor(mixer+"conv1d.bias", zero(8), 8), tensor(mixer+"x_proj.weight", zero(12, 8), 12, 8),
		tensor(mixer+"dt_proj.weight", zero(8, 4), 8, 4), tensor(mixer+"dt_proj.bias", zero(8), 8), tensor(mixer+"A_log", zero(8, 4), 8, 4), tensor(mixer+"D", zero(8), 8), tensor(mixer+"out_proj.weight", zero(width, 8), width, 8),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := krait.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pieces cuts the script into tokens of which each comes once, so that it says what follows.
func (a actor) pieces(t testing.TB) (list []string) {
	for rest := a.script; rest != ""; {
		i := slices.IndexFunc(a.specials, func(s string) bool { return strings.HasPrefix(rest, s) && !slices.Contains(list, s) })
		piece := ""
		if i >= 0 {
			piece = a.specials[i]
		} else {
			n := min(2, len(rest))
			for n < len(rest) && (slices.Contains(list, rest[:n]) || len(rest)-n < 6) {
				n++
			}
			for _, s := range a.specials {
				if at := strings.Index(rest, s); at > 0 && n >= at-1 { // no piece is one byte
					n = at
				}
			}
			piece = rest[:n]
		}
		if slices.Contains(list, piece) || len(piece) < 2 {
			t.Fatalf("the script %q needs the piece %q twice", a.script, piece)
		}
		list, rest = append(list, piece), rest[len(piece):]
	}
	return list
}

func (a actor) write(t testing.TB, dir, name string, v any) {
	data, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// letter is how byte-level vocabularies spell a byte.
func letter(b byte) rune {
	printable := func(b byte) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b != 0xad }
	if printable(b) {
		return rune(b)
	}
	n := rune(256)
	for c := range int(b) {
		if !printable(byte(c)) {
			n++
		}
	}
	return n
}

func product(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}

func tensor(name string, values []float32, shape ...int) safetensors.Tensor {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return safetensors.Tensor{Name: name, DType: "F32", Shape: shape, Data: data}
}

// chatting is a template for tests; sign is what it says of calls.
func chatting(sign string) string {
	return `{% if tools %}TOOLS {{ tools | tojson }}{# ` + sign + ` #}
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`
}

// play serves an actor.
func play(t *testing.T, a actor, o openai.Options) *httptest.Server {
	t.Helper()
	m := a.open(t, krait.Options{Slots: 4, PrefixCache: 32 << 20})
	t.Cleanup(func() { m.Close() })
	_, h := serve(t, m, o)
	return h
}

// readAll reads a body.
func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
