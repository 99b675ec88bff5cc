package cpu

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(avx2, kernels.Set{"choose": {Units: kernels.RowUnits, Run: choosingAVX2.choose}})

var choosingAVX2 = choosing{maximaVectors, weighVectors}

var vectorChoosing = &choosingAVX2

// maximaVectors is maxima by vectors, whose blocks are as large.
func maximaVectors(scores, highest []float32) (broken bool) {
	blocks := len(scores) / scoreBlock
	if blocks > 0 && maximaAVX2(&scores[0], &highest[0], blocks) != 0 {
		return true
	}
	return maxima(scores[blocks*scoreBlock:], highest[blocks:])
}

// weighVectors is weigh by vectors. A temperature may be so low that only the highest
// score is within reach of numbers.
func weighVectors(weights []float64, scores []float32, highest, temperature float64) (mass float64) {
	n := len(scores) &^ 3
	if by := 1 / temperature; n > 0 && by <= math.MaxFloat64 {
		mass = likelihoodsAVX2(&weights[:n][0], &scores[0], n, highest, by)
	} else {
		n = 0
	}
	return mass + weigh(weights[n:], scores[n:], highest, temperature)
}
