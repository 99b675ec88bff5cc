package tokenizer

import "unicode/utf8"

// A regex is a pattern of a pre-tokenizer. The patterns are those of Oniguruma, of which parseRegex
// knows the part that tokenizers use; Go's regexp has no lookahead.
//
// It backtracks, so that the first alternative wins. It remembers at which choices it has been and
// failed, so that it is linear in the text, and tries none that begins with another byte.
type regex struct {
	program []inst
	start   int
	choices int // the number of opChoice in program
}

type op uint8

const (
	opChar   op = iota // a character of class, then next
	opAhead            // a character of class comes, then next
	opNoneOf           // no character of class comes, then next
	opChoice           // next or, if that fails, other
	opMatch
)

type inst struct {
	op          op
	class       *charClass
	next, other int
	choice      int     // the number of this opChoice
	first       byteSet // what next may begin with
}

// A byteSet has a bit for each byte.
type byteSet [4]uint64

func (s *byteSet) has(b byte) bool { return s[b/64]>>(b%64)&1 != 0 }

func (s *byteSet) add(o byteSet) {
	for i := range s {
		s[i] |= o[i]
	}
}

// matches calls yield for each match in text, from left to right.
func (re *regex) matches(units *meter, text string, yield func(start, end int)) {
	m := matcher{regex: re, meter: units, text: text, words: (re.choices + 63) / 64}
	m.failed = make([]uint64, m.words*(len(text)+1))
	for pos := 0; pos < len(text); {
		if end := m.match(pos); end >= 0 {
			yield(pos, end)
			pos = end
			continue
		}
		_, n := utf8.DecodeRuneInString(text[pos:])
		pos += n
	}
}

// A matcher is one search through one text.
type matcher struct {
	*regex
	*meter
	text string

	// failed has a bit for each choice at each place in the text, words to a
	// place. A choice that was tried once is not tried again: it failed, or
	// led to a match that ended later, for no pattern matches the empty text.
	failed []uint64
	words  int
	stack  []branch
}

// A branch is an alternative that is still to be tried.
type branch struct{ pc, pos int }

// match returns the end of the match that starts at pos, or -1.
func (m *matcher) match(pos int) int {
	m.stack = m.stack[:0]
	end := m.run(m.start, pos)
	for end < 0 && len(m.stack) > 0 {
		last := m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		end = m.run(last.pc, last.pos)
	}
	return end
}

// run follows the program until it matches, and returns the end, or fails,
// and returns -1. It leaves the alternatives on the stack.
func (m *matcher) run(pc, pos int) int {
	for {
		in := &m.program[pc]
		m.spend(1)
		switch in.op {
		case opMatch:
			return pos
		case opChar:
			n := in.class.match(m.text, pos)
			if n == 0 {
				return -1
			}
			pos += n
		case opAhead:
			if in.class.match(m.text, pos) == 0 {
				return -1
			}
		case opNoneOf:
			if in.class.match(m.text, pos) > 0 {
				return -1
			}
		case opChoice:
			if pos < len(m.text) && !in.first.has(m.text[pos]) {
				pc = in.other
				continue
			}
			word, bit := &m.failed[pos*m.words+in.choice/64], uint64(1)<<(in.choice%64)
			if *word&bit != 0 {
				return -1
			}
			*word |= bit
			m.stack = append(m.stack, branch{in.other, pos})
		}
		pc = in.next
	}
}
