// Package jinja runs templates in the language of Jinja2, as much of it as chat templates of
// checkpoints use, with the settings that transformers gives them: trim_blocks, lstrip_blocks,
// break and continue, generation, and a sandbox in which nothing can be changed but namespaces.
//
// A template comes with a checkpoint, and may be hostile: work, memory, output and depth
// are bounded, and there is nothing that it could read. What Jinja2 has and this has not
// is refused by name when the template is parsed.
//
//	t, err := jinja.Parse("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
//	if err != nil { … }
//	list, err := jinja.Of(messages)
//	text, err := t.Render(map[string]any{"messages": list}, jinja.Limits{})
package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/krait-ml/krait/internal/bail"
)

// Error is what is wrong with a template, or what it did wrong.
type Error struct {
	Line    int // of the template, from 1 on; 0: not known
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Message)
}

// Raised is what a template refused by raise_exception: messages that it cannot render.
type Raised struct{ Message string }

func (e *Raised) Error() string { return e.Message }

// Limits bound what a rendering may take. The zero value is the defaults.
type Limits struct {
	Work   int // steps of evaluation, bytes of texts counting a 16th each; 0: 2,000,000
	Memory int // bytes of texts and lists that are made, all together; 0: 64 MiB
	Output int // bytes; 0: 16 MiB
	// Now is what strftime_now formats; nil: the time of the rendering.
	Now func() time.Time
}

// longest is how many bytes of a template are read.
const longest = 1 << 20

// Template is a template that was parsed. It may be rendered by several goroutines at once.
type Template struct{ body []node }

// Parse reads a template. An error is an [*Error].
func Parse(source string) (t *Template, err error) {
	if len(source) > longest {
		return nil, &Error{Message: fmt.Sprintf("a template of %d bytes; up to %d are read", len(source), longest)}
	}
	defer bail.Catch(&err)
	p := &parser{tokens: lex(source)}
	body, _ := p.body()
	return &Template{body}, nil
}

// Render renders the template with these variables, which are values that [Of] gives and
// are not changed. An error is an [*Error], or a [*Raised].
func (t *Template) Render(vars map[string]any, l Limits) (text string, err error) {
	s := newState(l, vars)
	defer func() {
		var e *Error
		var raised *Raised
		if err != nil && !errors.As(err, &e) && !errors.As(err, &raised) {
			err = &Error{Line: s.line, Message: err.Error()}
		}
	}()
	defer bail.Catch(&err)
	s.run(t.body)
	return s.out.String(), nil
}

// state is the state of one rendering.
type state struct {
	out    *strings.Builder
	vars   *scope
	now    func() time.Time
	limits Limits
	work   int    // done
	memory int    // taken
	depth  int    // of expressions and statements
	calls  int    // of macros and loops
	line   int    // of the template, of what is evaluated
	jump   string // break or continue, while it ends the statements of a loop; or empty
}

// scope is the variables of a block, and those around it.
type scope struct {
	vars map[string]any
	up   *scope
}

func (c *scope) find(name string) (any, bool) {
	for ; c != nil; c = c.up {
		if v, ok := c.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

func (c *scope) set(name string, v any) {
	if c.vars == nil {
		c.vars = map[string]any{}
	}
	c.vars[name] = v
}

func newState(l Limits, vars map[string]any) *state {
	or := func(x *int, def int) {
		if *x == 0 {
			*x = def
		}
	}
	or(&l.Work, 2_000_000)
	or(&l.Memory, 64<<20)
	or(&l.Output, 16<<20)
	s := &state{out: &strings.Builder{}, limits: l, now: l.Now}
	if s.now == nil {
		s.now = time.Now
	}
	given := &scope{vars: vars, up: &scope{vars: globals}}
	s.vars = &scope{up: given}
	return s
}

// The errors of limits.
var (
	errWork   = errors.New("the template does more work than a rendering may")
	errMemory = errors.New("the template makes more text than a rendering may hold")
	errOutput = errors.New("the template writes more than a rendering may")
	errDepth  = errors.New("the template is nested, or calls itself, too deep")
)

// step counts work.
func (s *state) step(n int) {
	if s.work += n; s.work > s.limits.Work || n < 0 {
		panic(errWork)
	}
}

// reads counts the work of looking at n bytes or items.
func (s *state) reads(n int) { s.step(1 + n/16) }

// makes counts n bytes that are made.
func (s *state) makes(n int) {
	if s.memory += n; s.memory > s.limits.Memory || n < 0 {
		panic(errMemory)
	}
	s.reads(n)
}

// write appends text to the output. Text that a block captures counts as memory, and as output
// once it is printed.
func (s *state) write(text string) {
	if s.out.Len()+len(text) > s.limits.Output {
		panic(errOutput)
	}
	s.out.WriteString(text)
	s.makes(len(text))
}

// captured is what f writes.
func (s *state) captured(f func()) string {
	outer := s.out
	s.out = &strings.Builder{}
	f()
	text := s.out.String()
	s.out = outer
	return text
}

// inScope runs f with variables of its own.
func (s *state) inScope(f func()) {
	outer := s.vars
	s.vars = &scope{up: outer}
	f()
	s.vars = outer
}
