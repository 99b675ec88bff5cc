package graph

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestWeightedBlocks: with weights of columns the weighed error is less than without, in every
// format that takes heed of them, and each matrix of several has its own; columns that weigh
// nothing leave a block as it is without.
func TestWeightedBlocks(t *testing.T) {
	const matrices, rows, cols = 3, 4, 512
	r := rand.New(rand.NewPCG(29, 0))
	x, weights := make([]float32, matrices*rows*cols), make([]float32, matrices*cols)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	for i := range weights {
		weights[i] = float32(math.Exp(2 * r.NormFloat64()))
	}
	a := ArrayOf(x, matrices, rows, cols)
	off := func(b Array, m int) (sum float64) {
		for i, v := range b.Float32s()[m*rows*cols:][:rows*cols] {
			d := float64(v - x[m*rows*cols+i])
			sum += float64(weights[m*cols+i%cols]) * d * d
		}
		return sum
	}
	for _, d := range []DType{Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS} {
		plain, err := a.ToBlocks(d, nil)
		weighed, err2 := a.ToBlocks(d, weights)
		zero, err3 := a.ToBlocks(d, make([]float32, matrices*cols))
		if err != nil || err2 != nil || err3 != nil {
			t.Fatal(d, err, err2, err3)
		}
		for m := range matrices {
			if got, was := off(weighed, m), off(plain, m); !(got < 0.95*was) {
				t.Errorf("%s, matrix %d: the weighed error is %.3g, without weights %.3g", d, m, got, was)
			}
		}
		if string(zero.Data) != string(plain.Data) {
			t.Errorf("%s: weights of 0 change the blocks", d)
		}
	}
}
