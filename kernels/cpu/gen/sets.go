package main

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

// format is that of weights.
type format struct {
	name, element string
	size          int
}

var (
	f32     = format{"F32", "float32", 4}
	bf16    = format{"BF16", "uint16", 2}
	f16     = format{"F16", "uint16", 2}
	formats = []format{f32, bf16, f16}
)
