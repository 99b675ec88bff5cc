package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// cut shows how a finder cuts a text: added tokens are in <>.
func cut(t testing.TB, tokens []*addedToken, text string) string {
	f, err := newFinder(tokens, asWritten)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	f.split(nil, text, func(token *addedToken, stretch string, start int) {
		if token != nil {
			stretch = "<" + token.content + ">"
		}
		parts = append(parts, stretch)
	})
	return strings.Join(parts, "|")
}

func TestAddedTokens(t *testing.T) {
	tokens := []*addedToken{
		{content: "ab"}, {content: "abcd"}, {content: "bc"},
		{content: "L", lstrip: true}, {content: "R", rstrip: true},
		{content: "word", singleWord: true}, {content: "  "},
	}
	for _, test := range []struct{ name, text, want string }{
		{"longest", "xabcdx", "x|<abcd>|x"},
		{"leftmost", "abcx", "<ab>|cx"},
		{"adjacent", "abab", "<ab>|<ab>"},
		{"none", "xyz", "xyz"},
		{"lstrip", "x \n L x", "x|<L>| x"},
		{"rstrip", "x R \n x", "x |<R>|x"},
		{"not the space of another", "R   L", "<R>|<  >|<L>"},
		{"strips that meet", "R LR  L", "<R>|<L>|<R>|<  >|<L>"},
		{"spaces taken before they are found", "R  x", "<R>|<  >|x"},
		{"single word", "word words 1word éword-word", "<word>| words 1word éword-|<word>"},
		{"a character that ends like a token begins", "Äab", "Ä|<ab>"},
	} {
		if got := cut(t, tokens, test.text); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestLongestToken compares the search in sorted tokens with looking at each.
func TestLongestToken(t *testing.T) {
	text := rapid.StringMatching("[ab\u00e9]{1,8}")
	prop.Check(t, func(t *rapid.T) {
		var tokens []*addedToken
		for _, content := range rapid.SliceOfDistinct(text, func(s string) string { return s }).Draw(t, "tokens") {
			tokens = append(tokens, &addedToken{content: content})
		}
		f, err := newFinder(tokens, asWritten)
		if err != nil {
			t.Fatal(err)
		}
		text := text.Draw(t, "text")
		var want string
		for _, token := range tokens {
			if strings.HasPrefix(text, token.content) && len(token.content) > len(want) {
				want = token.content
			}
		}
		if token, n := f.longest(nil, text); n != len(want) || token != nil && token.content != want {
			t.Fatalf("longest(%q) has %d bytes, want %q", text, n, want)
		}
	})
}

func TestAddedTokensAreLinear(t *testing.T) {
	text := strings.Repeat(" ", 1<<20)
	tokens := []*addedToken{{content: " ", lstrip: true, rstrip: true}}
	f, err := newFinder(tokens, asWritten)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	f.split(nil, text, func(*addedToken, string, int) { found++ })
	if found != 1 {
		t.Errorf("%d tokens, want 1", found)
	}
}

func TestAddedTokenIDs(t *testing.T) {
	added := func(id int, content string) string {
		return fmt.Sprintf(`{"id": %d, "content": %q, "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": true}`, id, content)
	}
	model := `{"vocab": {"a": 0, "b": 1}, "merges": []}`
	file := func(tokens ...string) string {
		return `{"model": ` + model + `, "normalizer": {"type": "Replace", "pattern": {"String": "x"}, "content": ""},
			"added_tokens": [` + strings.Join(tokens, ",") + `]}`
	}
	tok, err := Parse([]byte(file(added(1, "b"), added(2, "<c>"), added(3, "<d>"))))
	if err != nil {
		t.Fatal(err)
	}
	if got := encode(t, tok, "a<c>b<d>", false); !slices.Equal(got, []int{0, 2, 1, 3}) || tok.Size() != 4 {
		t.Errorf("Encode = %v with %d tokens", got, tok.Size())
	}
	if got := tok.Decode([]int{0, 2, 1}, true); got != "a" {
		t.Errorf("Decode without special tokens = %q", got)
	}
	for text, want := range map[string]string{
		file(added(0, "b")):                     `"b" has id 0, where Hugging Face's library would use 1`,
		file(added(7, "<c>")):                   `"<c>" has id 7, where Hugging Face's library would use 2`,
		file(added(-1, "<c>")):                  "not an id",
		file(added(2, "<c>"), added(3, "<c>")):  `"<c>" is there twice`,
		file(added(2, "")):                      "no content",
		file(added(2, "x")):                     "nothing is left",
		file(added(2, "<c>"), added(3, "<cx>")): "the same when normalized",
		file(`{"id": 2, "content": "c"}`):       `has no "single_word"`,
		file(`{"id": 2, "content": "c", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": true, "new": 1}`): `has "new", which is not supported`,
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(…%.60q) = %v, want an error with %q", text[len(text)-60:], err, want)
		}
	}
}
