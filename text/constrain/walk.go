package constrain

import "sync/atomic"

// visit is a branch of the vocabulary, and the set that its bytes lead to.
type visit struct{ branch, set int32 }

// walk sets the bits of the tokens that lead somewhere from a set: first those of a byte, and
// longer ones as long as they take no more than maxWork. It follows classes of bytes, and bytes
// only where those of one class differ. Where any character of a string may come, it does not
// follow each token: the vocabulary knows which stay in the string, and where the others have the
// quote behind which it goes on.
func (m *machine) walk(v *Vocabulary, from int32, mask []int32) {
	todo := []visit{{0, from}}
	for first := true; len(todo) > 0 && (first || m.within()); first = false {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if at.set, todo = m.enter(v, at, mask, todo); at.set == dead {
			continue
		}
		if at.branch != 0 {
			todo = m.follow(v, at, mask, todo)
			continue
		}
		for n, b := range v.children(0) {
			if m.step(at.set, b) != dead {
				v.allowOwn(n, mask)
			}
		}
		w := shapeWalk{m: m, v: v, from: at.set, mask: mask}
		w.below(0, []int32{at.set}, 0, 0)
		todo = append(todo, w.left...)
	}
}

// enter leaves the strings of a set at a branch.
func (m *machine) enter(v *Vocabulary, at visit, mask []int32, todo []visit) (int32, []visit) {
	if v == m.v && m.inString(at) {
		return m.leave(at, mask, todo)
	}
	return at.set, todo
}

// follow sets the bits of the tokens below a branch, in the order of the tree, and adds the
// branches at which strings end.
func (m *machine) follow(v *Vocabulary, from visit, mask []int32, todo []visit) []visit {
	type open struct {
		end int32
		set *set
	}
	stack := []open{{v.branches[from.branch].end, m.sets[from.set]}}
	for n := from.branch + 1; n < stack[0].end && m.within(); {
		for n >= stack[len(stack)-1].end {
			stack = stack[:len(stack)-1]
		}
		at := &v.branches[n]
		to := m.stepOf(stack[len(stack)-1].set, at.b)
		switch {
		case to == dead:
			n = at.end
			continue
		case m.takes(to, at.classes, at.height):
			v.allowBelow(n, mask)
			n = at.end
			continue
		}
		v.allowOwn(n, mask)
		if to, todo = m.enter(v, visit{n, to}, mask, todo); to == dead {
			n = at.end
			continue
		}
		stack = append(stack, open{at.end, m.sets[to]})
		n++
	}
	return todo
}

// inString reports whether leave has something to do.
func (m *machine) inString(at visit) bool {
	return m.anyCharacter(at.set) && m.v.interior().spans[at.branch].between
}

// anyCharacter reports whether some config of a set is in a string of any characters.
func (m *machine) anyCharacter(at int32) bool {
	s := m.sets[at]
	if s.places == 0 {
		s.places = 1
		for _, c := range s.configs {
			if p := m.place(c); p.closing != 0 {
				s.places = 2
			}
		}
	}
	return s.places == 2
}

// place is where in a string of any characters a config is: what follows its next character.
func (m *machine) place(c config) place {
	if !m.g.states[c.state].char {
		return place{}
	}
	return m.g.places[m.g.states[m.frames[c.stack].back].place]
}

// leave sets the bits of the tokens that stay in the strings of a set, adds where others leave
// them, and returns the set of what is left to follow.
func (m *machine) leave(at visit, mask []int32, todo []visit) (int32, []visit) {
	in := m.v.interior()
	span := in.spans[at.branch]
	var rest []config
	for _, c := range m.sets[at.set].configs {
		p := m.place(c)
		if p.closing == 0 {
			rest = append(rest, c)
			continue
		}
		if at.branch == 0 {
			for i, bits := range m.v.inside(p.most) {
				mask[i] |= bits
			}
		} else {
			for _, t := range in.tokens[span.tokens:span.tokensEnd] {
				if int(t.chars-span.chars)-1 <= p.most {
					setBit(mask, t.id)
				}
			}
		}
		behind := m.intern([]config{{p.closing, m.frames[c.stack].below}})
		if behind != dead {
			behind = m.step(behind, '"')
		}
		if behind == dead {
			continue
		}
		if at.branch == 0 {
			quoted, low, high := m.quoted(behind), m.v.closing(p.least), m.v.closing(p.most+1)
			for i, bits := range quoted {
				mask[i] |= bits & high[i] &^ low[i]
			}
			continue
		}
		for _, q := range in.quotes[span.quotes:span.quotesEnd] {
			if n := int(q.chars-span.chars) - 1; n >= 0 && p.least <= n && n <= p.most {
				m.v.allowOwn(q.id, mask)
				todo = append(todo, visit{q.id, behind})
			}
		}
	}
	return m.intern(rest), todo
}

