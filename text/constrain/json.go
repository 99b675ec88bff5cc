package constrain

import "unicode/utf8"

// common are the rules of JSON that all grammars share.
type common struct {
	char, str, number, integer, any, object int32
}

// newCommon adds the rules of values of any kind. Rule 0 must be there.
func newCommon(n *network, words Words) common {
	c := common{char: n.newRule(), str: n.newRule(), number: n.newRule(), integer: n.newRule(), any: n.newRule(), object: n.newRule()}
	n.chars(n.rules[c.char])
	n.states[n.rules[c.char].start].char = true
	n.string(n.rules[c.str], c.char, 0, unbounded)
	n.integers(n.rules[c.integer])
	n.numbers(n.rules[c.number], c.integer)
	n.mapping(n.rules[c.object], c.str, c.any)
	array := n.newRule()
	n.array(n.rules[array], c.any)
	any := n.rules[c.any]
	for _, r := range []int32{c.str, c.number, c.object, array} {
		n.callTo(any.start, any.end, r)
	}
	for _, word := range words {
		n.empty(n.text(any.start, word), any.end)
	}
	return c
}

// chars reads one character of a string: as it is, in UTF-8, or escaped; no half of a pair.
func (n *network) chars(r rule) {
	n.readTo(r.start, r.end, ' ', '!')
	n.readTo(r.start, r.end, '#', '[')
	n.readTo(r.start, r.end, ']', lastASCII)
	escape := n.read(r.start, '\\', '\\')
	for _, b := range []byte(`"\/bfnrt`) {
		n.readTo(escape, r.end, b, b)
	}
	code := n.read(escape, 'u', 'u')
	n.hex(code, r.end, 0, 0xd7ff)
	n.hex(code, r.end, 0xe000, 0xffff)
	n.pairs(r.start, r.end)
	n.utf8(r.start, r.end, beyond, 0xd7ff)
	n.utf8(r.start, r.end, 0xe000, utf8.MaxRune)
}

// string reads a string of least to most characters.
func (n *network) string(r rule, char int32, least, most int) {
	first := n.text(r.start, `"`)
	end := n.times(first, char, least, most)
	n.readTo(end, r.end, '"', '"')
	for at, i := first, 0; n.err == nil && i <= most; i++ { // the states in turn
		p := place{max(least-i, 0), most, end}
		if most < unbounded {
			p.most = most - i
		}
		if n.in(at, p); most == unbounded && i >= least {
			return
		}
		at = n.states[at].edges[len(n.states[at].edges)-1].to
	}
}

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

// array reads an array of any length.
func (n *network) array(r rule, item int32) {
	n.list(r, "[", item, ']')
}

// mapping reads an object of any keys.
func (n *network) mapping(r rule, key, value int32) {
	member := n.newRule()
	m := n.rules[member]
	n.callTo(n.spaced(n.call(m.start, key), ":"), m.end, value)
	n.list(r, "{", member, '}')
}

func (n *network) list(r rule, open string, item int32, closing byte) {
	none := n.text(r.start, open)
	some := n.call(none, item)
	n.callTo(n.spaced(some, ","), some, item)
	n.readTo(none, r.end, closing, closing)
	n.readTo(some, r.end, closing, closing)
}

// quoted reads one text as a string: what is not ASCII as it is, or escaped.
func (n *network) quoted(from int32, text string) int32 {
	from = n.read(from, '"', '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			from = n.text(from, `\`+string(c))
		case c < ' ':
			to := n.text(from, escaped(c))
			if i := []byte("\b\f\n\r\t"); c >= '\b' {
				for j, b := range i {
					if rune(b) == c {
						n.empty(n.text(from, `\`+"bfnrt"[j:j+1]), to)
					}
				}
			}
			from = to
		case c < utf8.RuneSelf:
			from = n.text(from, string(c))
		default:
			to := n.text(from, string(c))
			n.empty(n.text(from, escaped(c)), to)
			from = to
		}
	}
	return n.read(from, '"', '"')
}
