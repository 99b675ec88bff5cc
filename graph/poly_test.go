package graph

import (
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// TestPoly: sums and products of polynomials evaluate as their parts do.
func TestPoly(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		p, q := genPoly(t, "p"), genPoly(t, "q")
		n := rapid.Int64Range(0, 9)
		z := Sizes{n.Draw(t, "t"), n.Draw(t, "s"), n.Draw(t, "o"), n.Draw(t, "c"), n.Draw(t, "x"), n.Draw(t, "l")}
		if got, want := p.Plus(q).At(z), p.At(z)+q.At(z); got != want {
			t.Fatalf("(%s) + (%s) at %v: %d, want %d", p, q, z, got, want)
		}
		if got, want := p.Times(q).At(z), p.At(z)*q.At(z); got != want {
			t.Fatalf("(%s)·(%s) at %v: %d, want %d", p, q, z, got, want)
		}
		if a, b := p.Plus(q).String(), q.Plus(p).String(); a != b {
			t.Fatalf("sums print differently: %s and %s", a, b)
		}
	})
}

func genPoly(t *rapid.T, name string) Poly {
	var p Poly
	for range rapid.IntRange(0, 3).Draw(t, name) {
		m := Const(rapid.Int64Range(-5, 5).Draw(t, "coefficient"))
		for range rapid.IntRange(0, 2).Draw(t, "degree") {
			m = m.Times(Var(rapid.SampledFrom(symbols[:]).Draw(t, "symbol")))
		}
		p = p.Plus(m)
	}
	return p
}

func TestPolyText(t *testing.T) {
	p := Var(Tokens).Times(Const(12)).Plus(Var(Seqs).Times(Var(Cached))).Plus(Const(5))
	if got := p.String(); got != "12·t + s·c + 5" {
		t.Error(got)
	}
	if got := Poly(nil).String(); got != "0" {
		t.Error(got)
	}
}
