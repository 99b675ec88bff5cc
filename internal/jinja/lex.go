package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is what a token is.
type kind uint8

const (
	end kind = iota // of the template
	text
	outBegin // {{
	outEnd
	tagBegin // {%
	tagEnd
	name
	integer
	float
	str
	op
)

// token is a piece of a template.
type token struct {
	kind kind
	text string // of a string, what it stands for
	line int
}

func (t token) String() string {
	switch t.kind {
	case end:
		return "the end of the template"
	case outBegin, outEnd, tagBegin, tagEnd, op, name:
		return strconv.Quote(t.text)
	case str:
		return "the string " + strconv.Quote(t.text)
	}
	return t.text
}

// lexer cuts a template into tokens, with trim_blocks and lstrip_blocks, as transformers has
// them on.
type lexer struct {
	src       string
	at        int
	line      int
	lineStart bool // the last token ended a line
	tokens    []token
}

func lex(src string) []token {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	src = strings.TrimSuffix(src, "\n")
	l := &lexer{src: src, line: 1, lineStart: true}
	for l.at < len(l.src) {
		l.next()
	}
	l.add(end, "")
	return l.tokens
}

func (l *lexer) add(k kind, text string) { l.tokens = append(l.tokens, token{k, text, l.line}) }

func (l *lexer) fail(format string, args ...any) error {
	return &Error{Line: l.line, Message: fmt.Sprintf(format, args...)}
}

// skip goes on by n bytes.
func (l *lexer) skip(n int) {
	passed := l.src[l.at : l.at+n]
	l.line += strings.Count(passed, "\n")
	if n > 0 {
		l.lineStart = strings.HasSuffix(passed, "\n")
	}
	l.at += n
}

// next takes text up to a tag, and the tag.
func (l *lexer) next() {
	rest := l.src[l.at:]
	n := tagStart(rest)
	if n < 0 {
		l.add(text, rest)
		l.skip(len(rest))
		return
	}
	before, open := rest[:n], rest[n:n+2]
	sign := byte(0)
	if n+2 < len(rest) && (rest[n+2] == '-' || rest[n+2] == '+') {
		sign = rest[n+2]
	}
	if shown := l.before(before, open, sign); shown != "" {
		l.add(text, shown)
	}
	l.skip(n)
	signed := 2
	if sign != 0 {
		signed = 3
	}
	switch body, raw := rawTag(rest[n+signed:]); {
	case open == "{#":
		l.comment(signed)
	case open == "{{":
		l.add(outBegin, "{{")
		l.skip(signed)
		l.inside(outEnd, "}}")
	case raw:
		l.skip(signed + body)
		l.raw()
	default:
		l.add(tagBegin, "{%")
		l.skip(signed)
		l.inside(tagEnd, "%}")
	}
}

// before is the text before a tag, without what the tag strips of it.
func (l *lexer) before(text, open string, sign byte) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, space)
	case sign == '+' || open == "{{":
		return text
	}
	at := strings.LastIndexByte(text, '\n') + 1
	if (at > 0 || l.lineStart) && strings.TrimFunc(text[at:], space) == "" {
		return text[:at]
	}
	return text
}

// tagStart is where the first tag begins, or -1.
func tagStart(s string) int {
	for from := 0; ; {
		i := strings.IndexByte(s[from:], '{')
		if i < 0 || from+i+1 >= len(s) {
			return -1
		}
		if from += i; strings.IndexByte("{%#", s[from+1]) >= 0 {
			return from
		}
		from++
	}
}

func (l *lexer) comment(signed int) {
	n := strings.Index(l.src[l.at+signed:], "#}")
	if n < 0 {
		panic(l.fail("a comment has no end"))
	}
	n += signed
	sign := byte(0)
	if n > signed {
		sign = l.src[l.at+n-1]
	}
	l.skip(n + 2)
	l.after(sign, true)
}

// after skips what the end of a tag strips of the text behind it.
func (l *lexer) after(sign byte, block bool) {
	switch rest := l.src[l.at:]; {
	case sign == '-':
		l.skip(len(rest) - len(strings.TrimLeftFunc(rest, space)))
	case block && sign != '+' && strings.HasPrefix(rest, "\n"):
		l.skip(1)
	}
}

// rawTag reports whether the inside of a tag is raw, and how long it is with its end.
func rawTag(s string) (n int, ok bool) {
	t, ok := strings.CutPrefix(strings.TrimLeftFunc(s, space), "raw")
	t = strings.TrimLeftFunc(t, space)
	if dash, found := strings.CutPrefix(t, "-"); ok && found && strings.HasPrefix(dash, "%}") {
		return len(s) - len(strings.TrimLeftFunc(dash[2:], space)), true
	}
	t, found := strings.CutPrefix(t, "%}")
	return len(s) - len(t), ok && found
}

