package synth

import (
	"math"
	"math/rand/v2"
)

// fill makes numbers of a tensor, from element first on.
type fill func(r *rand.Rand, out []float32, t *tensor, first int64)

// matrix is normal, so that a row times numbers around 1 is around 1.
func matrix(r *rand.Rand, out []float32, t *tensor, _ int64) {
	normal(r, out, 1/math.Sqrt(float64(t.last())))
}

func small(r *rand.Rand, out []float32, _ *tensor, _ int64) { normal(r, out, 0.02) }

func normal(r *rand.Rand, out []float32, scale float64) {
	for i := range out {
		out[i] = float32(scale * r.NormFloat64())
	}
}

func ones(_ *rand.Rand, out []float32, _ *tensor, _ int64) {
	for i := range out {
		out[i] = 1
	}
}

// logRates are the logarithms of the rates of decay: 1 to N for N states, as the
// published models begin their training; of heads with one rate each, 1 to 16.
func logRates(r *rand.Rand, out []float32, t *tensor, first int64) {
	for i := range out {
		rate := 1 + 15*r.Float64()
		if len(t.shape) > 1 {
			rate = float64((first+int64(i))%int64(t.last()) + 1)
		}
		out[i] = float32(math.Log(rate))
	}
}

// steps are biases of which softplus makes time steps of 0.001 to 0.1.
func steps(r *rand.Rand, out []float32, _ *tensor, _ int64) {
	for i := range out {
		step := math.Exp(math.Log(0.001) + r.Float64()*math.Log(100))
		out[i] = float32(step + math.Log(-math.Expm1(-step)))
	}
}

// decays are logits of which sigmoid makes decays of 0.9 to 0.999 per token.
func decays(r *rand.Rand, out []float32, _ *tensor, _ int64) {
	for i := range out {
		lost := math.Exp(math.Log(0.001) + r.Float64()*math.Log(100))
		out[i] = float32(math.Log1p(-lost) - math.Log(lost))
	}
}
