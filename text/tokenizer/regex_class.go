package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// class reads [...].
func (p *regexParser) class() node {
	p.accept("[")
	negated := p.accept("^")
	var items []classItem
	for first := true; first || p.peek() != ']'; first = false {
		if p.pos == len(p.pattern) {
			p.unsupported("a class without end")
			break
		}
		items = append(items, p.classItem())
	}
	p.accept("]")
	return charNode{newCharClass(negated, items...)}
}

// classItem reads a character, a range or an escape.
func (p *regexParser) classItem() classItem {
	switch p.peek() {
	case '[', ']':
		p.unsupported(fmt.Sprintf("%q in a class without \\ before it", p.peek()))
		return classItem{}
	case '&':
		if strings.HasPrefix(p.pattern[p.pos:], "&&") {
			p.unsupported("&&")
			return classItem{}
		}
	}
	low, single := p.classChar()
	rest := p.pattern[p.pos:]
	if !strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "-]") {
		return low
	}
	p.accept("-")
	high, alsoSingle := p.classChar()
	if !single || !alsoSingle || p.fold {
		p.unsupported("before it a range of other than two characters, or within (?i:,")
		return classItem{}
	}
	from, to := low.set[0].low, high.set[0].low
	if to < from {
		p.unsupported("before it a range that goes down")
	}
	return classItem{set: runeSet{{from, to}}}
}

// classChar reads one character or escape, and tells whether it is one character.
func (p *regexParser) classChar() (item classItem, single bool) {
	if p.peek() != '\\' {
		return p.literal(p.rune()), true
	}
	item = p.escape()
	return item, len(item.set) == 1 && item.set[0].low == item.set[0].high
}

// escape reads what begins with a backslash.
func (p *regexParser) escape() classItem {
	p.accept(`\`)
	kind := p.peek()
	switch kind {
	case 'p', 'P':
		return p.property()
	case 's', 'S':
		p.pos++
		return classItem{set: whiteSpace(), negated: kind == 'S'}
	case 'd', 'D':
		p.pos++
		return classItem{set: categories()["Nd"], negated: kind == 'D'}
	}
	if i := strings.IndexByte("nrtfv", kind); i >= 0 {
		p.pos++
		r := rune("\n\r\t\f\v"[i])
		return classItem{set: runeSet{{r, r}}}
	}
	isWord := kind >= utf8.RuneSelf || kind == '_' || kind == 0 ||
		'0' <= kind && kind <= '9' || 'a' <= kind|0x20 && kind|0x20 <= 'z'
	if isWord {
		p.unsupported(strconv.Quote(`\` + string(kind)))
		return classItem{set: runeSet{{0, 0}}}
	}
	p.pos++
	return p.literal(rune(kind))
}

// property reads p{L}, P{L} or p{^L}.
func (p *regexParser) property() classItem {
	from := p.pos
	negated := p.rune() == 'P'
	name, _, closed := strings.Cut(p.pattern[p.pos:], "}")
	if !closed || !strings.HasPrefix(name, "{") || p.fold {
		p.pos = from
		p.unsupported(`a \p without {}, or within (?i:,`)
		return classItem{}
	}
	p.pos += len(name) + 1
	name, not := strings.CutPrefix(name[1:], "^")
	set, ok := categories()[name]
	if !ok {
		p.unsupported(fmt.Sprintf(`before it \p{%s}`, name))
	}
	return classItem{set: set, negated: negated != not}
}

// foldTogether reports whether a character exists that folds to two letters,
// the last of a and the first of b, as ß does to ss: Oniguruma would match it.
func foldTogether(a, b node) bool {
	for _, pair := range []string{"ff", "fi", "fl", "ss", "st"} {
		if matchesByte(a, pair[0]) && matchesByte(b, pair[1]) {
			return true
		}
	}
	return false
}

func matchesByte(n node, b byte) bool {
	switch n := n.(type) {
	case charNode:
		return n.class.search(rune(b))
	case repeatNode:
		return matchesByte(n.node, b)
	case catNode, altNode:
		return true // rare enough not to look into
	}
	return false
}
