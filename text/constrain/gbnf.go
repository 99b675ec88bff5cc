package constrain

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/bail"
)

// GBNF is the grammar of a text in llama.cpp's notation, whose rule root is the whole.
func GBNF(text string) (*Grammar, error) {
	return plain(func(n *network, r rule) {
		g := gbnf{n: n, text: text, rest: text, names: map[string]int32{}, defined: map[string]bool{}}
		for g.space(true); g.rest != ""; g.space(true) {
			g.rule()
		}
		for name := range g.names {
			if !g.defined[name] {
				g.fail("the rule %s is used and not defined", short(name))
			}
		}
		if !g.defined["root"] {
			g.fail("it has no rule root")
		}
		if n.loops() {
			g.fail("a rule begins with itself; write it as a repetition")
		}
		n.callTo(r.start, r.end, g.names["root"])
	})
}

// gbnf reads a grammar.
type gbnf struct {
	n          *network
	text, rest string
	names      map[string]int32
	defined    map[string]bool
	depth      int
}

func (g *gbnf) fail(format string, args ...any) {
	read := g.text[:len(g.text)-len(g.rest)]
	panic(fmt.Errorf("line %d: %s", 1+strings.Count(read, "\n"), fmt.Sprintf(format, args...)))
}

// space skips blanks and comments, and line ends if lines.
func (g *gbnf) space(lines bool) {
	blanks := " \t"
	if lines {
		blanks += "\r\n"
	}
	for {
		g.rest = strings.TrimLeft(g.rest, blanks)
		if !strings.HasPrefix(g.rest, "#") {
			return
		}
		_, after, _ := strings.Cut(g.rest, "\n")
		if g.rest = "\n" + after; after == "" {
			g.rest = ""
		}
	}
}

