package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// ErrInterrupt is Ctrl-C before anything is typed.
var ErrInterrupt = errors.New("interrupted")

// Editor reads messages that a user types on a terminal: with line editing, a history, completion,
// and lines that are pasted together.
type Editor struct {
	in, out  *os.File
	history  *History
	complete func(head string) []string
	keys     keys
}

// Prompts of a message, and of its further lines.
const prompt, promptMore = "> ", "  "

// NewEditor returns an editor on a terminal. Tab calls complete with the line up to the cursor,
// which returns what may stand in its place; nil: nothing is completed.
func NewEditor(in, out *os.File, h *History, complete func(head string) []string) *Editor {
	return &Editor{in: in, out: out, history: h, complete: complete, keys: keys{in: in, out: out}}
}

// Read returns the next message. Its lines are those that end with a backslash or are pasted, and
// the last. The error is io.EOF after Ctrl-D, ErrInterrupt after Ctrl-C, or the context's cause.
func (e *Editor) Read(ctx context.Context) (string, error) {
	was, err := term.MakeRaw(int(e.in.Fd()))
	if err != nil {
		return "", err
	}
	defer term.Restore(int(e.in.Fd()), was)
	io.WriteString(e.out, "\x1b[?2004h") // brackets around what is pasted
	defer io.WriteString(e.out, "\x1b[?2004l")
	type message struct {
		text string
		err  error
	}
	done := make(chan message, 1)
	go func() {
		text, err := e.message()
		done <- message{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case m := <-done:
		return m.text, m.err
	}
}

func (e *Editor) message() (string, error) {
	t := e.terminal()
	var lines []string
	for {
		text, err := t.line(len(lines) > 0)
		text = clean(text)
		switch {
		case err == errDropped && t.empty:
			return "", ErrInterrupt
		case err == errDropped:
			io.WriteString(e.out, "^C\r\n")
			t, lines = e.terminal(), nil
			continue
		case err != nil:
			io.WriteString(e.out, "\r\n")
			return "", err
		}
		head, more := strings.CutSuffix(text, `\`)
		if e.keys.pasted {
			head, more = text, true
		}
		if lines = append(lines, head); !more {
			break
		}
	}
	text := strings.ReplaceAll(strings.Join(lines, "\n"), folded, "\n")
	e.history.add(text)
	return text, nil
}

// screen is a message on the screen.
type screen struct {
	*term.Terminal
	more, empty bool // whether it has lines already; whether it was dropped with nothing in it
}

// terminal begins a message.
func (e *Editor) terminal() *screen {
	s := &screen{Terminal: term.NewTerminal(&e.keys, prompt)}
	s.History = recall{e.history}
	s.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) {
		switch {
		case key == dropKey:
			e.keys.drop = s.more || line == ""
			s.empty = line == "" && !s.more
			if e.keys.drop {
				return line, len(line), true
			}
			return "", 0, true
		case key != '\t' || e.complete == nil:
			return edited(line[:pos], line[pos:], key)
		case s.more:
			return line, pos, true
		}
		head := clean(line[:pos])
		head = filled(completed(s, head, e.complete(head)))
		return head + line[pos:], len(head), true
	}
	e.keys.before = func() {
		if width, height, err := term.GetSize(int(e.out.Fd())); err == nil {
			s.SetSize(width, height)
		}
	}
	e.keys.before()
	return s
}

// edited does a key that moves by one character, or deletes one: with its filler.
func edited(before, after string, key rune) (line string, pos int, ok bool) {
	last := strings.TrimSuffix(before, filler)
	_, n := utf8.DecodeLastRuneInString(last)
	last = last[:len(last)-n]
	_, n = utf8.DecodeRuneInString(after)
	rest := strings.TrimPrefix(after[n:], filler)
	switch key {
	case leftKey:
		return before + after, len(last), true
	case rightKey:
		return before + after, len(before) + len(after) - len(rest), true
	case backKey:
		return last + after, len(last), true
	case deleteKey:
		return before + rest, len(before), true
	}
	return "", 0, false
}

// line reads a line.
func (s *screen) line(more bool) (string, error) {
	if s.more = more; more {
		s.SetPrompt(promptMore)
	}
	text, err := s.ReadLine()
	if err == error(term.ErrPasteIndicator) {
		err = nil // keys know it
	}
	return text, err
}

// completed returns what all choices begin with. If that is nothing more than there is, it lists
// the choices.
func completed(w io.Writer, head string, choices []string) string {
	if len(choices) == 0 {
		return head
	}
	common := choices[0]
	for _, c := range choices {
		for !strings.HasPrefix(c, common) {
			common = common[:len(common)-1]
		}
	}
	if len(common) > len(head) {
		return common
	}
	if len(choices) > 1 {
		io.WriteString(w, strings.Join(choices, " ")+"\n")
	}
	return head
}
