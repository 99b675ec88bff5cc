// Package ptytest has a pseudo-terminal and its screen, for tests of what people see.
package ptytest

import (
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// Screen is what a terminal of some columns shows of the text written to it. It knows the control
// sequences that Krait writes.
type Screen struct {
	mu      sync.Mutex
	columns int
	rows    [][]rune
	x, y    int
	rest    string // of a sequence
	Raw     strings.Builder
}

// NewScreen returns an empty screen, of any number of rows.
func NewScreen(columns int) *Screen { return &Screen{columns: columns, rows: [][]rune{nil}} }

// Text returns the rows, without blanks at their ends.
func (s *Screen) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, row := range s.rows {
		lines = append(lines, strings.TrimRight(strings.ReplaceAll(string(row), string(rune(half)), ""), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// Write takes what a program writes; characters of East Asia and pictures are two columns wide.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Raw.Write(p)
	text := []rune(s.rest + string(p))
	s.rest = ""
	for i := 0; i < len(text); i++ {
		if text[i] != '\x1b' {
			s.put(text[i])
			continue
		}
		end := i + 1
		for end < len(text) && !(text[end] >= 'a' && text[end] <= 'z' || text[end] >= 'A' && text[end] <= 'Z') {
			end++
		}
		if end == len(text) {
			s.rest = string(text[i:])
			break
		}
		s.control(string(text[i+1:end]), text[end])
		i = end
	}
	return len(p), nil
}

func (s *Screen) put(r rune) {
	switch {
	case r == '\r':
		s.x = 0
		return
	case r == '\n':
		s.x, s.y = 0, s.y+1 // the terminal returns the carriage
	case r == '\a':
		return
	case r == '\t':
		s.x = min(s.columns-1, (s.x/8+1)*8)
		return
	default:
		if s.x+wide(r) > s.columns {
			s.x, s.y = 0, s.y+1
		}
	}
	for len(s.rows) <= s.y {
		s.rows = append(s.rows, nil)
	}
	if r == '\n' {
		return
	}
	for len(s.rows[s.y]) < s.x+wide(r) {
		s.rows[s.y] = append(s.rows[s.y], ' ')
	}
	s.rows[s.y][s.x] = r
	if wide(r) == 2 {
		s.rows[s.y][s.x+1] = half
	}
	s.x += wide(r)
}

// half is the second column of a wide character.
const half = 0

// wide returns the columns of a character.
func wide(r rune) int {
	if unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) || r >= 0x1f300 && r < 0x20000 {
		return 2
	}
	return 1
}

// control does a control sequence.
func (s *Screen) control(arguments string, kind rune) {
	if strings.ContainsRune("mhl", kind) {
		return // nothing moves
	}
	n, err := strconv.Atoi(strings.TrimPrefix(arguments, "["))
	if err != nil || n == 0 {
		n = 1
	}
	s.x = min(s.x, s.columns-1)
	switch kind {
	case 'A':
		s.y = max(0, s.y-n)
	case 'B':
		s.y += n
	case 'C':
		s.x = min(s.columns-1, s.x+n)
	case 'D':
		s.x = max(0, s.x-n)
	case 'J', 'K':
		if row := s.rows[min(s.y, len(s.rows)-1)]; s.y < len(s.rows) && len(row) > s.x {
			s.rows[s.y] = row[:s.x]
		}
		if kind == 'J' {
			s.rows = s.rows[:min(len(s.rows), s.y+1)]
		}
	}
	for len(s.rows) <= s.y {
		s.rows = append(s.rows, nil)
	}
}
