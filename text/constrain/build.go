package constrain

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/bail"
)

// Words are how values spell false, true and null.
type Words [3]string

const wordNull = 2

// The words of JSON, and of Python's literals.
var (
	JSON   = Words{"false", "true", "null"}
	Python = Words{"False", "True", "None"}
)

// Builder makes a grammar of parts: texts, repetitions and schemas, which share the rules of JSON.
// Its methods panic with their errors, which [Build] returns.
type Builder struct{ c *compiler }

// Part is a text, or one of several, in a grammar that is being built.
type Part int32

// Build makes the grammar of the part that whole returns.
func Build(words Words, whole func(*Builder) Part) (_ *Grammar, err error) {
	defer bail.Catch(&err)
	b := &Builder{newCompiler(words)}
	n := b.c.net
	n.callTo(n.rules[0].start, n.rules[0].end, int32(whole(b)))
	bail.If(n.err)
	if !n.finish() {
		return nil, fmt.Errorf("no text fulfils it, or only one that is nested too deep")
	}
	return &n.Grammar, nil
}

func (b *Builder) part(make func(n *network, r rule)) Part {
	n := b.c.net
	id := n.newRule()
	make(n, n.rules[id])
	bail.If(n.err)
	return Part(id)
}

// Text is one text. It need not be UTF-8: a byte that is in no character may mark a special token.
func (b *Builder) Text(text string) Part {
	return b.part(func(n *network, r rule) { n.empty(n.text(r.start, text), r.end) })
}

// Seq is one part behind the other.
func (b *Builder) Seq(parts ...Part) Part {
	return b.part(func(n *network, r rule) {
		at := r.start
		for _, p := range parts {
			at = n.call(at, int32(p))
		}
		n.empty(at, r.end)
	})
}

// Any is one of several parts.
func (b *Builder) Any(parts ...Part) Part {
	return b.part(func(n *network, r rule) {
		for _, p := range parts {
			n.callTo(r.start, r.end, int32(p))
		}
	})
}

// Times is a part from least to most times; most is negative if there is no bound.
func (b *Builder) Times(p Part, least, most int) Part {
	if most < 0 {
		most = unbounded
	}
	return b.part(func(n *network, r rule) { n.empty(n.times(r.start, int32(p), least, most), r.end) })
}

// Grammar is what another grammar is.
func (b *Builder) Grammar(g *Grammar) Part {
	return b.part(func(n *network, r rule) {
		states, rules, places := int32(len(n.states)), int32(len(n.rules)), int32(len(n.places))
		if len(n.states)+len(g.states) > maxStates {
			n.state()
			panic(fmt.Errorf("the grammar is too large: it takes more than %d states", maxStates))
		}
		for _, s := range g.states {
			s.edges = slices.Clone(s.edges)
			for i := range s.edges {
				if s.edges[i].to += states; s.edges[i].call != noRule {
					s.edges[i].call += rules
				}
			}
			if s.place != 0 {
				s.place += places - 1
			}
			n.states = append(n.states, s)
		}
		for _, other := range g.rules {
			n.rules = append(n.rules, rule{other.start + states, other.end + states})
		}
		for _, p := range g.places[1:] {
			p.closing += states
			n.places = append(n.places, p)
		}
		n.callTo(r.start, r.end, rules)
	})
}

// Until is any text that ends with its first marker.
func (b *Builder) Until(marker string) Part {
	return b.part(func(n *network, r rule) {
		if utf8.ValidString(marker) {
			n.automaton(r.start, r.end, until(marker), n.raw)
			return
		}
		n.automaton(r.start, r.start, lengths(1, 1), n.raw)
		n.empty(n.text(r.start, marker), r.end)
	})
}

// Free is any text without the marker.
func (b *Builder) Free(marker string) Part {
	return b.part(func(n *network, r rule) { n.automaton(r.start, r.end, without(marker), n.raw) })
}

// Unlike is any text that does not begin with the marker.
func (b *Builder) Unlike(marker string) Part {
	return b.part(func(n *network, r rule) { n.automaton(r.start, r.end, unlike(marker), n.raw) })
}

// Schema is a JSON schema in a grammar that is being built.
type Schema struct {
	c    *compiler
	root *value
	node *node
}

