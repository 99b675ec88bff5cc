package cpu

import (
	"github.com/krait-ml/krait/kernels"
	"golang.org/x/sys/cpu"
)

var instructionSets = []instructionSet{
	{"avx2", cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C, productsAVX2.set()},
	{"avx512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasFMA && cpu.X86.HasF16C, productsAVX512.set()},
}

func (p *products) set() kernels.Set {
	return kernels.Set{"matmul": {Units: matmulUnits, Run: p.matmul}}
}

var productsAVX2 = products{
	f32:  []product[float32]{{3, gemvF32x3AVX2}, {1, gemvF32x1AVX2}},
	bf16: []product[uint16]{{3, gemvBF16x3AVX2}, {1, gemvBF16x1AVX2}},
	f16:  []product[uint16]{{3, gemvF16x3AVX2}, {1, gemvF16x1AVX2}},
}

var productsAVX512 = products{
	f32:  []product[float32]{{6, gemvF32x6AVX512}, {3, gemvF32x3AVX512}, {1, gemvF32x1AVX512}},
	bf16: []product[uint16]{{6, gemvBF16x6AVX512}, {3, gemvBF16x3AVX512}, {1, gemvBF16x1AVX512}},
	f16:  []product[uint16]{{6, gemvF16x6AVX512}, {3, gemvF16x3AVX512}, {1, gemvF16x1AVX512}},
}
