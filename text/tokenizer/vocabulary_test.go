package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// TestVocabulary: tokenizers that became metadata, and files of these again, give the ids
// and texts of the goldens, but for what lists cannot say: other texts than those in the
// normal form where the file normalizes, and tokens that swallow spaces.
func TestVocabulary(t *testing.T) {
	for name, pre := range map[string]string{"falcon": "falcon", "llama": "default", "llama3": "llama-bpe", "neox": "gpt-2", "neox-pairs": "gpt-2", "qwen2": "qwen2", "tekken": "tekken"} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join("testdata/golden", name)
			_, cases := loadGolden(t, folder)
			v := vocabularyOf(t, folder)
			if v.Pre != pre {
				t.Errorf("texts are cut as %s does, want %s", v.Pre, pre)
			}
			values := map[string]any{}
			v.Metadata(func(key string, value any) { values[key] = value })
			again, err := VocabularyFrom(func(key string) (any, bool) { x, ok := values[key]; return x, ok })
			if err != nil {
				t.Fatal(err)
			}
			tok, err := again.Pipeline()
			if err != nil {
				t.Fatal(err)
			}
			compared := 0
			for _, c := range cases.Cases {
				if c.Optional || !norm.NFC.IsNormalString(c.Text) {
					continue
				}
				ids, err := tok.Encode(c.Text, true)
				if err != nil || !slices.Equal(ids, c.IDsSpecial) {
					t.Errorf("%s: %.60q: got %v, %v, want %v", c.Name, c.Text, ids, err, c.IDsSpecial)
				}
				if text := tok.Decode(c.IDsSpecial, true); text != c.DecodedSkip {
					t.Errorf("%s: decoded %.60q, want %.60q", c.Name, text, c.DecodedSkip)
				}
				compared++
			}
			if compared < 60 {
				t.Errorf("%d cases compared", compared)
			}
		})
	}
}

func vocabularyOf(t *testing.T, folder string) *Vocabulary {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := VocabularyOf(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestVocabularyErrors: what does not fit together is an error that says what.
func TestVocabularyErrors(t *testing.T) {
	good := func() *Vocabulary {
		return &Vocabulary{Model: "gpt2", Pre: "gpt-2", Tokens: []string{"a", "b", "ab"}, BOS: -1, EOS: -1, Unknown: -1, Pad: -1}
	}
	if _, err := good().Pipeline(); err != nil {
		t.Fatal(err)
	}
	for want, breaks := range map[string]func(v *Vocabulary){
		`the way to cut a text, "gpt-9" (pre), is not known; Krait knows`: func(v *Vocabulary) { v.Pre = "gpt-9" },
		`the model is "bert"; Krait reads gpt2 and llama`:                 func(v *Vocabulary) { v.Model = "bert" },
		"there are 3 tokens, and 1 types":                                 func(v *Vocabulary) { v.Types = []int{1} },
		"the bos token is 3, and there are 3 tokens":                      func(v *Vocabulary) { v.BOS = 3 },
		"token 1 is not UTF-8":                                            func(v *Vocabulary) { v.Tokens[1] = "\xff" },
		"there are no scores of tokens":                                   func(v *Vocabulary) { v.Model = "llama" },
		"tokens are too long, such as number 2": func(v *Vocabulary) {
			v.Model, v.Scores, v.Tokens[2] = "llama", make([]float32, 3), strings.Repeat("x", 1<<16)
		},
	} {
		v := good()
		breaks(v)
		if _, err := v.Pipeline(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	_, err := VocabularyFrom(func(key string) (any, bool) { return 7, key == "tokenizer.ggml.tokens" })
	if want := "tokenizer.ggml.tokens has a value of type int; it must be []string"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestVocabularyUnsaid: what lists cannot say is an error.
func TestVocabularyUnsaid(t *testing.T) {
	for name, want := range map[string]string{"merge-order": "GGUF has no name for a text that is cut by []", "llama-unk": "GGUF has no name for"} {
		data, err := os.ReadFile(filepath.Join("testdata/golden", name, "tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := VocabularyOf(data, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}
