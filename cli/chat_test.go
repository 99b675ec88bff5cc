package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/text/chat"
)

// chatty are tokenizers and templates whose roles are special tokens.
var chatty = map[string]string{
	"qwen2":  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
	"llama3": "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
	"tekken": "<s>{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}{{ m.content }}</s>{% endif %}{% endfor %}",
}

// talker is a conversation with random weights of a golden's config.
func talker(t *testing.T, golden, tokens string, ranks int) *conversation {
	t.Helper()
	read := func(path ...string) []byte {
		data, err := os.ReadFile(filepath.Join(append([]string{".."}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	dir := filepath.Join(t.TempDir(), "model")
	o := synth.Options{Config: read("testdata/golden", golden, "config.json"), From: golden, Vocab: 3001, DType: "f32", Seed: 1}
	if _, err := synth.Write(t.Context(), dir, o); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]string{"chat_template": chatty[tokens]})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tokenizer.json": read("text/tokenizer/testdata/golden", tokens, "tokenizer.json"), "tokenizer_config.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := krait.Open(dir, krait.Options{Sharding: krait.Sharding{Ranks: ranks}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	c := &conversation{m: m}
	if c.tokens, err = m.Tokenizer(); err != nil {
		t.Fatal(err)
	}
	if c.template, err = m.ChatTemplate(); err != nil {
		t.Fatal(err)
	}
	if c.seq, err = m.NewSequence(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTalk: with roles that are special tokens, a turn reads what follows the tokens that were fed,
// and no more; its answer is that of a model that reads the whole conversation anew, also after
// undo, and the same turn again is the same.
func TestTalk(t *testing.T) {
	for i, c := range []struct{ golden, tokens string }{{"mamba-a", "tekken"}, {"jamba", "qwen2"}, {"bamba", "llama3"}, {"nemotron-h", "qwen2"}} {
		t.Run(c.golden, func(t *testing.T) {
			t.Parallel()
			testTalk(t, talker(t, c.golden, c.tokens, 1+i%3))
		})
	}
}

func testTalk(t *testing.T, c *conversation) {
	o := krait.Generate{MaxTokens: 6, IgnoreEOS: true}
	quiet := func(string, *reply) {}
	var last []int
	word, err := c.tokens.Encode(" the", false)
	if err != nil {
		t.Fatal(err)
	}
	for turn, text := range []string{"Hello there", "Who are you?", "Where is Babylon?", "And who am I?"} {
		// Answers of a plain word encode as they were generated; those of random weights need not.
		o.LogitBias = nil
		if turn < 2 {
			o.LogitBias = map[int]float64{word[len(word)-1]: 100}
		}
		fed := slices.Clone(c.fed)
		got, err := c.ask(t.Context(), text, o, quiet)
		if err != nil {
			t.Fatal(err)
		}
		// The prompt is what was fed and what was read, or the same text in other tokens.
		before := c.messages[:len(c.messages)-1]
		prompt, err := c.template.Render(before, chat.Options{Generate: true})
		if err != nil {
			t.Fatal(err)
		}
		ids, err := chat.Encode(c.tokens, prompt)
		if err != nil || got.prompt != len(ids) || got.tokens != o.MaxTokens {
			t.Fatalf("turn %d: %+v, and the prompt has %d tokens (%v)", turn, got, len(ids), err)
		}
		read := c.fed[:len(c.fed)-got.tokens]
		if have := c.tokens.Decode(read, false); have != c.tokens.Decode(ids, false) {
			t.Errorf("turn %d: %q was fed, want %q", turn, have, c.tokens.Decode(ids, false))
		}
		switch {
		case turn > 0 && turn < 3 && (!begins(ids, fed) || got.read != len(ids)-len(fed)):
			t.Errorf("turn %d: read %d of %d tokens, and %d were fed before", turn, got.read, len(ids), len(fed))
		case begins(ids, last) && got.read > len(ids)-len(last):
			t.Errorf("turn %d: read %d of %d tokens, and the prompt before had %d", turn, got.read, len(ids), len(last))
		}
		last = ids
		// A sequence that reads all that was fed gives the same answer.
		other, err := c.m.GenerateIDs(t.Context(), read, o)
		if err != nil || !slices.Equal(other.IDs, c.fed[len(read):]) {
			t.Errorf("turn %d: answered %v, and %v when all is read at once (%v)", turn, c.fed[len(read):], other.IDs, err)
		}
		if turn%2 == 0 {
			continue
		}
		// Undone and asked again it is the same, of no more tokens.
		answer := slices.Clone(c.fed)
		if said, err := c.undo(); said != text || err != nil {
			t.Fatal(said, err)
		}
		again, err := c.ask(t.Context(), text, o, quiet)
		if err != nil || again.text != got.text || again.read > got.read || !slices.Equal(c.fed, answer) {
			t.Errorf("turn %d: %+v after undo, %+v before (%v)", turn, again, got, err)
		}
	}
}

// TestExcerpt: the beginning of a text is one line.
func TestExcerpt(t *testing.T) {
	for text, want := range map[string]string{
		"Who are you?":              `"Who are you?"`,
		"Who is\nMoses?\n":          `"Who is Moses?"`,
		strings.Repeat("ä\x1b", 30): `"` + strings.Repeat(`ä\x1b`, 20) + `…"`,
	} {
		if got := excerpt(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
