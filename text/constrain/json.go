package constrain

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// common are the rules of JSON that all grammars share.
type common struct {
	char, str, number, integer, any, object int32
}

// newCommon adds the rules of values of any kind. Rule 0 must be there.
func newCommon(n *network) common {
	c := common{char: n.newRule(), str: n.newRule(), number: n.newRule(), integer: n.newRule(), any: n.newRule(), object: n.newRule()}
	n.chars(n.rules[c.char])
	n.string(n.rules[c.str], c.char, 0, -1)
	n.integers(n.rules[c.integer])
	n.numbers(n.rules[c.number], c.integer)
	n.mapping(n.rules[c.object], c.str, c.any)
	array := n.newRule()
	n.array(n.rules[array], c.any, 0, -1)
	any := n.rules[c.any]
	for _, r := range []int32{c.str, c.number, c.object, array} {
		n.callTo(any.start, any.end, r)
	}
	for _, word := range []string{"true", "false", "null"} {
		n.empty(n.text(any.start, word), any.end)
	}
	return c
}

// chars reads one character of a string: as it is, in UTF-8, or escaped; no half of a pair.
func (n *network) chars(r rule) {
	n.readTo(r.start, r.end, ' ', '!')
	n.readTo(r.start, r.end, '#', '[')
	n.readTo(r.start, r.end, ']', 0x7f)
	escape := n.read(r.start, '\\', '\\')
	for _, b := range []byte(`"\/bfnrt`) {
		n.readTo(escape, r.end, b, b)
	}
	n.code(n.text(escape, "u"), r.end)

	last := n.state()
	n.readTo(last, r.end, 0x80, 0xbf)
	n.readTo(r.start, last, 0xc2, 0xdf)
	third := func(low, high byte) int32 { // what two bytes follow, of which the first is of a range
		s := n.state()
		n.readTo(s, last, low, high)
		return s
	}
	full := third(0x80, 0xbf)
	n.readTo(r.start, third(0xa0, 0xbf), 0xe0, 0xe0)
	n.readTo(r.start, full, 0xe1, 0xec)
	n.readTo(r.start, third(0x80, 0x9f), 0xed, 0xed)
	n.readTo(r.start, full, 0xee, 0xef)
	for _, four := range [][4]byte{{0xf0, 0xf0, 0x90, 0xbf}, {0xf1, 0xf3, 0x80, 0xbf}, {0xf4, 0xf4, 0x80, 0x8f}} {
		n.readTo(n.read(r.start, four[0], four[1]), full, four[2], four[3])
	}
}

// hex reads a digit of base 16 among those up to a value.
func (n *network) hex(from, to int32, low, high int) {
	for v := low; v <= high; v++ {
		for _, digits := range []string{"0123456789abcdef", "0123456789ABCDEF"}[:1+v/10] {
			n.readTo(from, to, digits[v], digits[v])
		}
	}
}

// code reads the four digits behind \u, but for surrogates.
func (n *network) code(from, to int32) {
	second, low, third, fourth := n.state(), n.state(), n.state(), n.state()
	n.hex(from, second, 0, 0xc)
	n.hex(from, low, 0xd, 0xd)
	n.hex(from, second, 0xe, 0xf)
	n.hex(second, third, 0, 0xf)
	n.hex(low, third, 0, 7)
	n.hex(third, fourth, 0, 0xf)
	n.hex(fourth, to, 0, 0xf)
}

func (n *network) string(r rule, char int32, least, most int) {
	at := n.times(n.text(r.start, `"`), char, least, most, "")
	n.readTo(at, r.end, '"', '"')
}

// Digits of numbers, so that they are finite, and integers exact in float64.
const (
	wholeDigits    = 15
	fractionDigits = 15
	exponentDigits = 2
)

// digits reads from 1 to count digits.
func (n *network) digits(from, to int32, count int) {
	for range count {
		from = n.read(from, '0', '9')
		n.empty(from, to)
	}
}

func (n *network) integers(r rule) {
	at := n.read(r.start, '-', '-')
	n.empty(r.start, at)
	n.readTo(at, r.end, '0', '0')
	at = n.read(at, '1', '9')
	n.empty(at, r.end)
	n.digits(at, r.end, wholeDigits-1)
}

func (n *network) numbers(r rule, integer int32) {
	at := n.call(r.start, integer)
	fraction := n.state()
	n.empty(at, fraction)
	n.digits(n.text(at, "."), fraction, fractionDigits)
	n.empty(fraction, r.end)
	exponent := n.read(fraction, 'e', 'e')
	n.readTo(fraction, exponent, 'E', 'E')
	sign := n.read(exponent, '+', '+')
	n.readTo(exponent, sign, '-', '-')
	n.empty(exponent, sign)
	n.digits(sign, r.end, exponentDigits)
}

func (n *network) array(r rule, item int32, least, most int) {
	at := n.times(n.text(r.start, "["), item, least, most, ",")
	n.readTo(at, r.end, ']', ']')
}

// mapping reads an object of any keys.
func (n *network) mapping(r rule, key, value int32) {
	member := n.newRule()
	m := n.rules[member]
	n.callTo(n.spaced(n.call(m.start, key), ":"), m.end, value)
	at := n.times(n.text(r.start, "{"), member, 0, -1, ",")
	n.readTo(at, r.end, '}', '}')
}

// quoted reads one text as a string: what is not ASCII as it is, or escaped.
func (n *network) quoted(from int32, text string) int32 {
	from = n.shared(from, `"`)
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			from = n.shared(from, `\`+string(c))
		case c < ' ' || c == 0x7f:
			from = n.shared(from, escaped(c))
		case c < utf8.RuneSelf:
			from = n.shared(from, string(c))
		default:
			to := n.shared(from, string(c))
			n.empty(n.shared(from, escaped(c)), to)
			from = to
		}
	}
	return n.shared(from, `"`)
}

func escaped(c rune) string {
	unit := func(c rune) string {
		hex := strconv.FormatInt(int64(c), 16)
		return `\u` + "0000"[len(hex):] + hex
	}
	if c > math.MaxUint16 {
		c -= 0x10000
		return unit(0xd800+c>>10) + unit(0xdc00+c&0x3ff)
	}
	return unit(c)
}
