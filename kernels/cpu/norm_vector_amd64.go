package cpu

import "github.com/krait-ml/krait/kernels"

var (
	_ = kernels.Register(avx2, normsAVX2.kernels())
	_ = kernels.Register(avx512, normsAVX512.kernels())
)

var (
	normsAVX2   = norms{assembledSum(squaresAVX2), &lanesAVX2}
	normsAVX512 = norms{assembledSum(squaresAVX512), &lanesAVX512}
)
