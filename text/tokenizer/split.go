package tokenizer

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// A pattern finds the delimiters at which a pre-tokenizer splits.
type pattern interface {
	// matches calls yield for each match in text, from left to right. No match is empty.
	matches(m *meter, text string, yield func(start, end int))
}

// A literal matches itself.
type literal string

func (l literal) matches(_ *meter, text string, yield func(start, end int)) {
	for pos := 0; ; {
		i := strings.Index(text[pos:], string(l))
		if i < 0 {
			return
		}
		pos += i + len(l)
		yield(pos-len(l), pos)
	}
}

// matches makes a charClass the pattern of its single characters.
func (c *charClass) matches(_ *meter, text string, yield func(start, end int)) {
	for pos := range text {
		if n := c.match(text, pos); n > 0 {
			yield(pos, pos+n)
		}
	}
}

// pattern reads {"String": …} or {"Regex": …}.
func (o *object) pattern(name string) pattern {
	var kinds map[string]string
	o.required(name, &kinds)
	text, isLiteral := kinds["String"]
	source, isRegex := kinds["Regex"]
	var re *regex
	err := o.err
	switch {
	case err != nil:
	case len(kinds) != 1 || !isLiteral && !isRegex:
		err = errors.New(`it is neither {"String": …} nor {"Regex": …}`)
	case isRegex:
		re, err = compileRegex(source)
	case text == "":
		err = errors.New("the empty text as a pattern is not supported")
	}
	if err != nil {
		o.failField(name, "%w", err)
		return literal(" ")
	}
	if isRegex {
		return re
	}
	return literal(text)
}

// replacement reads what to replace, and by what.
func (o *object) replacement() (p pattern, content string) {
	p, content = o.pattern("pattern"), o.text("content")
	old, isLiteral := p.(literal)
	shortest := 1
	if isLiteral {
		shortest = len(old)
	}
	o.grows((len(content) + shortest - 1) / shortest)
	if !isLiteral || utf8.RuneCountInString(string(old)) > 1 || content == "" {
		o.rewrites()
	}
	return p, content
}

// replaceAll returns text with each match replaced by content.
func replaceAll(m *meter, text string, p pattern, content string) string {
	m.write(len(text))
	if l, ok := p.(literal); ok {
		m.write(strings.Count(text, string(l)) * max(0, len(content)-len(l)))
		return strings.ReplaceAll(text, string(l), content)
	}
	var result strings.Builder
	done := 0
	p.matches(m, text, func(start, end int) {
		m.write(len(content))
		result.WriteString(text[done:start])
		result.WriteString(content)
		done = end
	})
	if done == 0 {
		return text
	}
	result.WriteString(text[done:])
	return result.String()
}

// A behavior says what becomes of the delimiters. A text is cut into spans, which are delimiters or
// what is between them, and join tells whether a span goes together with the one before it.
type behavior struct {
	remove bool
	join   func(last, next bool) bool // which of the two are delimiters
}

func isolated(last, next bool) bool { return false }

// mergedWithNext is what a Metaspace does.
var mergedWithNext = behavior{join: func(last, next bool) bool { return last && !next }}

var behaviors = map[string]behavior{
	"Removed":            {join: isolated, remove: true},
	"Isolated":           {join: isolated},
	"Contiguous":         {join: func(last, next bool) bool { return last == next }},
	"MergedWithPrevious": {join: func(last, next bool) bool { return !last && next }},
	"MergedWithNext":     mergedWithNext,
}

// A splitter cuts a text into pieces at the matches of a pattern, or with
// invert at what is between them.
type splitter struct {
	pattern  pattern
	behavior behavior
	invert   bool
}

func (s splitter) split(m *meter, text string, yield func(start, end int)) {
	c := cutter{splitter: s, yield: yield}
	s.pattern.matches(m, text, c.match)
	c.span(len(text), false)
	c.flush()
}

// A cutter is one run of a splitter.
type cutter struct {
	splitter
	yield func(start, end int)

	start, end int  // the piece so far
	last       bool // whether it ends with a delimiter
}

func (c *cutter) match(start, end int) {
	c.span(start, false)
	c.span(end, true)
}

// span adds the span from the end of the piece to a position.
func (c *cutter) span(to int, match bool) {
	if to == c.end {
		return
	}
	delimiter := match != c.invert
	if !c.behavior.join(c.last, delimiter) {
		c.flush()
	}
	c.end, c.last = to, delimiter
}

// flush yields the piece.
func (c *cutter) flush() {
	if c.start < c.end && !(c.behavior.remove && c.last) {
		c.yield(c.start, c.end)
	}
	c.start = c.end
}
