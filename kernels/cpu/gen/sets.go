package main

import "github.com/krait-ml/krait/kernels/cpu/gen/common"

// isa is an instruction set.
type isa struct {
	name   string
	lanes  int
	tokens int // that a tile takes at most: with 4 rows, 4·tokens sums and tokens + 1 more registers
}

var (
	avx2   = isa{"AVX2", 8, 3}
	avx512 = isa{"AVX512", 16, 6}
)

type format = common.Format

var f32, bf16, f16, formats = common.F32, common.BF16, common.F16, common.Formats
