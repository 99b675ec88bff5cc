package terminal

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

// Wrapped writes Markdown to a terminal as it comes, word by word. Lines of prose break at the
// width of the window and continue below the text of their list item or quotation; code and tables
// are written as they are. Headings and code have styles. A status line may stand below the text.
type Wrapped struct {
	w      io.Writer
	width  func() int
	status string
	below  bool // the status is on the screen
	drawn  time.Time

	out   strings.Builder // to be written
	style string          // of what is in out

	word     []rune // not in out yet
	gap      int    // blanks before it
	column   int    // where the text ends
	indent   string // of further lines of a broken one
	prose    bool   // the line has a word that is no mark
	verbatim bool   // the line is not broken
	heading  bool
	code     bool // inside of `code`
	fenced   bool // inside of a block of code
}

// fence begins and ends a block of code.
const fence = "```"

// NewWrapped returns a writer to a terminal.
func NewWrapped(w io.Writer) *Wrapped {
	return &Wrapped{w: w, width: func() int { return widthOf(w) }}
}

// Write writes text, whose characters must be whole. Control characters are shown, not obeyed.
func (t *Wrapped) Write(p []byte) (int, error) {
	for _, r := range string(p) {
		t.take(shown(r))
	}
	return len(p), t.flush()
}

// Status sets the line below the text, which the next Write shows; empty: none.
func (t *Wrapped) Status(text string) { t.status = text }

// End writes what is left, and ends the line.
func (t *Wrapped) End() error {
	t.take('\n')
	t.Status("")
	return t.flush()
}

// shown returns the picture of a control character.
func shown(r rune) rune {
	switch {
	case r == '\n', r == '\t':
		return r
	case r < ' ':
		return 0x2400 + r
	case r >= 0x7f && r < 0xa0, unicode.Is(unicode.Bidi_Control, r):
		return unicode.ReplacementChar
	}
	return r
}

func (t *Wrapped) take(r rune) {
	switch {
	case r == '\n':
		t.put()
		t.newline("")
		t.indent, t.prose, t.verbatim, t.heading, t.code = "", false, false, false, false
	case t.verbatim:
		t.char(r)
	case unicode.IsSpace(r):
		t.put()
		t.gap++
	default:
		if columns(r) == 2 { // a line may break before it
			t.put()
		}
		t.word = append(t.word, r)
		t.begin()
		if columns(r) == 2 || len(t.word) >= t.width() {
			t.put()
		}
	}
}

// begin decides at the beginning of a line whether it is broken.
func (t *Wrapped) begin() {
	if t.prose || t.verbatim {
		return
	}
	word := string(t.word)
	switch {
	case word == fence:
		t.fenced, t.verbatim = !t.fenced, true
	case t.fenced:
		t.verbatim = !strings.HasPrefix(fence, word)
	default:
		t.verbatim = word[0] == '|'
	}
	if t.verbatim {
		t.put()
	}
}

// put writes the word, on the next line if there is no room.
func (t *Wrapped) put() {
	n := 0
	for _, r := range t.word {
		n += columns(r)
	}
	switch {
	case n == 0:
		return
	case !t.prose && !t.verbatim && t.mark(string(t.word)):
	case t.prose && t.column+t.gap+n >= t.width(): // the last column stays empty
		t.newline(t.indent)
	case !t.prose:
		if t.indent += strings.Repeat(" ", t.gap); len(t.indent) > t.width()/2 {
			t.indent = ""
		}
		t.prose = !t.verbatim
	}
	for range t.gap {
		t.char(' ')
	}
	for _, r := range t.word {
		t.char(r)
	}
	t.word, t.gap = t.word[:0], 0
}

// mark takes a word at the beginning of a line if it marks an item, a quotation or a heading.
func (t *Wrapped) mark(word string) bool {
	number := strings.TrimRight(word, ".)")
	switch {
	case word == ">":
		t.indent += strings.Repeat(" ", t.gap) + ">"
	case word == "-", word == "*", word == "+", len(word) < 5 && len(number) == len(word)-1 && strings.Trim(number, "0123456789") == "" && number != "":
		t.indent += strings.Repeat(" ", t.gap+len(word))
	case strings.Trim(word, "#") == "" && len(word) <= 6:
		t.heading = true
	default:
		return false
	}
	return true
}

// newline begins a line.
func (t *Wrapped) newline(indent string) {
	t.styled("")
	t.out.WriteString("\n" + indent)
	t.column, t.gap = len(indent), 0
}

// char writes a character in its style, or a tab's blanks.
func (t *Wrapped) char(r rune) {
	if r == '\t' {
		for range 8 - t.column%8 {
			t.char(' ')
		}
		return
	}
	if r == '`' && !t.verbatim {
		t.code = !t.code
	}
	switch {
	case t.fenced, t.code, r == '`', t.verbatim && len(t.word) >= len(fence):
		t.styled("36")
	case t.heading:
		t.styled("1")
	default:
		t.styled("")
	}
	t.out.WriteRune(r)
	t.column += columns(r)
}

func (t *Wrapped) styled(code string) {
	if code == t.style || plain() {
		return
	}
	if t.style = code; code == "" {
		code = "0"
	}
	fmt.Fprintf(&t.out, "\x1b[0;%sm", code)
}

// flush writes what there is, and the status below it. Where the text fills the last column, it
// leaves the status out: terminals differ in where the cursor then is. A new status alone waits.
func (t *Wrapped) flush() error {
	t.styled("")
	now := time.Now()
	if t.out.Len() == 0 && t.status != "" && now.Sub(t.drawn) < redraw {
		return nil
	}
	t.drawn = now
	text := t.out.String()
	t.out.Reset()
	if t.below {
		text = "\x1b[J" + text
	}
	width := t.width()
	column := t.column % width
	t.below = t.status != "" && (column > 0 || t.column == 0)
	if t.below {
		status := []rune(t.status)
		text += "\n" + Dim(string(status[:min(len(status), width-1)])) + "\x1b[A\r"
		if column > 0 {
			text += fmt.Sprintf("\x1b[%dC", column)
		}
	}
	if text == "" {
		return nil
	}
	_, err := io.WriteString(t.w, text)
	return err
}

// Break returns text whose lines break at words at the width of w. Where w is no terminal, it
// returns the text as it is.
func Break(w io.Writer, text string) string {
	if !Is(w) {
		return text
	}
	return broken(text, widthOf(w))
}

func broken(text string, width int) string {
	var out strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			out.WriteByte('\n')
		}
		column := 0
		for j, word := range strings.Split(line, " ") {
			n := 0
			for _, r := range word {
				n += columns(r)
			}
			switch {
			case j > 0 && column+1+n > width:
				out.WriteByte('\n')
				column = 0
			case j > 0:
				out.WriteByte(' ')
				column++
			}
			out.WriteString(word)
			column += n
		}
	}
	return out.String()
}
