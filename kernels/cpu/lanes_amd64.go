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
