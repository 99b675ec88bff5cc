//go:build amd64 || arm64

package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestReadWrite: vectors widen every number of 16 bits, and round numbers around each, as
// package kernels does.
func TestReadWrite(t *testing.T) {
	for isa, v := range converters() {
		t.Run(isa, func(t *testing.T) { checkReadWrite(t, v) })
	}
}

func checkReadWrite(t *testing.T, v *converter) {
	for _, d := range weightTypes[1:] {
		x := table(d, 1, 1<<16, 1<<16, 0)
		for i := range x.U16 {
			x.U16[i] = uint16(i)
		}
		want, got := make([]float32, 1<<16), make([]float32, 1<<16)
		x.Read(want, 0)
		v.read(&x, got, 0)
		for i, w := range want {
			if g := got[i]; g != w && (g == g || w == w) {
				t.Fatalf("%s %#x is %g, want %g", d, i, g, w)
			}
		}
		var values []float32
		for _, w := range want {
			bits := math.Float32bits(w)
			for _, more := range []uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001} {
				values = append(values, math.Float32frombits(bits+more))
			}
		}
		a, b := table(d, 1, len(values), len(values), 0), table(d, 1, len(values), len(values), 0)
		a.Write(0, values)
		v.write(&b, 0, values)
		if graph.F16 == d { // of what is not a number, only that it is none
			for i := range values {
				if values[i] != values[i] && b.U16[i]&0x7fff > 0x7c00 {
					b.U16[i] = a.U16[i]
				}
			}
		}
		if !slices.Equal(a.U16, b.U16) {
			for i := range a.U16 {
				if a.U16[i] != b.U16[i] {
					t.Fatalf("%s: %g (%#x) is rounded to %#x, want %#x", d, values[i], math.Float32bits(values[i]), b.U16[i], a.U16[i])
				}
			}
		}
	}
}
