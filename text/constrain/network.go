package constrain

import (
	"fmt"
	"math"
	"sync"
)

// Bounds of grammars and texts.
const (
	maxStates = 1 << 16 // of a grammar, of about 80 bytes each
	maxCalls  = 192     // within each other, which is about twice the depth of the text's JSON
	noRule    = -1
	never     = math.MaxInt32
)

// Grammar is what a text may be. It is safe for concurrent use.
type Grammar struct {
	states []state
	rules  []rule
	places []place // the first is none

	// Loose names parts that texts of the grammar are not held to. It is set before texts begin.
	Loose []string

	mu   sync.Mutex
	last *machine // that new texts go to
}

// place is where a string goes on with any character, as it may for least to most more; behind
// these, closing is the state that reads the quote.
type place struct {
	least, most int
	closing     int32
}

// rule is a part of the grammar that others call; the first is the whole text.
type rule struct{ start, end int32 }

type state struct {
	edges []edge
	end   bool  // of a rule
	char  bool  // any character of a string begins here
	need  int32 // calls within each other until the rule's end can be reached
	place int32 // in a string, of any character; 0: none
}

// edge leads to a state: by a byte from low to high, behind a rule, or by nothing.
type edge struct {
	to        int32
	call      int32 // noRule: none
	low, high byte
	empty     bool
}

// network is a grammar that is being made.
type network struct {
	Grammar
	err error
}

func newNetwork() *network {
	return &network{Grammar: Grammar{places: make([]place, 1)}}
}

func (n *network) state() int32 {
	if len(n.states) >= maxStates {
		if n.err == nil {
			n.err = fmt.Errorf("it is too large: it takes more than %d states. Lower its counts, or name fewer values", maxStates)
		}
		return 0
	}
	n.states = append(n.states, state{})
	return int32(len(n.states) - 1)
}

func (n *network) add(from int32, e edge) {
	n.states[from].edges = append(n.states[from].edges, e)
}

// newRule adds a rule that has no edges yet.
func (n *network) newRule() int32 {
	r := rule{n.state(), n.state()}
	n.states[r.end].end = true
	n.rules = append(n.rules, r)
	return int32(len(n.rules) - 1)
}

// empty joins two states.
func (n *network) empty(from, to int32) {
	n.add(from, edge{to: to, call: noRule, empty: true})
}

// read reads a byte of a range, and returns where that leads.
func (n *network) read(from int32, low, high byte) int32 {
	to := n.state()
	n.readTo(from, to, low, high)
	return to
}

func (n *network) readTo(from, to int32, low, high byte) {
	n.add(from, edge{to: to, call: noRule, low: low, high: high})
}

// text reads one text.
func (n *network) text(from int32, text string) int32 {
	for i := range len(text) {
		from = n.read(from, text[i], text[i])
	}
	return from
}

// shared reads one of several texts, each added by a call: equal beginnings have the same states.
// None of its states has other edges that read.
func (n *network) shared(from int32, text string) int32 {
next:
	for i := range len(text) {
		for _, e := range n.states[from].edges {
			if e.call == noRule && !e.empty && e.low == text[i] {
				from = e.to
				continue next
			}
		}
		from = n.read(from, text[i], text[i])
	}
	return from
}

// call reads what a rule is.
func (n *network) call(from, rule int32) int32 {
	to := n.state()
	n.callTo(from, to, rule)
	return to
}

func (n *network) callTo(from, to, rule int32) {
	n.add(from, edge{to: to, call: rule})
}

// spaced reads a text and perhaps a space.
func (n *network) spaced(from int32, text string) int32 {
	from = n.text(from, text)
	to := n.read(from, ' ', ' ')
	n.empty(from, to)
	return to
}

// times calls a rule from least to most times.
func (n *network) times(from, rule int32, least, most int) int32 {
	end := n.state()
	for i := 0; n.err == nil; i++ {
		if i >= least {
			n.empty(from, end)
		}
		if i == most {
			return end
		}
		if most == unbounded && i >= least { // the next is like all that follow
			n.callTo(from, from, rule)
			return end
		}
		from = n.call(from, rule)
	}
	return end
}

// in says that any character of a string may follow a state.
func (n *network) in(at int32, p place) {
	n.states[at].place = int32(len(n.places))
	n.places = append(n.places, p)
}

// finish finds how many calls each state needs, and reports whether the whole has an end. It is
// Knuth's generalization of Dijkstra's algorithm: an edge needs at least what is behind it needs,
// so that states are final in the order of their needs.
func (n *network) finish() bool {
	type back struct{ from, edge int32 }
	before := make([][]back, len(n.states)) // edges that lead to a state, or call the rule that begins there
	var levels [maxCalls + 1][]int32
	for i := range n.states {
		s := &n.states[i]
		if s.need = never; s.end {
			s.need = 0
			levels[0] = append(levels[0], int32(i))
		}
		for j, e := range s.edges {
			before[e.to] = append(before[e.to], back{int32(i), int32(j)})
			if e.call != noRule {
				start := n.rules[e.call].start
				before[start] = append(before[start], back{int32(i), int32(j)})
			}
		}
	}
	for level := range levels {
		for k := 0; k < len(levels[level]); k++ {
			at := levels[level][k]
			if n.states[at].need < int32(level) {
				continue // it was final before
			}
			for _, b := range before[at] {
				s := &n.states[b.from]
				if need := n.needs(s.edges[b.edge]); need < s.need {
					if s.need = need; need <= maxCalls {
						levels[need] = append(levels[need], b.from)
					}
				}
			}
		}
	}
	return n.states[n.rules[0].start].need <= maxCalls
}

func (n *network) needs(e edge) int32 {
	need := n.states[e.to].need
	if e.call != noRule {
		if inner := n.states[n.rules[e.call].start].need; inner == never {
			need = never
		} else {
			need = max(need, inner+1)
		}
	}
	return need
}
