package reference

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDeltaChunks: the gated delta rule in chunks, by the WY form of products of matrices (Yang et
// al. 2024, section 3.3), is what it is by steps, for lengths from 1 to 130, small and large
// decays, and betas near 0, 1 and 2.
func TestDeltaChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(37, 0))
	for i, tokens := range []int{1, 2, 15, 63, 64, 65, 128, 130} {
		for _, least := range []float64{0, -1e-4, -0.5, -40} {
			for _, vector := range []bool{false, true} {
				h := drawHead(rng, tokens, 1+rng.IntN(20), 1+rng.IntN(20), least, float64(1+i%2), vector)
				other := *h
				other.state = nil
				for _, row := range h.state {
					other.state = append(other.state, slices.Clone(row))
				}
				what := fmt.Sprintf("%d tokens, decays from %g, vector %v", tokens, least, vector)
				const chunk = 64
				var y [][]float64
				for at := 0; at < tokens; at += chunk {
					y = append(y, other.chunk(at, min(chunk, tokens-at))...)
				}
				compare(t, what, y, h.steps())
				compare(t, what+", state", other.state, h.state)
			}
		}
	}
}

func compare(t *testing.T, what string, got, want [][]float64) {
	t.Helper()
	for i, row := range want {
		for j, w := range row {
			if d := math.Abs(got[i][j] - w); !(d <= 1e-12*max(1, math.Abs(w))) {
				t.Fatalf("%s: element %d %d is %g, want %g", what, i, j, got[i][j], w)
			}
		}
	}
}

// drawHead draws a head with keys of length 1.
func drawHead(rng *rand.Rand, tokens, n, size int, least, beta float64, vector bool) *deltaHead {
	normal := func(n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = rng.NormFloat64()
		}
		return v
	}
	h := &deltaHead{scale: 1 / math.Sqrt(float64(n))}
	for range n {
		h.state = append(h.state, normal(size))
	}
	for range tokens {
		k, decay, one := normal(n), make([]float64, n), math.Exp(least*rng.Float64())
		length := math.Sqrt(dot(k, k))
		for i := range k {
			k[i] /= length
			if decay[i] = one; vector {
				decay[i] = math.Exp(least * rng.Float64())
			}
		}
		h.q, h.k, h.v, h.decay = append(h.q, normal(n)), append(h.k, k), append(h.v, normal(size)), append(h.decay, decay)
		h.beta = append(h.beta, beta*[]float64{rng.Float64(), 1e-9 * rng.Float64(), 1 - 1e-9*rng.Float64()}[rng.IntN(3)])
	}
	return h
}

// chunk takes count tokens together. With Γ(i, j) the decays after token j to i, row by row of the
// state, and k ∘ Γ the key times them,
//
//	A(i, j) = beta_i k_i · (k_j ∘ Γ(i, j)) for j < i, T = (1 + A)^-1
//	x       = T (beta v) - T (beta k ∘ Γ(·, before)) S
//	y_i     = scale ((q_i ∘ Γ(i, before)) S + Σ_{j≤i} q_i · (k_j ∘ Γ(i, j)) x_j)
//	S       = Γ(last, before) S + Σ_j (k_j ∘ Γ(last, j)) x_jᵀ
func (h *deltaHead) chunk(at, count int) (y [][]float64) {
	n, size := len(h.state), len(h.v[0])
	// gamma is Γ(i, j), and with j = -1 Γ(i, before).
	gamma := func(i, j int) []float64 {
		product := slices.Repeat([]float64{1}, n)
		for t := j + 1; t <= i; t++ {
			mulBy(product, h.decay[at+t])
		}
		return product
	}
	inverse := make([][]float64, count) // rows of T: T = 1 - A T
	for i := range inverse {
		inverse[i] = make([]float64, count)
		inverse[i][i] = 1
		for j := range i {
			a := h.beta[at+i] * dot(h.k[at+i], mulBy(gamma(i, j), h.k[at+j]))
			addTo(inverse[i], inverse[j], -a)
		}
	}
	x := make([][]float64, count)
	for i := range x {
		x[i] = make([]float64, size)
		w := make([]float64, n)
		for j := range i + 1 {
			addTo(x[i], h.v[at+j], inverse[i][j]*h.beta[at+j])
			addTo(w, mulBy(gamma(j, -1), h.k[at+j]), inverse[i][j]*h.beta[at+j])
		}
		addTo(x[i], h.read(w), -1)
	}
	for i := range count {
		out := h.read(mulBy(gamma(i, -1), h.q[at+i]))
		for j := range i + 1 {
			addTo(out, x[j], dot(h.q[at+i], mulBy(gamma(i, j), h.k[at+j])))
		}
		for j := range out {
			out[j] *= h.scale
		}
		y = append(y, out)
	}
	before := gamma(count-1, -1)
	for r, row := range h.state {
		for j := range row {
			row[j] *= before[r]
		}
		for i := range count {
			addTo(row, x[i], gamma(count-1, i)[r]*h.k[at+i][r])
		}
	}
	return y
}

// mulBy multiplies x by y.
func mulBy(x, y []float64) []float64 {
	for i := range x {
		x[i] *= y[i]
	}
	return x
}

// addTo adds y times a number to x.
func addTo(x, y []float64, by float64) {
	for i := range x {
		x[i] += by * y[i]
	}
}
