package graph

// DType is the number format of a tensor's elements.
type DType uint8

// The number formats that a graph may hold.
const (
	NoDType DType = iota
	F64
	F32
	F16
	BF16
	F8 // e4m3 of OCP's 8-bit floating point 1.0, without a scale: of states
	I64
	I32
	Q8 // this and those after it are of parameters: see [Format]
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	IQ4_NL
	IQ4_XS
	Q4_K
	Q5_K
	Q6_K
	FP8_128
	FP8_32
	NVFP4
	MXFP4
	INT4_128
	INT4_32
)

var dtypes = [...]struct {
	name  string
	bytes int
}{{"none", 0}, {"f64", 8}, {"f32", 4}, {"f16", 2}, {"bf16", 2}, {"e4m3", 1}, {"i64", 8}, {"i32", 4},
	{"q8", 0}, {"q4_0", 0}, {"q4_1", 0}, {"q5_0", 0}, {"q5_1", 0}, {"iq4_nl", 0}, {"iq4_xs", 0}, {"q4_k", 0}, {"q5_k", 0}, {"q6_k", 0},
	{"fp8_128", 0}, {"fp8_32", 0}, {"nvfp4", 0}, {"mxfp4", 0}, {"int4_128", 0}, {"int4_32", 0}}

// String gives the name that graph text uses: f32, bf16, i32, …
func (d DType) String() string {
	if c, ok := d.Codec(); ok {
		return c.String()
	}
	if int(d) >= len(dtypes) {
		return "none"
	}
	return dtypes[d].name
}

// Bytes is the size of one element; 0 of a block format, where no element has bytes of its
// own. Of a codec it
// is 1: offsets and strides count its bytes, and [DType.RowBytes] says how many a row has.
func (d DType) Bytes() int {
	if d.InBlocks() {
		return 1
	}
	return dtypes[d].bytes
}

// Float reports whether d is a floating-point format, element by element.
func (d DType) Float() bool { return d >= F64 && d <= F8 }

// ParseDType is the inverse of [DType.String].
func ParseDType(s string) (DType, bool) {
	for d := F64; int(d) < len(dtypes); d++ {
		if dtypes[d].name == s {
			return d, true
		}
	}
	if c, ok, err := NewCodec(s); ok && err == nil && c.String() == s {
		return c.DType(), true
	}
	return NoDType, false
}
