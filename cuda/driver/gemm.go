package driver

import (
	"fmt"
	"math"
)

// Format is how numbers are stored, for matrix products and collectives.
type Format int

// The formats. TF32 is F32 in memory, of which a product may read the first 10
// bits of the fraction only.
const (
	F32 Format = iota
	TF32
	BF16
	F16
)

var formats = [...]struct {
	name  string
	bytes int
}{{"f32", 4}, {"tf32", 4}, {"bf16", 2}, {"f16", 2}}

// Valid says whether f is one of the formats.
func (f Format) Valid() bool { return f >= 0 && int(f) < len(formats) }

// Bytes is the size of a number.
func (f Format) Bytes() int { return formats[f].bytes }

// String is the format's name.
func (f Format) String() string {
	if !f.Valid() {
		return fmt.Sprintf("Format(%d)", int(f))
	}
	return formats[f].name
}

// GEMM multiplies matrices in a stream. It is used by one thread at a time.
type GEMM interface {
	// SetStream chooses the stream of the following calls.
	SetStream(Stream) error
	// SetWorkspace gives the handle memory to work in, for as long as it is
	// used: without, it allocates some itself. Captured graphs need it to be
	// lent, 32 MiB on Hopper and 4 MiB elsewhere.
	SetWorkspace(p Ptr, bytes int64) error
	// Gemm puts a product into the stream.
	Gemm(g *GemmCall) error
	Close() error
}

// GemmCall is the product C[m n] = A[m k] · B[n k]ᵀ of matrices stored by
// rows, summed in f32.
type GemmCall struct {
	M, N, K       int
	A, B, C       Ptr
	LDA, LDB, LDC int    // elements from row to row
	In            Format // of A and B
	Out           Format // of C: F32, or that of In
	Accumulate    bool   // add to what C holds
	For           string // what the product is for, to those who count
}

// sliceOfK bounds the terms of a product of the largest piece: see OfPieces.
const sliceOfK = 1280

// OfPieces returns the products that give A · Bᵀ of an A that is the sum of n matrices [m k], which
// begin at A, packed and one behind the other, the largest first. The smallest come first. Tensor
// cores truncate what they have summed after each 8 or 16 terms, so the largest is multiplied in
// slices of k, whose results are rounded as they are added: the error is that of sums by fma.
func (g *GemmCall) OfPieces(n int) []*GemmCall {
	var out []*GemmCall
	add := func(piece, from, k int) {
		c := *g
		c.A += Ptr((piece*g.M*g.K + from) * g.In.Bytes())
		c.B += Ptr(from * g.In.Bytes())
		c.K, c.LDA, c.Accumulate = k, g.K, g.Accumulate || len(out) > 0
		out = append(out, &c)
	}
	for piece := n - 1; piece > 0; piece-- {
		add(piece, 0, g.K)
	}
	slices := (g.K + sliceOfK - 1) / sliceOfK
	depth := ((g.K+slices-1)/slices + 31) / 32 * 32
	for from := 0; from < g.K; from += depth {
		add(0, from, min(depth, g.K-from))
	}
	return out
}

// Check says what is wrong with a call, before any library sees it.
func (g *GemmCall) Check() error {
	wrong := func(format string, args ...any) error {
		return &Error{Call: "Gemm", Text: fmt.Sprintf(format, args...)}
	}
	if g.M < 1 || g.N < 1 || g.K < 1 {
		return wrong("the product %dx%dx%d has nothing in it", g.M, g.N, g.K)
	}
	if g.LDA < g.K || g.LDB < g.K || g.LDC < g.N {
		return wrong("rows overlap: %d, %d and %d elements from row to row, where A and B have %d columns and C has %d", g.LDA, g.LDB, g.LDC, g.K, g.N)
	}
	if max(g.M, g.N, g.K, g.LDA, g.LDB, g.LDC) > math.MaxInt32 {
		return wrong("a size is above 2147483647")
	}
	if !g.In.Valid() || g.Out != F32 && (g.Out != g.In || g.In == TF32) {
		return wrong("inputs of %v cannot give %v: the result is f32, or bf16 and f16 as the inputs are", g.In, g.Out)
	}
	return nil
}
