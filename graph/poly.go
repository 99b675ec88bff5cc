package graph

import (
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
)

var symbols = [...]Sym{Tokens, Seqs, Rows, Cached, Pairs}

func (s Sym) index() int { return slices.Index(symbols[:], s) }

// Sizes gives the symbols their values for one batch.
type Sizes struct{ Tokens, Seqs, Rows, Cached, Pairs int64 }

// Of returns the value of s.
func (z Sizes) Of(s Sym) int64 {
	return [...]int64{z.Tokens, z.Seqs, z.Rows, z.Cached, z.Pairs}[s.index()]
}

// Poly is a polynomial in the symbols with integer coefficients: a number of
// bytes or of floating-point operations that holds for every batch. The zero
// Poly is 0.
type Poly []term

type term struct {
	coef int64
	exp  [len(symbols)]uint8
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

// Plus returns p + q.
func (p Poly) Plus(q Poly) Poly {
	all := append(slices.Clone(p), q...)
	slices.SortFunc(all, func(a, b term) int { return slices.Compare(b.exp[:], a.exp[:]) })
	out := all[:0]
	for _, t := range all {
		if n := len(out); n > 0 && out[n-1].exp == t.exp {
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
				v *= z.Of(symbols[i])
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
				v *= float64(z.Of(symbols[i]))
			}
		}
		sum += v
	}
	return sum
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
				factors = append(factors, string(rune(symbols[i])))
			}
		}
		if t.coef != 1 || len(factors) == 0 {
			factors = slices.Insert(factors, 0, fmt.Sprint(t.coef))
		}
		parts = append(parts, strings.Join(factors, "·"))
	}
	return strings.Join(parts, " + ")
}
