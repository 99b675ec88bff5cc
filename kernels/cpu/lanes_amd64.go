package cpu

import "github.com/krait-ml/krait/kernels"

var (
	_ = kernels.Register(avx2, lanesAVX2.kernels())
	_ = kernels.Register(avx512, lanesAVX512.kernels())
)

var lanesAVX2 = lanewises{
	add:         assembled(addAVX2),
	mul:         assembled(mulAVX2),
	times:       assembled(timesAVX2),
	addMul:      assembled(addMulAVX2),
	addTimes:    assembled(addTimesAVX2),
	relu:        assembled(reluAVX2),
	relu2:       assembled(relu2AVX2),
	clamp:       assembled(clampAVX2),
	norm:        assembled(normAVX2),
	weigh:       assembled(weighAVX2),
	gelu:        assembled(geluAVX2),
	geluTanh:    assembled(geluTanhAVX2),
	silu:        assembled(siluAVX2),
	siluMul:     assembled(siluMulAVX2),
	addSilu:     assembled(addSiluAVX2),
	softplus:    assembled(softplusAVX2),
	addSoftplus: assembled(addSoftplusAVX2),
	negExp:      assembled(negExpAVX2),
}

var lanesAVX512 = lanewises{
	add:         assembled(addAVX512),
	mul:         assembled(mulAVX512),
	times:       assembled(timesAVX512),
	addMul:      assembled(addMulAVX512),
	addTimes:    assembled(addTimesAVX512),
	relu:        assembled(reluAVX512),
	relu2:       assembled(relu2AVX512),
	clamp:       assembled(clampAVX512),
	norm:        assembled(normAVX512),
	weigh:       assembled(weighAVX512),
	gelu:        assembled(geluAVX512),
	geluTanh:    assembled(geluTanhAVX512),
	silu:        assembled(siluAVX512),
	siluMul:     assembled(siluMulAVX512),
	addSilu:     assembled(addSiluAVX512),
	softplus:    assembled(softplusAVX512),
	addSoftplus: assembled(addSoftplusAVX512),
	negExp:      assembled(negExpAVX512),
}

// assembled is a function of the generator in gen, which takes n elements of each row. Elements do
// not mind where in a vector they are.
func assembled(f func(y, a, b, c *float32, n int, p, q float64)) lanewise {
	return func(y, a, b, c []float32, p, q float64) {
		if n := len(y); n > 0 {
			f(&y[0], first(a, n), first(b, n), first(c, n), n, p, q)
		}
	}
}

// first is where the first of n elements is: the assembly checks no bounds.
func first(x []float32, n int) *float32 {
	if x == nil {
		return nil
	}
	return &x[:n][0]
}
