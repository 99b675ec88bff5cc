package main

// encodings are instructions on vectors, without their registers, by name and arrangement of
// operands, the result first. A test compares them with an assembler.
var encodings = map[string]uint32{
	"fadd 4s 4s 4s": 0x4e20d400,
	"fadd 2d 2d 2d": 0x4e60d400,
	"fsub 4s 4s 4s": 0x4ea0d400,
	"fsub 2d 2d 2d": 0x4ee0d400,
	"fmul 4s 4s 4s": 0x6e20dc00,
	"fmul 2d 2d 2d": 0x6e60dc00,
	"fdiv 4s 4s 4s": 0x6e20fc00,
	"fdiv 2d 2d 2d": 0x6e60fc00,
	"fmla 4s 4s 4s": 0x4e20cc00, // result + a · b
	"fmla 2d 2d 2d": 0x4e60cc00,
	"fmls 4s 4s 4s": 0x4ea0cc00, // result - a · b
	"fmls 2d 2d 2d": 0x4ee0cc00,
	"fmax 4s 4s 4s": 0x4e20f400, // a NaN for a NaN
	"fmax 2d 2d 2d": 0x4e60f400,
	"fmin 4s 4s 4s": 0x4ea0f400,
	"fmin 2d 2d 2d": 0x4ee0f400,

	"fmla 4s 4s s[0]": 0x4f801000,

	"fmul 4s 4s s[0]": 0x4f809000,

	"fneg 4s 4s":   0x6ea0f800,
	"fneg 2d 2d":   0x6ee0f800,
	"fabs 2d 2d":   0x4ee0f800,
	"frintn 2d 2d": 0x4e618800,

	"faddp 4s 4s 4s": 0x6e20d400, // sums of neighbours, first those of a
	"faddp 2d 2d 2d": 0x6e60d400,
	"faddp d 2d":     0x7e70d800,
	"faddp s 2s":     0x7e30d800,
	"fmaxv s 4s":     0x6e30f800,

	"fcvtl 2d 2s":  0x0e617800,
	"fcvtl2 2d 4s": 0x4e617800,
	"fcvtn 2s 2d":  0x0e616800,
	"fcvtn2 4s 2d": 0x4e616800,
	"fcvtl 4s 4h":  0x0e217800,
	"fcvtl2 4s 8h": 0x4e217800,

	"sshll 8h 8b #0":   0x0f08a400,
	"sshll2 8h 16b #0": 0x4f08a400,
	"sshll 4s 4h #0":   0x0f10a400,
	"sshll2 4s 8h #0":  0x4f10a400,
	"scvtf 4s 4s":      0x4e21d800,
	"fcvtn 4h 4s":      0x0e216800,
	"fcvtn2 8h 4s":     0x4e216800,

	"ushr 4s 4s #16":  0x6f300400,
	"shrn 4h 4s #16":  0x0f108400,
	"shrn2 8h 4s #16": 0x4f108400,
	"fcmeq 4s 4s 4s":  0x4e20e400,
	"and 16b 16b 16b": 0x4e201c00,
	"shll 4s 4h #16":  0x2e613800,
	"shll2 4s 8h #16": 0x6e613800,
	"shl 4s 4s #23":   0x4f375400,
	"shl 2d 2d #52":   0x4f745400,
	"add 4s 4s 4s":    0x4ea08400,
	"sub 4s 4s 4s":    0x6ea08400,
	"cmlt 2d 2d #0":   0x4ee0a800,
	"bsl 16b 16b 16b": 0x6e601c00, // a where the result has ones, else b
	"orr 16b 16b 16b": 0x4ea01c00,

	"dup 4s s[0]":   0x4e040400,
	"dup 2d d[0]":   0x4e080400,
	"zip1 4s 4s 4s": 0x4e803800,
	"zip2 4s 4s 4s": 0x4e807800,
	"zip1 2d 2d 2d": 0x4ec03800,
	"zip2 2d 2d 2d": 0x4ec07800,
}