// Schema reads a schema.
func (b *Builder) Schema(raw []byte) Schema {
	root, err := parse(raw)
	bail.If(err)
	root.scope(false)
	b.c.root = root
	return Schema{b.c, root, b.c.leaf(root)}
}

// Object is the objects that fulfil a schema.
func (s Schema) Object() Schema {
	kind := &value{at: "#", kind: '{', members: []member{{"type", &value{at: "#/type", kind: '"', text: "object"}}}}
	s.node = s.c.and(s.node, s.c.leaf(kind))
	return s
}

// Property is the schema of a name in properties, which must be there.
func (s Schema) Property(name string) Schema {
	s.node = s.c.leaf(s.root.get("properties").get(name))
	return s
}

// Value is the values that fulfil the schema, as JSON, with the builder's words.
func (s Schema) Value() Part {
	s.c.root = s.root
	id := s.c.rule(s.node)
	bail.If(s.c.net.err)
	if s.c.empty(s.node) {
		panic(fmt.Errorf("%s: no text fulfils it", s.node.place()))
	}
	return Part(id)
}

// Bare is the strings that fulfil the schema, without quotes and escapes, but for those with the
// marker. The schema must have no other values.
func (s Schema) Bare(marker string) Part {
	s.c.root = s.root
	free := without(marker)
	return (&Builder{s.c}).part(func(n *network, r rule) {
		for _, t := range s.c.terms(s.node) {
			if t.kind != "string" {
				panic(fmt.Errorf("%s: it has values that are no strings", s.node.place()))
			}
			a := both(t.text.regular, free)
			if t.text.least > 0 || t.text.most < unbounded {
				most := min(t.text.most, max(t.text.least, maxChars/len(a.arcs)))
				a = both(a, lengths(t.text.least, most))
			}
			n.automaton(r.start, r.end, a, n.raw)
		}
	})
}

// marked walks texts along a marker, of which a state is the length of the longest beginning that
// the text ends with; leaves says where a state goes on, dead if nowhere, and accepts which end.
func marked(marker string, leaves func(state, matched int) int, accepts func(state int) bool) *automaton {
	want := []rune(marker)
	return build(0, func(state int) (list []move[int]) {
		runes := slices.Clone(want)
		slices.Sort(runes)
		from := rune(0)
		add := func(low, high rune, matched int) {
			if to := leaves(state, matched); low <= high && to != dead {
				list = append(list, move[int]{low, high, to})
			}
		}
		for _, c := range slices.Compact(runes) {
			add(from, c-1, 0)
			add(c, c, along(want, state, c))
			from = c + 1
		}
		add(from, utf8.MaxRune, 0)
		return list
	}, accepts)
}

// along is how much of a text is matched behind one more character.
func along(want []rune, state int, c rune) int {
	if state >= len(want) {
		return state
	}
	text := append(slices.Clone(want[:state]), c)
	for n := len(text); n > 0; n-- {
		if slices.Equal(text[len(text)-n:], want[:n]) {
			return n
		}
	}
	return 0
}

// until accepts the texts that end with their first marker.
func until(marker string) *automaton {
	end := utf8.RuneCountInString(marker)
	return marked(marker, func(state, matched int) int {
		if state == end {
			return dead
		}
		return matched
	}, func(state int) bool { return state == end })
}

// without accepts the texts that do not have the marker.
func without(marker string) *automaton {
	if !utf8.ValidString(marker) { // no text has it
		return lengths(0, unbounded)
	}
	end := utf8.RuneCountInString(marker)
	return marked(marker, func(_, matched int) int {
		if matched == end {
			return dead
		}
		return matched
	}, func(int) bool { return true })
}

// unlike accepts the texts that do not begin with the marker.
func unlike(marker string) *automaton {
	if !utf8.ValidString(marker) {
		return lengths(0, unbounded)
	}
	end := utf8.RuneCountInString(marker)
	return marked(marker, func(state, matched int) int {
		switch {
		case state > end || matched != state+1:
			return end + 1 // it has begun with something else
		case matched == end:
			return dead
		}
		return matched
	}, func(int) bool { return true })
}