// raw takes all up to endraw as text.
func (l *lexer) raw() {
	rest := l.src[l.at:]
	for from := 0; ; from += 2 {
		i := strings.Index(rest[from:], "{%")
		if i < 0 {
			panic(l.fail("raw has no endraw"))
		}
		from += i
		sign, inner := byte(0), rest[from+2:]
		if inner != "" && (inner[0] == '-' || inner[0] == '+') {
			sign, inner = inner[0], inner[1:]
		}
		word := strings.TrimLeftFunc(inner, space)
		tail, ok := strings.CutPrefix(word, "endraw")
		tail = strings.TrimLeftFunc(tail, space)
		if !ok || !strings.HasPrefix(strings.TrimLeft(tail, "+-"), "%}") {
			continue
		}
		if shown := l.before(rest[:from], "{%", sign); shown != "" {
			l.add(text, shown)
		}
		closing := byte(0)
		if tail[0] != '%' {
			closing, tail = tail[0], tail[1:]
		}
		l.skip(len(rest) - len(tail) + 2)
		l.after(closing, true)
		return
	}
}

// operators, the longest first.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", "=", ">", "<", ".", ":", "|", ",", ";"}

// inside takes the tokens of a tag, up to its end where no bracket is open.
func (l *lexer) inside(close kind, closing string) {
	var open []byte
	for {
		rest := l.src[l.at:]
		trimmed := strings.TrimLeftFunc(rest, space)
		l.skip(len(rest) - len(trimmed))
		rest = trimmed
		if rest == "" {
			panic(l.fail("a tag has no end: %s is missing", closing))
		}
		if len(open) == 0 {
			sign := byte(0)
			if rest[0] == '-' || rest[0] == '+' && close == tagEnd {
				sign = rest[0]
			}
			n := 0
			if sign != 0 {
				n = 1
			}
			if strings.HasPrefix(rest[n:], closing) {
				l.add(close, closing)
				l.skip(n + 2)
				l.after(sign, close == tagEnd)
				return
			}
		}
		l.token(rest, &open)
	}
}

// token takes one token of a tag; open are the brackets around it.
func (l *lexer) token(rest string, open *[]byte) {
	switch c := rest[0]; {
	case c == '\'' || c == '"':
		l.quoted(rest)
		return
	case c >= '0' && c <= '9':
		l.number(rest)
		return
	case c == '_' || c >= utf8.RuneSelf || unicode.IsLetter(rune(c)):
		n := strings.IndexFunc(rest, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if n < 0 {
			n = len(rest)
		}
		if n == 0 {
			panic(l.fail("unexpected character %q", rest[:1]))
		}
		l.add(name, rest[:n])
		l.skip(n)
		return
	}
	for _, o := range operators {
		if !strings.HasPrefix(rest, o) {
			continue
		}
		switch o {
		case "(", "[", "{":
			*open = append(*open, o[0])
		case ")", "]", "}":
			pairs := map[string]byte{")": '(', "]": '[', "}": '{'}
			n := len(*open)
			if n == 0 || (*open)[n-1] != pairs[o] {
				panic(l.fail("unexpected %q", o))
			}
			*open = (*open)[:n-1]
		}
		l.add(op, o)
		l.skip(len(o))
		return
	}
	r, _ := utf8.DecodeRuneInString(rest)
	panic(l.fail("unexpected character %q", r))
}

func (l *lexer) number(rest string) {
	n := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '_' })
	if n < 0 {
		n = len(rest)
	}
	k := integer
	digits := func(from int) int {
		for from < len(rest) && rest[from] >= '0' && rest[from] <= '9' {
			from++
		}
		return from
	}
	if n < len(rest) && rest[n] == '.' && digits(n+1) > n+1 {
		k, n = float, digits(n+1)
	}
	if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
		at := n + 1
		if at < len(rest) && (rest[at] == '+' || rest[at] == '-') {
			at++
		}
		if digits(at) > at {
			k, n = float, digits(at)
		}
	}
	l.add(k, strings.ReplaceAll(rest[:n], "_", ""))
	l.skip(n)
}

// quoted takes a string, whose escapes are Python's.
func (l *lexer) quoted(rest string) {
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == rest[0]:
			l.add(str, b.String())
			l.skip(i + 1)
			return
		case c == '\\' && i+1 < len(rest):
			i += l.unescape(&b, rest[i+1:])
		default:
			b.WriteByte(c)
		}
	}
	panic(l.fail("a string has no end"))
}

var escapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", 'b': "\b", 'f': "\f", 'a': "\a", 'v': "\v", '\\': "\\", '\'': "'", '"': `"`, '\n': ""}

// unescape writes what an escape stands for, and returns its length without the backslash.
func (l *lexer) unescape(b *strings.Builder, s string) int {
	if e, ok := escapes[s[0]]; ok {
		b.WriteString(e)
		return 1
	}
	hex := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[0]]
	if hex > 0 {
		if len(s) <= hex {
			panic(l.fail(`\%c needs %d hexadecimal digits`, s[0], hex))
		}
		v, err := strconv.ParseUint(s[1:1+hex], 16, 32)
		if err != nil || v > unicode.MaxRune {
			panic(l.fail(`\%s is not a character`, s[:1+hex]))
		}
		b.WriteRune(rune(v))
		return 1 + hex
	}
	n := 0
	for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
		n++
	}
	if n > 0 {
		v, _ := strconv.ParseUint(s[:n], 8, 32)
		b.WriteRune(rune(v))
		return n
	}
	b.WriteByte('\\') // an unknown one stands for itself
	return 0
}

// space is what Python takes for white.
func space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
