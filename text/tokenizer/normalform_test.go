package tokenizer

import (
	"strings"
	"testing"
	"unicode"

	"github.com/krait-ml/krait/internal/prop"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// TestNormalForms compares with package norm on texts for which it gives what
// Unicode 9 defines: no later characters, no long runs of marks.
func TestNormalForms(t *testing.T) {
	char := rapid.OneOf(
		rapid.Rune(),
		rapid.SampledFrom([]rune("aeoqÅ\u212B\u1E69ṩﬁ½²가각힣ệậ")),
		rapid.SampledFrom([]rune("\u0301\u0307\u0323\u0302\u0327\u031B\u0345\u05B0\u3099")),
		rapid.RuneFrom(nil, unicode.Hangul, unicode.Devanagari, unicode.Malayalam),
	).Filter(func(r rune) bool { return !inertCompatibility().contains(r) })
	forms := map[norm.Form]normalForm{norm.NFC: nfc, norm.NFD: nfd, norm.NFKC: nfkc, norm.NFKD: nfkd}
	prop.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(char, 0, 20, -1).Draw(t, "text")
		for form, f := range forms {
			if got, want := f.normalize(nil, text), form.String(text); got != want {
				t.Fatalf("form %d of %+q = %+q, want %+q", form, text, got, want)
			}
		}
	})
}

func TestNormalFormExceptions(t *testing.T) {
	dots := strings.Repeat("\u0323", 40)
	for _, test := range []struct {
		name string
		f    normalForm
		text string
		want string
	}{
		{"more than 30 marks", nfc, "e\u0301" + dots, "ẹ" + dots[2:] + "\u0301"},
		{"marks in order", nfd, "e\u0301" + dots, "e" + dots + "\u0301"},
		{"a later mark", nfc, "a\u0898\u0301", "a\u0898\u0301"},
		{"a later mark between", nfc, "a\u1DFA\u0301 a\u0301", "a\u1DFA\u0301 á"},
		{"a later composition", nfc, "\U00011935\U00011930 a\u0301", "\U00011935\U00011930 á"},
		{"a later composed character", nfd, "\U00011938 á", "\U00011938 a\u0301"},
		{"a later compatibility character", nfkc, "\u32FF ﬁ", "\u32FF fi"},
		{"Hangul", nfc, "\u1112\u1161\u11AB", "한"},
		{"Hangul", nfd, "한", "\u1112\u1161\u11AB"},
		{"a composition exclusion", nfc, "\u0915\u093C", "\u0915\u093C"},
	} {
		if got := test.f.normalize(nil, test.text); got != test.want {
			t.Errorf("%s: normalize(%+q) = %+q, want %+q", test.name, test.text, got, test.want)
		}
	}
}
