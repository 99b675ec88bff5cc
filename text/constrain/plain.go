package constrain

import (
	"fmt"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/bail"
)

// Grammars of texts that are no JSON.

// plain makes a grammar whose whole text is one rule.
func plain(make func(n *network, r rule)) (_ *Grammar, err error) {
	defer bail.Catch(&err)
	n := newNetwork()
	make(n, n.rules[n.newRule()])
	if n.err != nil {
		return nil, n.err
	}
	if !n.finish() {
		return nil, fmt.Errorf("no text fulfils it, or only one that is nested too deep")
	}
	return &n.Grammar, nil
}

// Choice is the grammar of some texts.
func Choice(texts []string) (*Grammar, error) {
	return plain(func(n *network, r rule) {
		for _, text := range texts {
			if !utf8.ValidString(text) {
				panic(fmt.Errorf("%q is not UTF-8", short(text)))
			}
			n.empty(n.shared(r.start, text), r.end)
		}
	})
}

// Regex is the grammar of the texts that a regular expression of ECMA-262 matches as a whole.
func Regex(expression string) (*Grammar, error) {
	return plain(func(n *network, r rule) {
		if _, _, err := parseExpression(expression); err != nil { // alone, so that the brackets below cannot make it another
			panic(fmt.Errorf("%q is not supported: %w", short(expression), err))
		}
		a, _, err := pattern("^(?:" + expression + ")$")
		bail.If(err)
		n.automaton(r.start, r.end, a, n.raw)
	})
}

// raw reads one character of some arcs, as it is.
func (n *network) raw(from, to int32, arcs []arc) {
	for _, e := range arcs {
		if low, high := e.low, min(e.high, lastASCII); low <= high {
			n.readTo(from, to, byte(low), byte(high))
		}
		for _, part := range [][2]rune{{beyond, 0xd7ff}, {0xe000, utf8.MaxRune}} {
			if low, high := max(e.low, part[0]), min(e.high, part[1]); low <= high {
				n.utf8(from, to, low, high)
			}
		}
	}
}
