package sampling

import "fmt"

// Stop ends a text at the first stop string in it. The text comes in pieces,
// such as one per token, and a stop string may span several of them: text that
// could be the beginning of one is held back until it is clear whether it is.
//
// Of several stop strings in the text, the one that begins first ends it. The
// stop string itself, and everything after it, is not part of the text.
//
// A Stop is for one text and is not safe for concurrent use.
type Stop struct {
	patterns []pattern
	held     string // the end of the text so far, not emitted yet
	cut      int    // where in held the first stop string begins; -1 if none does
	stopped  bool
}

// NewStop makes a Stop; without strings it lets all text pass. An empty stop string is an error.
func NewStop(strings []string) (*Stop, error) {
	s := &Stop{cut: -1}
	for i, text := range strings {
		if text == "" {
			return nil, fmt.Errorf("stop string %d is empty; it would end every text at once", i)
		}
		s.patterns = append(s.patterns, newPattern(text))
	}
	return s, nil
}

// Push takes the next piece of the text. It returns what can be shown, and
// whether the text has ended; later pieces are then ignored.
func (s *Stop) Push(text string) (emit string, stopped bool) {
	if s.stopped {
		return "", true
	}
	start := len(s.held)
	s.held += text
	for i := start; i < len(s.held); i++ {
		s.advance(i)
	}
	// An earlier beginning that is still open goes before a stop string that is
	// complete: "c" of "abc" must wait when "abcd" is a stop string too.
	open := s.open()
	if s.cut >= 0 && s.cut <= open {
		return s.Flush(), true
	}
	emit, s.held = s.held[:open], s.held[open:]
	if s.cut >= 0 {
		s.cut -= open
	}
	return emit, false
}

// Flush ends the text and returns what was held back of it, up to a stop string.
func (s *Stop) Flush() string {
	rest := s.held
	if s.cut >= 0 {
		rest = rest[:s.cut]
	}
	s.held, s.cut, s.stopped = "", -1, true
	return rest
}

// advance looks at byte i of the held text.
func (s *Stop) advance(i int) {
	for p := range s.patterns {
		if !s.patterns[p].advance(s.held[i]) {
			continue
		}
		if begin := i + 1 - len(s.patterns[p].text); s.cut < 0 || begin < s.cut {
			s.cut = begin
		}
	}
}

// open is the first position in the held text from which on it could be the
// beginning of a stop string.
func (s *Stop) open() int {
	longest := 0
	for _, p := range s.patterns {
		longest = max(longest, p.matched)
	}
	return len(s.held) - longest
}

// pattern finds the first occurrence of a text, byte by byte, in linear time
// (Knuth, Morris and Pratt).
type pattern struct {
	text    string
	border  []int // of each prefix: length of its longest proper prefix that is its suffix too
	matched int   // length of the longest prefix that ends at the current byte
	found   bool
}

func newPattern(text string) pattern {
	p := pattern{text: text, border: make([]int, len(text)+1)}
	n := 0
	for i := 1; i < len(text); i++ {
		n = p.extend(n, text[i])
		p.border[i+1] = n
	}
	return p
}

// advance takes the next byte and reports whether it completes the first
// occurrence. Later ones do not matter: they begin later.
func (p *pattern) advance(b byte) bool {
	if p.found {
		return false
	}
	p.matched = p.extend(p.matched, b)
	if p.found = p.matched == len(p.text); p.found {
		p.matched = 0 // nothing is open any more
	}
	return p.found
}

// extend gives the length of the longest prefix that is matched after byte b,
// when n bytes of one were matched before.
func (p *pattern) extend(n int, b byte) int {
	for n > 0 && p.text[n] != b {
		n = p.border[n]
	}
	if p.text[n] == b {
		n++
	}
	return n
}
