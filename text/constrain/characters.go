package constrain

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// digitsOf reads what an automaton of ASCII accepts, as it is.
func (n *network) digitsOf(from, to int32, a *automaton) {
	n.automaton(from, to, a, func(from, to int32, arcs []arc) {
		for _, e := range arcs {
			n.readTo(from, to, byte(e.low), byte(e.high))
		}
	})
}

// automaton reads what an automaton accepts; read reads one character of some arcs.
func (n *network) automaton(from, to int32, a *automaton, read func(from, to int32, arcs []arc)) {
	if a.empty() {
		return
	}
	states := make([]int32, len(a.arcs))
	for i := range states {
		states[i] = n.state()
	}
	n.empty(from, states[0])
	for s, arcs := range a.arcs {
		if n.err != nil {
			return
		}
		if a.accept[s] {
			n.empty(states[s], to)
		}
		var order []int32
		by := map[int32][]arc{}
		for _, e := range arcs {
			if by[e.to] == nil {
				order = append(order, e.to)
			}
			by[e.to] = append(by[e.to], e)
		}
		for _, t := range order {
			read(states[s], states[t], by[t])
		}
	}
}

// characters reads what an automaton accepts as the inside of a string.
func (c *compiler) characters(from, to int32, a *automaton) {
	c.net.automaton(from, to, a, func(at, next int32, arcs []arc) {
		if arcs[0].low == 0 && arcs[0].high == utf8.MaxRune {
			c.net.callTo(at, next, c.common.char)
			if at == next {
				c.net.in(at, place{0, unbounded, to})
			}
			return
		}
		c.character(at, next, arcs)
	})
}

// The characters of a string are of three parts: printable ASCII, which is read as it is; what
// must be escaped; and all beyond, in UTF-8 or escaped.
const (
	firstPrintable = ' '
	lastASCII      = 0x7f
	beyond         = 0x80
)

// character reads one character of some arcs.
func (c *compiler) character(from, to int32, arcs []arc) {
	n := c.net
	var escapes, wide []arc
	for _, e := range arcs {
		for _, part := range [][2]rune{{0, firstPrintable - 1}, {'"', '"'}, {'\\', '\\'}} {
			if low, high := max(e.low, part[0]), min(e.high, part[1]); low <= high {
				escapes = append(escapes, arc{low: low, high: high})
			}
		}
		for _, part := range [][2]rune{{' ', '!'}, {'#', '['}, {']', lastASCII}} {
			if low, high := max(e.low, part[0]), min(e.high, part[1]); low <= high {
				n.readTo(from, to, byte(low), byte(high))
			}
		}
		for _, part := range [][2]rune{{beyond, 0xd7ff}, {0xe000, utf8.MaxRune}} {
			if low, high := max(e.low, part[0]), min(e.high, part[1]); low <= high {
				wide = append(wide, arc{low: low, high: high})
			}
		}
	}
	for _, part := range []struct {
		name string
		arcs []arc
		read func(r rule, arcs []arc)
	}{{"escapes", escapes, n.escapes}, {"wide", wide, n.wide}} {
		if part.arcs != nil {
			n.callTo(from, to, c.once(part.name+fmt.Sprint(part.arcs), func(r rule) { part.read(r, part.arcs) }))
		}
	}
}

// escapes reads characters of ASCII that must be escaped.
func (n *network) escapes(r rule, arcs []arc) {
	slash := n.read(r.start, '\\', '\\')
	code := n.read(slash, 'u', 'u')
	for _, e := range arcs {
		n.hex(code, r.end, e.low, e.high)
		for i, short := range []byte(`"\bfnrt`) {
			if at := rune("\"\\\b\f\n\r\t"[i]); e.low <= at && at <= e.high {
				n.readTo(slash, r.end, short, short)
			}
		}
	}
}

// wide reads characters beyond ASCII in UTF-8, or escaped; of those beyond 16 bits one alone or
// all are escaped.
func (n *network) wide(r rule, arcs []arc) {
	code := int32(-1)
	for _, e := range arcs {
		n.utf8(r.start, r.end, e.low, e.high)
		if e.low <= math.MaxUint16 {
			if code < 0 {
				code = n.text(r.start, `\u`)
			}
			n.hex(code, r.end, e.low, min(e.high, math.MaxUint16))
		}
		switch {
		case e.low == e.high && e.low > math.MaxUint16:
			n.empty(n.text(r.start, escaped(e.low)), r.end)
		case e.low <= math.MaxUint16+1 && e.high == utf8.MaxRune:
			n.pairs(r.start, r.end)
		}
	}
}

// pairs reads two escaped surrogates.
func (n *network) pairs(from, to int32) {
	second := n.state()
	n.hex(n.text(from, `\u`), second, 0xd800, 0xdbff)
	n.hex(n.text(second, `\u`), to, 0xdc00, 0xdfff)
}

// hex reads the four digits of a number from low to high.
func (n *network) hex(from, to int32, low, high rune) {
	n.span(from, to, low, high, 16, 4, func(from, to int32, low, high rune, _ int) {
		for _, letters := range []string{"0123456789abcdef", "0123456789ABCDEF"}[:1+high/10] {
			for v := low; v <= high; v++ {
				n.readTo(from, to, letters[v], letters[v])
			}
		}
	})
}

// utf8 reads a character from low to high, all beyond ASCII.
func (n *network) utf8(from, to int32, low, high rune) {
	for width, end := range []rune{0x7ff, 0xffff, utf8.MaxRune} {
		if low > end {
			continue
		}
		n.span(from, to, low, min(high, end), 64, width+2, func(from, to int32, low, high rune, place int) {
			first := rune(0x80)
			if place == width+2 {
				first = []rune{0xc0, 0xe0, 0xf0}[width]
			}
			n.readTo(from, to, byte(first+low), byte(first+high))
		})
		if low = end + 1; low > high {
			return
		}
	}
}

// span reads a number from low to high of some digits; digit reads one of a range, at a place
// counted from the last.
func (n *network) span(from, to int32, low, high, base rune, places int, digit func(from, to int32, low, high rune, place int)) {
	if places == 1 {
		digit(from, to, low, high, 1)
		return
	}
	size := rune(1)
	for range places - 1 {
		size *= base
	}
	part := func(first, last, low, high rune) { // digits from first to last, then a number
		at := n.state()
		digit(from, at, first, last, places)
		n.span(at, to, low, high, base, places-1, digit)
	}
	first, last := low/size, high/size
	if first == last {
		part(first, first, low%size, high%size)
		return
	}
	if low%size != 0 {
		part(first, first, low%size, size-1)
		first++
	}
	if high%size != size-1 {
		part(last, last, 0, high%size)
		last--
	}
	if first <= last {
		part(first, last, 0, size-1)
	}
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
