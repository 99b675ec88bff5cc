package tokenizer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// Patterns of published tokenizers, beside those of the goldens.
const (
	o200kPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	deepseekPattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" +
		"| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)

func mustCompile(t interface{ Fatal(...any) }, pattern string) *regex {
	re, err := compileRegex(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return re
}

func allMatches(p pattern, text string) (found []string) {
	p.matches(nil, text, func(start, end int) { found = append(found, text[start:end]) })
	return found
}

func TestRegexMatches(t *testing.T) {
	for _, test := range []struct{ pattern, text, want string }{
		{gpt2Pattern, "I'll go  to   x's 12ab!?\n\n  y ", "I|'ll| go| | to|  | x|'s| 12|ab|!?|\n\n | y| "},
		{gpt2Pattern, "IT'S \u00a0\u00a0x\u200b", "IT|'|S| \u00a0|\u00a0|x|\u200b"},
		{o200kPattern, "CamelCase IT'S don'T HTTPServer 1234\n x", "Camel|Case| IT'S| don'T| HTTPServer| |123|4|\n| x"},
		{deepseekPattern, "x.foo  (bar)\n\n12 é́!", "x|.foo| | (|bar|)\n\n| é́|!"},
		{`a+(?!b)`, "aab aa", "a|aa"},
		{`a(?=b)`, "ab ac", "a"},
		{`(?i:'s)`, "'s'S'ſ's", "'s|'S|'ſ|'s"},
		{`[^a-c]`, "abcdé", "d|é"},
		{`[a\-]+`, "-a-b", "-a-"},
		{`[-a]+`, "-a-b", "-a-"},
		{`\P{L}\p{^L}`, "1 a", "1 "},
		{`a{2}`, "aaaaa", "aa|aa"},
		{`a{2,}`, "aaaaa a", "aaaaa"},
		{`.+`, "ab\ncd", "ab|cd"},
		{`(a|b)*c`, "abac abd", "abac"},
		{`\S\d\D`, "a1b", "a1b"},
		{`\p{Nd}\p{No}\p{Nl}`, "1²Ⅷ", "1²Ⅷ"},
	} {
		if got := strings.Join(allMatches(mustCompile(t, test.pattern), test.text), "|"); got != test.want {
			t.Errorf("%q on %q\n got %q\nwant %q", test.pattern, test.text, got, test.want)
		}
	}
}

func TestRegexUnsupported(t *testing.T) {
	for pattern, want := range map[string]string{
		`a|`:                            "empty text",
		`\s*`:                           "empty text",
		`(?=a)`:                         "empty text",
		`^a`:                            `"^"`,
		`a$`:                            `"$"`,
		`\bword`:                        `"\\b"`,
		`\w+`:                           `"\\w"`,
		`a+?`:                           `'?' after a repeat`,
		`a++`:                           `'+' after a repeat`,
		`a{1,2}{3}`:                     `'{' after a repeat`,
		`a{2000}`:                       "number up to 1000",
		`a{,3}`:                         "number up to 1000",
		`a{3,2}`:                        "{}",
		`(a{900}){900}`:                 "too large",
		`(?:a*)*b`:                      "repeat of what can be empty",
		`(?<=a)b`:                       `group "(?<="`,
		`(?>a)`:                         `group "(?>a"`,
		`(?i)a`:                         `group "(?i)"`,
		`(?!ab)c`:                       "lookahead of other than one character",
		`(?!a|b)c`:                      "lookahead of other than one character",
		`(a`:                            "group without end",
		`a)`:                            ")",
		`[a`:                            "class without end",
		`[]`:                            "']' in a class",
		`[[:alpha:]]`:                   "'[' in a class",
		`[a&&b]`:                        "&&",
		`[b-a]`:                         "range that goes down",
		`[a-\s]`:                        "range of other than two characters",
		`\p{Han}`:                       `\p{Han}`,
		`\pL`:                           `\p without {}`,
		`\p{L`:                          `\p without {}`,
		`(?i:é)`:                        "not ASCII",
		`(?i:ß|ss)`:                     "not ASCII",
		`(?i:ss)`:                       "fold to one character",
		`(?i:[a-z])`:                    "within (?i:",
		`(?i:\p{L})`:                    "within (?i:",
		`\`:                             `"\\`,
		`\é`:                            `"\\`,
		`{`:                             `"{"`,
		`*a`:                            `"*"`,
		strings.Repeat("(", 100):        "nested groups",
		strings.Repeat("a", 5000):       "too long",
		strings.Repeat("a?", 300) + "b": "too large",
	} {
		_, err := compileRegex(pattern)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("compileRegex(%.30q) = %v, want an error with %q", pattern, err, want)
		}
	}
}

// TestRegexAgainstGo compares with Go's regexp, which has the same priorities
// and everything but lookahead.
func TestRegexAgainstGo(t *testing.T) {
	chars := rapid.SampledFrom([]string{"a", "b", "[ab]", "[^a]", `\s`, ".", "(?i:s)", "(?i:K)", `\p{Lu}`, "é", `[\p{N}x]`})
	var pattern func(depth int) *rapid.Generator[string]
	pattern = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			if depth == 0 {
				return chars.Draw(t, "char")
			}
			inner := pattern(depth - 1)
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				return inner.Draw(t, "part") + inner.Draw(t, "part")
			case 1:
				return "(?:" + inner.Draw(t, "part") + "|" + inner.Draw(t, "part") + ")"
			case 2:
				repeat := rapid.SampledFrom([]string{"?", "*", "+", "{2}", "{1,2}", "{2,}"}).Draw(t, "repeat")
				return "(?:" + inner.Draw(t, "part") + ")" + repeat
			}
			return chars.Draw(t, "char")
		})
	}
	text := rapid.StringOfN(rapid.SampledFrom([]rune("aabb csSſkK\u212AéÉ1x\n ")), 0, 30, -1)
	prop.Check(t, func(t *rapid.T) {
		source := pattern(3).Draw(t, "pattern")
		re, err := compileRegex(source)
		if err != nil {
			return // it can be empty
		}
		text := text.Draw(t, "text")
		// Go's \s is ASCII; the texts have no other white space.
		want := regexp.MustCompile(source).FindAllString(text, -1)
		if got := allMatches(re, text); !slices.Equal(got, want) {
			t.Fatalf("%q on %q = %q, want %q", source, text, got, want)
		}
	})
}

