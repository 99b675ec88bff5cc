package constrain

import (
	"fmt"
	"math/big"
	"slices"
)

// numbers is a set of numbers.
type numbers struct {
	integer   bool
	low, high *bound     // nil: none
	multiples []*big.Rat // of all of these
	others    []*big.Rat // of none of these
	values    []*value   // if not nil, only these
}

type bound struct {
	at   *big.Rat
	open bool // the bound itself is outside
}

func (n *numbers) has(v *value) bool {
	r := v.rat()
	if n.integer && !r.IsInt() || n.low != nil && n.low.passes(r, 1) || n.high != nil && n.high.passes(r, -1) {
		return false
	}
	multipleOf := func(m *big.Rat) bool { return new(big.Rat).Quo(r, m).IsInt() }
	if !every(n.multiples, multipleOf) || slices.ContainsFunc(n.others, multipleOf) {
		return false
	}
	return n.values == nil || slices.ContainsFunc(n.values, v.equal)
}

// passes reports whether a number is outside a bound, which is a lower one (1) or an upper (-1).
func (b *bound) passes(r *big.Rat, side int) bool {
	c := b.at.Cmp(r) * side
	return c > 0 || c == 0 && b.open
}

// tighter returns the tighter of two bounds; nil is none.
func tighter(a, b *bound, side int) *bound {
	if a == nil || b != nil && (b.at.Cmp(a.at)*side > 0 || b.at.Cmp(a.at) == 0 && b.open) {
		return b
	}
	return a
}

func (n *numbers) and(m *numbers) *numbers {
	out := &numbers{n.integer || m.integer, tighter(n.low, m.low, 1), tighter(n.high, m.high, -1), slices.Concat(n.multiples, m.multiples), slices.Concat(n.others, m.others), n.values}
	if n.values == nil {
		out.values = m.values
	}
	if out.values != nil {
		out.values = slices.DeleteFunc(slices.Clone(out.values), func(v *value) bool { return !n.has(v) || !m.has(v) })
	}
	return out
}

func (n *numbers) empty() bool {
	if n.values != nil {
		return len(n.values) == 0
	}
	if n.low == nil || n.high == nil {
		return false
	}
	if n.integer { // the first one above the lower bound may be outside
		first := new(big.Int).Div(n.low.at.Num(), n.low.at.Denom())
		if at := new(big.Rat).SetInt(first); n.low.passes(at, 1) {
			first.Add(first, big.NewInt(1))
		}
		if n.high.passes(new(big.Rat).SetInt(first), -1) {
			return true
		}
	}
	c := n.low.at.Cmp(n.high.at)
	return c > 0 || c == 0 && (n.low.open || n.high.open)
}

// not are the numbers outside, as sets.
func (n *numbers) not() (list []*numbers) {
	if n.values != nil {
		sorted := slices.SortedFunc(slices.Values(n.values), func(a, b *value) int { return a.rat().Cmp(b.rat()) })
		var low *bound
		for _, v := range sorted {
			at := &bound{v.rat(), true}
			list, low = append(list, &numbers{low: low, high: at}), at
		}
		return append(list, &numbers{low: low})
	}
	if n.low != nil {
		list = append(list, &numbers{high: &bound{n.low.at, !n.low.open}})
	}
	if n.high != nil {
		list = append(list, &numbers{low: &bound{n.high.at, !n.high.open}})
	}
	if n.integer {
		list = append(list, &numbers{others: []*big.Rat{big.NewRat(1, 1)}})
	}
	for _, m := range n.multiples {
		list = append(list, &numbers{others: []*big.Rat{m}})
	}
	for _, m := range n.others {
		list = append(list, &numbers{multiples: []*big.Rat{m}})
	}
	return list
}

// plain reports whether any number is in the set, or any integer.
func (n *numbers) plain() bool {
	return n.values == nil && n.low == nil && n.high == nil && len(n.multiples)+len(n.others) == 0
}

// Digits of numbers, so that they are finite, and integers exact in float64.
const (
	wholeDigits    = 15
	fractionDigits = 15
	exponentDigits = 2
)

// decimals makes the automaton of the numbers of a sign, without it: digits, and a fraction, but
// no exponent. It compares with the bounds and takes remainders digit by digit.
func (n *numbers) decimals(negative bool) *automaton {
	d := decimals{low: magnitude{}, fraction: fractionDigits, modulus: 1}
	low, high := n.low, n.high
	if negative {
		low, high = negated(n.high), negated(n.low)
	}
	if high != nil && (high.at.Sign() < 0 || high.at.Sign() == 0 && high.open) {
		return among(nil)
	}
	if low != nil && low.at.Sign() < 0 {
		low = nil
	}
	d.low, d.high = newMagnitude(low), newMagnitude(high)
	if n.integer {
		d.fraction = 0
	}
	d.divide(n.multiples, n.others)
	// A digit takes a state for each remainder: the more remainders, the fewer digits.
	for states, width := d.fraction*d.modulus, 1; d.digits < wholeDigits && states+width <= maxAutomaton/2; d.digits++ {
		states, width = states+width, min(10*width, d.modulus)
	}
	d.digits = max(d.digits, len(d.low.whole))
	return build(progress{}, d.moves, d.accepts)
}

func negated(b *bound) *bound {
	if b == nil {
		return nil
	}
	return &bound{new(big.Rat).Neg(b.at), b.open}
}

// magnitude is a bound's digits; without there is none.
type magnitude struct {
	whole, fraction string
	open            bool
	set             bool
}