func (g *gbnf) take(prefix string) bool {
	rest, ok := strings.CutPrefix(g.rest, prefix)
	g.rest = rest
	return ok
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

func (g *gbnf) name() string {
	after := strings.TrimLeft(g.rest, nameChars)
	name := g.rest[:len(g.rest)-len(after)]
	g.rest = after
	return name
}

// called is the rule of a name.
func (g *gbnf) called(name string) int32 {
	id, ok := g.names[name]
	if !ok {
		id = g.n.newRule()
		g.names[name] = id
	}
	return id
}

func (g *gbnf) rule() {
	name := g.name()
	if name == "" {
		g.fail("a rule must begin with its name, not %q", short(g.rest))
	}
	g.space(false)
	if !g.take("::=") {
		g.fail("::= must follow the name %s", short(name))
	}
	if g.defined[name] {
		g.fail("the rule %s is there twice", short(name))
	}
	g.defined[name] = true
	r := g.n.rules[g.called(name)]
	g.space(true)
	g.alternatives(r.start, r.end, false)
	if g.rest != "" && !strings.ContainsRune("\r\n", rune(g.rest[0])) {
		g.fail("unexpected %q", short(g.rest))
	}
}

func (g *gbnf) alternatives(from, to int32, inside bool) {
	if g.depth++; g.depth > maxNesting {
		g.fail("brackets nest more than %d deep", maxNesting)
	}
	defer func() { g.depth-- }()
	for {
		at := g.n.state()
		g.n.empty(from, at)
		for g.space(inside); ; g.space(inside) {
			next, ok := g.item(at)
			if !ok {
				break
			}
			bail.If(g.n.err)
			at = next
		}
		g.n.empty(at, to)
		if !g.take("|") {
			return
		}
		g.space(true)
	}
}

// item reads a symbol and how often it comes.
func (g *gbnf) item(from int32) (int32, bool) {
	one, ok := g.symbol()
	if !ok {
		return 0, false
	}
	least, most := 1, 1
	switch {
	case g.take("*"):
		least, most = 0, unbounded
	case g.take("+"):
		most = unbounded
	case g.take("?"):
		least = 0
	case g.take("{"):
		least, most = g.counts()
	}
	return g.n.times(from, one, least, most), true
}

func (g *gbnf) counts() (least, most int) {
	inner, rest, ok := strings.Cut(g.rest, "}")
	low, high, two := strings.Cut(strings.ReplaceAll(inner, " ", ""), ",")
	if !ok || low == "" {
		g.fail("{ needs counts such as {2}, {2,} or {2,3}")
	}
	g.rest = rest
	least = g.number(low)
	switch {
	case !two:
		return least, least
	case high == "":
		return least, unbounded
	}
	if most = g.number(high); most < least {
		g.fail("{%s} counts down", inner)
	}
	return least, most
}

func (g *gbnf) number(text string) (n int) {
	if text == "" || len(text) > 4 || strings.Trim(text, "0123456789") != "" {
		g.fail("%q must be a count of at most 9999", short(text))
	}
	fmt.Sscan(text, &n)
	return n
}

// symbol is the rule of a literal, a class, a name or brackets.
func (g *gbnf) symbol() (int32, bool) {
	n := g.n
	switch {
	case g.take(`"`):
		id := n.newRule()
		at := n.rules[id].start
		for !g.take(`"`) {
			at = n.text(at, string(g.char()))
		}
		n.empty(at, n.rules[id].end)
		return id, true
	case g.take("["):
		id := n.newRule()
		n.raw(n.rules[id].start, n.rules[id].end, g.class())
		return id, true
	case g.take("."):
		id := n.newRule()
		n.raw(n.rules[id].start, n.rules[id].end, []arc{{high: utf8.MaxRune}})
		return id, true
	case g.take("("):
		id := n.newRule()
		g.space(true)
		g.alternatives(n.rules[id].start, n.rules[id].end, true)
		if !g.take(")") {
			g.fail("( has no )")
		}
		return id, true
	}
	name := g.name()
	if name == "" {
		return 0, false
	}
	return g.called(name), true
}

// class reads the characters of brackets.
func (g *gbnf) class() []arc {
	not := g.take("^")
	var a *automaton
	arcs := []arc{}
	for !g.take("]") {
		low := g.char()
		high := low
		if strings.HasPrefix(g.rest, "-") && !strings.HasPrefix(g.rest, "-]") {
			g.rest = g.rest[1:]
			high = g.char()
		}
		if low > high {
			g.fail("the range from %q to %q is empty", low, high)
		}
		arcs = append(arcs, arc{low: low, high: high})
	}
	if !not {
		return arcs
	}
	a = lengths(1, 1) // one character, but none of these
	for _, e := range arcs {
		a = minus(a, &automaton{arcs: [][]arc{{{e.low, e.high, 1}}, nil}, accept: []bool{false, true}})
	}
	return a.arcs[0]
}

// char reads one character of a literal or class.
func (g *gbnf) char() rune {
	c, size := utf8.DecodeRuneInString(g.rest)
	if size == 0 || c == '\n' {
		g.fail("a literal or class does not end")
	}
	if c == utf8.RuneError && size == 1 {
		g.fail("it is not UTF-8")
	}
	g.rest = g.rest[size:]
	if c != '\\' || g.rest == "" {
		return c
	}
	c = rune(g.rest[0])
	g.rest = g.rest[1:]
	if digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[c]; digits > 0 {
		hex := g.rest[:min(len(g.rest), digits)]
		var code rune
		if _, err := fmt.Sscanf(hex, "%x", &code); err != nil || len(hex) < digits || !utf8.ValidRune(code) {
			g.fail(`\%c%s is no character`, c, hex)
		}
		g.rest = g.rest[digits:]
		return code
	}
	if i := strings.IndexRune(`nrt"[]\^-`, c); i >= 0 {
		return rune("\n\r\t\"[]\\^-"[i])
	}
	g.fail(`unknown escape \%c`, c)
	return 0
}

// loops reports whether a rule calls itself before it reads.
func (n *network) loops() bool {
	nullable := make([]bool, len(n.rules))
	for changed := true; changed; {
		changed = false
		for i := range n.rules {
			if !nullable[i] {
				n.opening(int32(i), nullable, func(at int32, _ edge) {
					if n.states[at].end {
						nullable[i], changed = true, true
					}
				})
			}
		}
	}
	const open, done = 1, 2
	seen := make([]int8, len(n.rules))
	var visit func(id int32) bool
	visit = func(id int32) (found bool) {
		if seen[id] != 0 {
			return seen[id] == open
		}
		seen[id] = open
		n.opening(id, nullable, func(_ int32, e edge) { found = found || e.call != noRule && visit(e.call) })
		seen[id] = done
		return found
	}
	for id := range n.rules {
		if visit(int32(id)) {
			return true
		}
	}
	return false
}

// opening visits the states of a rule that are reached without reading, and their edges.
func (n *network) opening(id int32, nullable []bool, visit func(at int32, e edge)) {
	seen := map[int32]bool{}
	for todo := []int32{n.rules[id].start}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		visit(at, edge{call: noRule})
		for _, e := range n.states[at].edges {
			if visit(at, e); e.empty || e.call != noRule && nullable[e.call] {
				todo = append(todo, e.to)
			}
		}
	}
}
