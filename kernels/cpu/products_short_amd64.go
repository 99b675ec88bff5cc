package cpu

// Products whose sums are in float64, see shortDepth.
var shortAVX2 = products{
	f32:  []product[float32]{{3, shortF32x3AVX2}, {1, shortF32x1AVX2}},
	bf16: []product[uint16]{{3, shortBF16x3AVX2}, {1, shortBF16x1AVX2}},
	f16:  []product[uint16]{{3, shortF16x3AVX2}, {1, shortF16x1AVX2}},
}

var shortAVX512 = products{
	f32:  []product[float32]{{3, shortF32x3AVX512}, {1, shortF32x1AVX512}},
	bf16: []product[uint16]{{3, shortBF16x3AVX512}, {1, shortBF16x1AVX512}},
	f16:  []product[uint16]{{3, shortF16x3AVX512}, {1, shortF16x1AVX512}},
}