// Backtracking without memory would take n² or 2ⁿ steps for these.
func TestRegexLinear(t *testing.T) {
	text := strings.Repeat("a", 1<<18)
	for _, pattern := range []string{`a*b`, `(a|a)*b`, `(?:a+)+b`, `a*a*a*a*b`, `(a|aa|aaa)+b|ab`} {
		if got := allMatches(mustCompile(t, pattern), text); len(got) > 0 {
			t.Errorf("%q matches %d times, want none", pattern, len(got))
		}
	}
	spaces := strings.Repeat(" ", 1<<18) + "x"
	want := fmt.Sprintf("%d|1|1", 1<<18-1)
	var lengths []string
	for _, s := range allMatches(mustCompile(t, `\s*[\r\n]+|\s+(?!\S)|\s+|x`), spaces) {
		lengths = append(lengths, fmt.Sprint(len(s)))
	}
	if got := strings.Join(lengths, "|"); got != want {
		t.Errorf("lengths of matches = %s, want %s", got, want)
	}
}

// TestMarks: in qwen35 marks belong to words, and in qwen2 they stand with signs.
func TestMarks(t *testing.T) {
	const text = "Cafe\u0301s, \u0928\u092e\u0938\u094d\u0924\u0947 I'LL x\u03012 \u0301!\n\n ok"
	for name, want := range map[string][]string{
		"qwen35": {"Cafe\u0301s", ",", " \u0928\u092e\u0938\u094d\u0924\u0947", " I", "'LL", " x\u0301", "2", " \u0301", "!\n\n", " ok"},
		"qwen2":  {"Cafe", "\u0301s", ",", " \u0928\u092e\u0938", "\u094d\u0924", "\u0947", " I", "'LL", " x", "\u0301", "2", " \u0301!\n\n", " ok"},
	} {
		i := slices.IndexFunc(pres, func(p pre) bool { return strings.Fields(p.names)[0] == name })
		if got := allMatches(mustCompile(t, pres[i].patterns[0]), text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