// quoted is the mask of the tokens that leave a string of any characters for a set.
func (m *machine) quoted(behind int32) []int32 {
	s := m.sets[behind]
	if s.quoted == nil {
		s.quoted = make([]int32, m.v.words)
		m.masks += 4 * m.v.words
		tails := m.v.interior().tails
		allow(tails.own(0), s.quoted)
		m.walk(tails, behind, s.quoted)
	}
	return s.quoted
}

// interior is what the vocabulary has for the inside of strings. The lists are in the order of a
// walk, so that those below a branch are a span.
type interior struct {
	tokens  []reading                 // tokens of characters only, the last perhaps in part
	quotes  []reading                 // branches of quotes behind characters
	tails   *Vocabulary               // of tokens with such a quote, what follows it
	spans   []span                    // of branches
	longest int32                     // characters of a token
	masks   []atomic.Pointer[[]int32] // by the most characters of a token
	closing []atomic.Pointer[[]int32] // by the most characters before the quote of a token
}

// reading is a token or branch, and how many characters have begun in or before it.
type reading struct{ id, chars int32 }

// span is what is below a branch.
type span struct {
	tokens, tokensEnd int32
	quotes, quotesEnd int32
	chars             int32 // that its bytes are
	between           bool  // they are whole ones
}

// newInterior walks the vocabulary from the inside of a string.
func (v *Vocabulary) newInterior() *interior {
	n := newNetwork()
	whole, char := n.rules[n.newRule()], n.newRule()
	n.chars(n.rules[char])
	n.callTo(whole.start, whole.start, char)
	n.empty(whole.start, whole.end)
	n.finish()
	m := n.Grammar.machine(v)
	in := &interior{spans: make([]span, len(v.branches)), tails: &Vocabulary{words: v.words}}
	tails, quoted := make([][]byte, len(v.bytes)), []int32(nil)
	var walk func(at visit, chars, depth int32)
	walk = func(at visit, chars, depth int32) {
		between := m.sets[at.set].final
		s := span{tokens: int32(len(in.tokens)), quotes: int32(len(in.quotes)), chars: chars, between: between}
		if between {
			chars++
		}
		for n, b := range v.children(at.branch) {
			if between && b == '"' {
				in.quotes = append(in.quotes, reading{n, s.chars})
				for _, id := range v.below(n) {
					tails[id] = v.bytes[id][depth+1:]
					quoted = append(quoted, id)
				}
			}
			to := m.step(at.set, b)
			if to == dead {
				continue
			}
			for _, id := range v.own(n) {
				in.tokens = append(in.tokens, reading{id, chars})
				in.longest = max(in.longest, chars)
			}
			walk(visit{n, to}, chars, depth+1)
		}
		s.tokensEnd, s.quotesEnd = int32(len(in.tokens)), int32(len(in.quotes))
		in.spans[at.branch] = s
	}
	walk(visit{0, m.intern([]config{{whole.start, 0}})}, 0, 0)
	in.tails.grow(quoted, tails)
	for _, q := range in.quotes {
		in.longest = max(in.longest, q.chars)
	}
	in.masks, in.closing = make([]atomic.Pointer[[]int32], in.longest+1), make([]atomic.Pointer[[]int32], in.longest+1)
	return in
}

// inside is the mask of the tokens that stay in a string of which one character may come, and then
// most more.
func (v *Vocabulary) inside(most int) []int32 {
	in := v.interior()
	chars := int32(min(most, int(in.longest)-1) + 1)
	if mask := in.masks[chars].Load(); mask != nil {
		return *mask
	}
	mask := make([]int32, v.words)
	for _, t := range in.tokens {
		if t.chars <= chars {
			setBit(mask, t.id)
		}
	}
	in.masks[chars].Store(&mask)
	return mask
}

// closing is the mask of the tokens whose first quote comes behind at most some characters.
func (v *Vocabulary) closing(most int) []int32 {
	in := v.interior()
	chars := int32(min(most, int(in.longest)))
	if mask := in.closing[chars].Load(); mask != nil {
		return *mask
	}
	mask := make([]int32, v.words)
	for _, q := range in.quotes {
		if q.chars <= chars {
			allow(v.below(q.id), mask)
		}
	}
	in.closing[chars].Store(&mask)
	return mask
}