func newMagnitude(b *bound) magnitude {
	if b == nil {
		return magnitude{}
	}
	digits := 0
	for scale := new(big.Rat).Set(b.at); !scale.IsInt() && digits < 2*maxExponent; digits++ {
		scale.Mul(scale, big.NewRat(10, 1))
	}
	text := b.at.FloatString(digits)
	if digits == 0 {
		return magnitude{whole: text, open: b.open, set: true}
	}
	return magnitude{text[:len(text)-digits-1], text[len(text)-digits:], b.open, true}
}

// decimals are the states' common facts. modulus is what remainders of the number times 10 to the
// fraction's digits are taken of: the least common multiple of what divides it, and what does not.
type decimals struct {
	low, high                 magnitude
	digits, fraction, modulus int
	multiples, others         []int
}

// divide sets the fraction's digits and the modulus. A number that must be no multiple gets a digit
// more than multiples have, if that takes few enough remainders.
func (d *decimals) divide(multiples, others []*big.Rat) {
	digits := 0
	for _, m := range slices.Concat(multiples, others) {
		for ; !scaled(m, digits).IsInt(); digits++ {
		}
	}
	if len(multiples)+len(others) > 0 && !(len(others) > 0 && digits < d.fraction && d.modulo(multiples, others, digits+1)) && !d.modulo(multiples, others, digits) {
		panic(fmt.Errorf("multipleOf is not supported beyond %d times a power of ten, nor are several with a larger least common multiple; use smaller ones", maxModulus))
	}
}

// scaled is a number with its point some digits to the right.
func scaled(m *big.Rat, digits int) *big.Rat {
	return new(big.Rat).Mul(m, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)))
}

// modulo is divide for some digits, unless these take too many remainders.
func (d *decimals) modulo(multiples, others []*big.Rat, digits int) bool {
	beyond := scaled(big.NewRat(1, 1), max(digits-d.fraction, 0)).Num() // what no integer has
	modulus := big.NewInt(1)
	divisors := func(list []*big.Rat) (out []int) {
		for _, m := range list {
			k := scaled(m, digits).Num()
			k.Div(k, new(big.Int).GCD(nil, nil, k, beyond))
			modulus.Div(new(big.Int).Mul(modulus, k), new(big.Int).GCD(nil, nil, modulus, k))
			out = append(out, int(k.Int64()))
		}
		return out
	}
	d.multiples, d.others = divisors(multiples), divisors(others)
	if !modulus.IsInt64() || modulus.Int64() > maxModulus {
		return false
	}
	d.fraction, d.modulus = min(digits, d.fraction), int(modulus.Int64())
	return true
}

// progress is how much of a number was read: digits of the part, whether it is the fraction, how
// what was read compares with the bounds' digits so far, and the remainder.
type progress struct {
	digits    int
	inside    bool // the fraction
	zero      bool // the whole part is 0
	low, high int
	remainder int
}

func (d *decimals) moves(p progress) (list []move[progress]) {
	if p.digits > 0 && !p.inside && d.fraction > 0 {
		q := progress{inside: true, low: d.low.length(p.digits, p.low), high: d.high.length(p.digits, p.high), remainder: p.remainder}
		list = append(list, move[progress]{'.', '.', q})
	}
	if p.zero || p.digits == d.digits && !p.inside || p.digits == d.fraction && p.inside {
		return list
	}
	for c := range 10 {
		q := p
		q.digits++
		q.zero = c == 0 && p.digits == 0 && !p.inside
		q.remainder = (p.remainder*10 + c) % d.modulus
		q.low, q.high = d.low.digit(p, p.low, c), d.high.digit(p, p.high, c)
		list = append(list, move[progress]{'0' + rune(c), '0' + rune(c), q})
	}
	return list
}

// digit compares one digit more.
func (m magnitude) digit(p progress, so, c int) int {
	digits := m.whole
	if p.inside {
		digits = m.fraction
	}
	if !m.set || so != 0 || p.digits >= len(digits) && !p.inside {
		return so
	}
	own := 0
	if p.digits < len(digits) {
		own = int(digits[p.digits] - '0')
	}
	return sign(c - own)
}

// length compares a whole part of some digits: a longer one is more.
func (m magnitude) length(digits, so int) int {
	if m.set && digits != len(m.whole) {
		return sign(digits - len(m.whole))
	}
	return so
}

func (d *decimals) accepts(p progress) bool {
	if p.digits == 0 {
		return false
	}
	scaled := p.remainder
	for range d.fraction - d.place(p) {
		scaled = scaled * 10 % d.modulus
	}
	low, high := d.low.compare(p, p.low), d.high.compare(p, p.high)
	divides := func(k int) bool { return scaled%k == 0 }
	return every(d.multiples, divides) && !slices.ContainsFunc(d.others, divides) && (!d.low.set || low > 0 || low == 0 && !d.low.open) && (!d.high.set || high < 0 || high == 0 && !d.high.open)
}

func (d *decimals) place(p progress) int {
	if p.inside {
		return p.digits
	}
	return 0
}

// compare compares a number that ends here with a bound.
func (m magnitude) compare(p progress, so int) int {
	rest := m.fraction
	if p.inside {
		rest = rest[min(p.digits, len(rest)):]
	} else {
		so = m.length(p.digits, so)
	}
	for i := 0; so == 0 && i < len(rest); i++ {
		so = -int(rest[i] - '0')
	}
	return so
}

func every[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(e T) bool { return !is(e) })
}

func sign(n int) int { return min(max(n, -1), 1) }

func (b *bound) String() string {
	switch {
	case b == nil:
		return "none"
	case b.open:
		return b.at.String() + " excluded"
	}
	return b.at.String()
}
