package constrain_test

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/text/constrain"
)

// TestPlain: which texts choices, expressions and grammars take.
func TestPlain(t *testing.T) {
	gbnf, regex := constrain.GBNF, constrain.Regex
	choice := func(text string) (*constrain.Grammar, error) { return constrain.Choice(strings.Split(text, "|")) }
	for _, c := range []struct {
		make       func(string) (*constrain.Grammar, error)
		from       string
		takes, not []string
	}{
		{choice, "yes|no|日本語", []string{"yes", "no", "日本語"}, []string{"", "ye", "yesno"}},
		{regex, `[a-c]+|\d{2}`, []string{"a", "cab", "42"}, []string{"", "4", "422", "d"}},
		{regex, `a|b`, []string{"a", "b"}, []string{"ab", "xa"}},
		{regex, `日.\u00e9`, []string{"日本é", "日xé"}, []string{"日é", "日\né"}},
		{gbnf, `root ::= "a" ("b" | "c")* # the end`, []string{"a", "abcb"}, []string{"", "b", "ad"}},
		{gbnf, "root ::= item (\",\" item){1,2}\nitem ::=\n  [0-9]+ | \"\\\"\" [^\"\\\\]? \"\\\"\"\n", []string{"1,22", `"é",3,""`}, []string{"1", "1,2,3,4", `"\",1`, `"ab",1`}},
		{gbnf, "root ::= \"(\" root \")\" | .", []string{"x", "((é))"}, []string{"", "()", "((x)"}},
		{gbnf, "# two\nroot ::= a a{2} |\n  \"\\x41\\u00e9\\n\"\na ::= [a-z_-]", []string{"a-_", "Aé\n"}, []string{"ab", "abcd"}},
	} {
		g, err := c.make(c.from)
		if err != nil {
			t.Errorf("%s: %v", c.from, err)
			continue
		}
		for _, text := range c.takes {
			if !g.Takes([]byte(text)) {
				t.Errorf("%s does not take %q", c.from, text)
			}
		}
		for _, text := range c.not {
			if g.Takes([]byte(text)) {
				t.Errorf("%s takes %q", c.from, text)
			}
		}
	}
	for from, want := range map[string]string{
		`rot ::= "a"`: "no rule root", `root = "a"`: `line 1: ::= must follow the name root`, `root ::= b`: "the rule b is used and not defined",
		"root ::= \"a\"\nroot ::= \"b\"": "line 2: the rule root is there twice", `root ::= "a`: "does not end", `root ::= ("a"`: "( has no )",
		`root ::= root "a" | "b"`: "begins with itself", `root ::= a? root | "b"` + "\na ::= \"\"": "begins with itself", `root ::= [z-a]`: "is empty",
		`root ::= "a"{3,2}`: "counts down", `root ::= "\q"`: "unknown escape", `root ::= "a")`: `unexpected ")"`, `root ::= "a" root`: "no text fulfils it",
		"root ::= " + strings.Repeat("(", 300) + `"a"` + strings.Repeat(")", 300): "nest more than", "root ::= " + strings.Repeat(`"a"{9999} `, 7): "more than 65536 states",
	} {
		if _, err := gbnf(from); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v; want %s", from, err, want)
		}
	}
	if _, err := regex(`a)|(?:b`); err == nil {
		t.Error("an expression that closes what it did not open is taken")
	}
	if _, err := constrain.Choice(nil); err == nil {
		t.Error("a choice of nothing is taken")
	}
}

// TestCache: a grammar is compiled once while it is kept, few are kept, and those of one owner do
// not displace those of others.
func TestCache(t *testing.T) {
	var c constrain.Cache
	compiled := 0
	get := func(kind, text string) *constrain.Grammar {
		t.Helper()
		g, err := c.Get("one", kind, []byte(text), func(text []byte) (*constrain.Grammar, error) {
			compiled++
			return constrain.Regex(string(text))
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := get("regex", "a")
	if get("regex", "a") != first || compiled != 1 {
		t.Error("a grammar is compiled twice")
	}
	if get("other", "a") == first {
		t.Error("kinds share a grammar")
	}
	other, err := c.Get("other", "regex", []byte("other"), func(text []byte) (*constrain.Grammar, error) { return constrain.Regex(string(text)) })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		get("regex", strings.Repeat("b", i+1))
	}
	if get("regex", "other") != other {
		t.Error("many grammars of one owner displace the one of another")
	}
	if before := compiled; get("regex", "a") == first || compiled == before {
		t.Error("40 grammars later the first is still kept")
	}
	if _, err := c.Get("one", "regex", []byte("("), func(text []byte) (*constrain.Grammar, error) { return constrain.Regex(string(text)) }); err == nil {
		t.Error("an error is lost")
	}
}
