package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Sym is a size that is known only when a batch is: one letter in graph text.
type Sym byte

// The symbolic sizes.
const (
	Tokens Sym = 't' // new tokens of all sequences in this step, flattened
	Seqs   Sym = 's' // sequences in this step
	Rows   Sym = 'o' // rows whose logits are wanted
	Cached Sym = 'c' // tokens in the attention caches of the batch, the new ones too
	Pairs  Sym = 'x' // pairs of a new token and one that it sees: itself and those before it

	// Largest is the tokens of the rank that has most, where ranks have whole sequences. It
	// is a number of a batch on a number of ranks, and no axis of a value.
	Largest Sym = 'l'
)

var symbols = [...]Sym{Tokens, Seqs, Rows, Cached, Pairs, Largest}

func (s Sym) index() int { return slices.Index(symbols[:], s) }

// ofBatch reports whether s may be an axis.
func (s Sym) ofBatch() bool { return s.index() >= 0 && s != Largest }

// Sizes gives the symbols their values for one batch. Without the largest share of whole
// sequences it may be all tokens.
type Sizes struct{ Tokens, Seqs, Rows, Cached, Pairs, Largest int64 }

// Of returns the value of s.
func (z Sizes) Of(s Sym) int64 {
	if s == Largest && z.Largest == 0 {
		return z.Tokens
	}
	return [...]int64{z.Tokens, z.Seqs, z.Rows, z.Cached, z.Pairs, z.Largest}[s.index()]
}

// Poly is a polynomial in the symbols, and in equal shares of them, with integer coefficients: a
// number of bytes or of floating-point operations that holds for every batch. The zero Poly is 0.
type Poly []term

type term struct {
	coef int64
	powers
}

// powers are the factors of a term: of each symbol, of its share over a number of ranks,
// rounded up, or of the symbol, or such a share, up to a number.
type powers struct {
	exp  [len(symbols)]uint8
	over [len(symbols)]uint16 // 0: the symbol itself
	most [len(symbols)]uint32 // 0: any number
}

func (p *powers) compare(q *powers) int {
	return cmp.Or(slices.Compare(q.exp[:], p.exp[:]), slices.Compare(p.over[:], q.over[:]), slices.Compare(p.most[:], q.most[:]))
}

// of is what symbol i of a term stands for in a batch.
func (p *powers) of(i int, z Sizes) int64 {
	n, over, most := z.Of(symbols[i]), int64(p.over[i]), int64(p.most[i])
	if most > 0 {
		n = min(n, most)
	}
	if over > 0 {
		n = (n + over - 1) / over
	}
	return n
}

// Const is the polynomial c.
func Const(c int64) Poly {
	if c == 0 {
		return nil
	}
	return Poly{{coef: c}}
}

// Var is the polynomial s.
func Var(s Sym) Poly {
	t := term{coef: 1}
	t.exp[s.index()] = 1
	return Poly{t}
}

// Share is the polynomial s/ranks, rounded up: the largest of even shares.
func Share(s Sym, ranks int) Poly {
	p := Var(s)
	p[0].over[s.index()] = uint16(ranks)
	return p
}

// MaxPiece is the most tokens that may be asked for in a piece of a batch.
const MaxPiece = 1 << 30

// AtMost is the polynomial min(s, n), of n above 0.
func AtMost(s Sym, n int) Poly {
	p := Var(s)
	p[0].most[s.index()] = uint32(n)
	return p
}

// ShareAtMost is the polynomial min(s, n)/ranks, rounded up.
func ShareAtMost(s Sym, ranks, n int) Poly {
	p := AtMost(s, n)
	p[0].over[s.index()] = uint16(ranks)
	return p
}

// Plus returns p + q.
func (p Poly) Plus(q Poly) Poly {
	all := append(slices.Clone(p), q...)
	slices.SortFunc(all, func(a, b term) int { return a.compare(&b.powers) })
	out := all[:0]
	for _, t := range all {
		if n := len(out); n > 0 && out[n-1].powers == t.powers {
			out[n-1].coef += t.coef
		} else {
			out = append(out, t)
		}
	}
	return slices.DeleteFunc(out, func(t term) bool { return t.coef == 0 })
}

// Times returns p · q.
func (p Poly) Times(q Poly) Poly {
	var out Poly
	for _, a := range p {
		for _, b := range q {
			t := term{coef: a.coef * b.coef}
			for i := range t.exp {
				t.exp[i] = a.exp[i] + b.exp[i]
				t.over[i], t.most[i] = max(a.over[i], b.over[i]), max(a.most[i], b.most[i])
				if a.exp[i] > 0 && b.exp[i] > 0 && (a.over[i] != b.over[i] || a.most[i] != b.most[i]) {
					panic("BUG: two shares of one symbol are multiplied")
				}
			}
			out = out.Plus(Poly{t})
		}
	}
	return out
}

// At evaluates p for a batch.
func (p Poly) At(z Sizes) int64 {
	var sum int64
	for _, t := range p {
		v := t.coef
		for i, e := range t.exp {
			for range e {
				v *= t.of(i, z)
			}
		}
		sum += v
	}
	return sum
}

// Float evaluates p in float64, which also holds what At overflows on.
func (p Poly) Float(z Sizes) float64 {
	var sum float64
	for _, t := range p {
		v := float64(t.coef)
		for i, e := range t.exp {
			for range e {
				v *= float64(t.of(i, z))
			}
		}
		sum += v
	}
	return sum
}

// name writes t, ⌈t/4⌉, min(t, 512) or ⌈min(t, 512)/4⌉.
func (p *powers) name(i int) string {
	name := string(rune(symbols[i]))
	if p.most[i] > 0 {
		name = fmt.Sprintf("min(%s, %d)", name, p.most[i])
	}
	if p.over[i] > 0 {
		name = fmt.Sprintf("⌈%s/%d⌉", name, p.over[i])
	}
	return name
}

// String writes p as "12·t + 3·s + 5".
func (p Poly) String() string {
	if len(p) == 0 {
		return "0"
	}
	var parts []string
	for _, t := range p {
		var factors []string
		for i, e := range t.exp {
			for range e {
				factors = append(factors, t.name(i))
			}
		}
		if t.coef != 1 || len(factors) == 0 {
			factors = slices.Insert(factors, 0, fmt.Sprint(t.coef))
		}
		parts = append(parts, strings.Join(factors, "·"))
	}
	return strings.Join(parts, " + ")
}
