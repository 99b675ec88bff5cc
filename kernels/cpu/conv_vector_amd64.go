package cpu

import "github.com/krait-ml/krait/kernels"

var (
	_ = kernels.Register(avx2, (&convolver{8, convAVX2, convSiluAVX2, lanesAVX2.addSilu, &convertAVX2}).kernels())
	_ = kernels.Register(avx512, (&convolver{16, convAVX512, convSiluAVX512, lanesAVX512.addSilu, &convertAVX512}).kernels())
)
