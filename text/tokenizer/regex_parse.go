package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxPattern = 4096 // bytes
	maxGroups  = 50   // nested
)

// parseRegex reads a pattern:
//
//	alternatives   a|b
//	groups         (a) (?:a) (?i:a)
//	repeats        a? a* a+ a{2} a{2,} a{2,3}
//	characters     a . [a-z\s] [^a] \s \S \d \D \p{L} \P{L} \p{^L} \n \r \t \f \v
//	lookahead      (?=a) (?!a) with a single character
//
// The rest of Oniguruma is an error that says what and where.
func parseRegex(pattern string) (node, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("pattern of %d bytes is too long (supported: %d)", len(pattern), maxPattern)
	}
	p := &regexParser{pattern: pattern}
	tree := p.alternatives()
	if p.err == nil && p.pos < len(pattern) {
		p.unsupported(")")
	}
	return tree, p.err
}

type regexParser struct {
	pattern string
	pos     int
	depth   int
	fold    bool // inside of (?i:
	err     error
}

// unsupported records the first error, and ends the parse.
func (p *regexParser) unsupported(what string) {
	if p.err == nil {
		p.err = fmt.Errorf("pattern %q has %s at byte %d, which is not supported", p.pattern, what, p.pos)
	}
	p.pos = len(p.pattern)
}

func (p *regexParser) accept(prefix string) bool {
	if !strings.HasPrefix(p.pattern[p.pos:], prefix) {
		return false
	}
	p.pos += len(prefix)
	return true
}

// peek returns the next byte, or 0 at the end.
func (p *regexParser) peek() byte {
	if p.pos == len(p.pattern) {
		return 0
	}
	return p.pattern[p.pos]
}

func (p *regexParser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.pattern[p.pos:])
	p.pos += n
	return r
}

func (p *regexParser) alternatives() node {
	alt := altNode{p.sequence()}
	for p.accept("|") {
		alt = append(alt, p.sequence())
	}
	if len(alt) == 1 {
		return alt[0]
	}
	return alt
}

func (p *regexParser) sequence() node {
	var cat catNode
	for p.pos < len(p.pattern) && p.peek() != '|' && p.peek() != ')' {
		from := p.pos
		part := p.repeat(p.atom())
		if p.fold && len(cat) > 0 && foldTogether(cat[len(cat)-1], part) {
			p.pos = from
			p.unsupported("letters that fold to one character, such as ss to ß,")
		}
		cat = append(cat, part)
	}
	return cat
}

func (p *regexParser) atom() node {
	switch p.peek() {
	case '(':
		return p.group()
	case '[':
		return p.class()
	case '.':
		p.pos++
		return charNode{newCharClass(true, classItem{set: runeSet{{'\n', '\n'}}})}
	case '\\':
		return charNode{newCharClass(false, p.escape())}
	case '^', '$', '*', '+', '?', '{', ']', '}':
		p.unsupported(strconv.Quote(string(p.peek())))
		return catNode{}
	}
	return charNode{newCharClass(false, p.literal(p.rune()))}
}

// literal returns the set of r, or of all that fold to it.
func (p *regexParser) literal(r rune) classItem {
	if !p.fold {
		return classItem{set: runeSet{{r, r}}}
	}
	if r >= utf8.RuneSelf {
		p.unsupported("(?i: with a character that is not ASCII")
	}
	return classItem{set: folds(r)}
}

func (p *regexParser) group() node {
	if p.depth++; p.depth > maxGroups {
		p.unsupported(fmt.Sprintf("more than %d nested groups", maxGroups))
		return catNode{}
	}
	outer := p.fold
	defer func() { p.depth--; p.fold = outer }()

	ahead, none := p.accept("(?="), p.accept("(?!")
	switch {
	case ahead || none:
	case p.accept("(?i:"):
		p.fold = true
	case p.accept("(?:"):
	case strings.HasPrefix(p.pattern[p.pos:], "(?"):
		p.unsupported(fmt.Sprintf("group %.4q", p.pattern[p.pos:]))
		return catNode{}
	default:
		p.accept("(")
	}
	body := p.alternatives()
	if p.err == nil && !p.accept(")") {
		p.unsupported("a group without end")
	}
	if ahead || none {
		return p.lookahead(body, none)
	}
	return body
}

// lookahead takes one character only: with more, time would not be linear.
func (p *regexParser) lookahead(body node, none bool) node {
	cat, ok := body.(catNode)
	if ok && len(cat) == 1 {
		if char, ok := cat[0].(charNode); ok {
			return lookNode{class: char.class, none: none}
		}
	}
	p.unsupported("before it a lookahead of other than one character")
	return catNode{}
}

// repeat reads what may follow an atom.
func (p *regexParser) repeat(atom node) node {
	n := repeatNode{node: atom, max: unlimited}
	switch {
	case p.accept("?"):
		n.max = 1
	case p.accept("*"):
	case p.accept("+"):
		n.min = 1
	case p.accept("{"):
		p.bounds(&n)
	default:
		return atom
	}
	if atom.canBeEmpty() {
		p.unsupported("before it a repeat of what can be empty")
	}
	if next := p.peek(); next == '?' || next == '*' || next == '+' || next == '{' {
		p.unsupported(fmt.Sprintf("%q after a repeat", next))
	}
	return n
}

func (p *regexParser) bounds(n *repeatNode) {
	n.min = p.number()
	n.max = n.min
	if p.accept(",") {
		n.max = unlimited
		if p.peek() != '}' {
			n.max = p.number()
		}
	}
	if !p.accept("}") || n.max != unlimited && (n.max < n.min || n.max == 0) {
		p.unsupported("before it {}")
	}
}

func (p *regexParser) number() int {
	from := p.pos
	for '0' <= p.peek() && p.peek() <= '9' {
		p.pos++
	}
	n, err := strconv.Atoi(p.pattern[from:p.pos])
	if err != nil || n > maxRepeat {
		p.unsupported(fmt.Sprintf("before it a repeat that is not a number up to %d", maxRepeat))
	}
	return n
}
