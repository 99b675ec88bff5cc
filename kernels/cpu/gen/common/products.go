package common

import "fmt"

// Format is that of weights.
type Format struct {
	Name, Element string
	Size          int
}

// The formats of weights that are numbers.
var (
	F32     = Format{"F32", "float32", 4}
	BF16    = Format{"BF16", "uint16", 2}
	F16     = Format{"F16", "uint16", 2}
	Formats = []Format{F32, BF16, F16}
)

// Tile declares a product of rows of weights with tokens, whose sums are in f32. Fetches says what
// becomes of ahead and the parameters after it.
func Tile(f Format, set string, rows, tokens int, fetches string) (name, signature, doc string) {
	name = fmt.Sprintf("gemm%sx%dx%d", f.Name, rows, tokens)
	signature = fmt.Sprintf("(w *%s, ws int, x *float32, xs int, y *float32, ys, k, groups int, ahead uintptr, apart, step int, next uintptr, near int)", f.Element)
	if name == "gemmF32x4x1" {
		return name, signature, "adds x[t]·w[r] to y[t][r], for 1 row of x and groups of 4 of w, of k elements. " +
			"Rows are ws, xs and ys elements apart. " + fetches
	}
	return name, signature, fmt.Sprintf("is gemmF32x4x1%s for %d rows of x and groups of %d of w.", set, tokens, rows)
}

// Short declares a product of 4 rows of weights with tokens, whose sums are in float64.
func Short(f Format, set string, tokens int) (name, signature, doc string) {
	element := "float32"
	if tokens > 1 { // which are packed
		element = "float64"
	}
	name = fmt.Sprintf("short%sx%d", f.Name, tokens)
	signature = fmt.Sprintf("(w *%s, ws int, x *%s, y *float32, ys, k int)", f.Element, element)
	if name == "shortF32x1" {
		return name, signature, "multiplies 4 rows of weights of k elements with 1 of x, with sums in float64: " +
			"y[t][r] = x[t]·w[r]. Rows are ws and ys elements apart; where ws is 0, only y[t][0] is written. Several " +
			"rows of x are packed: a vector of each, and so on, and what fills none an element of each."
	}
	return name, signature, fmt.Sprintf("is shortF32x1%s for %d rows of x.", set, tokens)
}
