package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// A charClass is what one step of a pattern matches: a character that is in one of the items, or
// with negated, in none. It only refers to the large sets, so that a pattern takes little memory.
type charClass struct {
	ascii   [2]uint64 // the answers for ASCII, a bit each
	items   []classItem
	negated bool
}

type classItem struct {
	set     runeSet
	negated bool
}

func newCharClass(negated bool, items ...classItem) *charClass {
	class := &charClass{items: items, negated: negated}
	for r := range rune(utf8.RuneSelf) {
		if class.search(r) {
			class.ascii[r/64] |= 1 << (r % 64)
		}
	}
	return class
}

func (c *charClass) search(r rune) bool {
	for _, item := range c.items {
		if item.set.contains(r) != item.negated {
			return !c.negated
		}
	}
	return c.negated
}

// match returns the length of the character of c that text has at pos, or 0.
func (c *charClass) match(text string, pos int) int {
	if pos == len(text) {
		return 0
	}
	if b := text[pos]; b < utf8.RuneSelf {
		return int(c.ascii[b/64] >> (b % 64) & 1)
	}
	if r, n := utf8.DecodeRuneInString(text[pos:]); c.search(r) {
		return n
	}
	return 0
}

// firstBytes returns the bytes with which characters of c may begin; beyond ASCII that may be any.
func (c *charClass) firstBytes() byteSet {
	return byteSet{c.ascii[0], c.ascii[1], ^uint64(0), ^uint64(0)}
}

// folds returns the characters that are r when case is ignored.
func folds(r rune) runeSet {
	set := runeSet{{r, r}}
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		set = append(set, runeRange{next, next})
	}
	return union(set)
}
