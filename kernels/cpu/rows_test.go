package cpu

import (
	"math"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// TestConvert: every number of 16 bits is widened, and numbers from everywhere are rounded,
// as the plain kernels do, in rows that begin anywhere and fill vectors or not.
func TestConvert(t *testing.T) {
	for _, d := range []graph.DType{graph.BF16, graph.F16} {
		eachISA(t, "quantize", func(t *testing.T, isa string, round kernels.Kernel) {
			set, err := ForISA(isa)
			if err != nil {
				t.Fatal(err)
			}
			values := everyFloat(30011)
			for i := range 1 << 16 { // ties, and their neighbours
				b := uint32(i) << 16
				values = append(values, math.Float32frombits(b|0x8000), math.Float32frombits(b|0x7fff), math.Float32frombits(b|0x8001), math.Float32frombits(b|0x1000))
			}
			for cols := 1; cols <= 70; cols++ {
				part := values[:5*cols]
				if cols == 70 {
					cols, part = len(values)/3, values[:len(values)/3*3]
				}
				rows := len(part) / cols
				x, y, z := table(graph.F32, rows, cols, cols, cols%7), table(d, rows, cols, cols+1, cols%5), table(graph.F32, rows, cols, cols+2, cols%3)
				copy(x.F32, part)
				fill(&y, func() float32 { return 1 })
				round.Run(&kernels.Call{Args: []kernels.Tensor{x}, Results: []kernels.Tensor{y}}, 0, rows)
				set["dequantize"].Run(&kernels.Call{Args: []kernels.Tensor{y}, Results: []kernels.Tensor{z}}, 0, rows)
				want := append([]float32(nil), part...)
				kernels.Round(d, want)
				for i, v := range want {
					got := z.Row(i / cols)[i%cols]
					if got != v && (got == got || v == v) || math.Signbit(float64(got)) != math.Signbit(float64(v)) && v == v {
						t.Fatalf("%s: %g (%#x) is %g, want %g", d, part[i], math.Float32bits(part[i]), got, v)
					}
				}
				for i := range rows - 1 {
					if one := [1]float32{}; true {
						if y.Read(one[:], i*y.Stride+cols); one[0] != 1 {
							t.Fatalf("%s: wrote between rows of %d", d, cols)
						}
					}
				}
				if rows == 3 {
					break
				}
			}
			all, wide := table(d, 1, 1<<16, 1<<16, 0), table(graph.F32, 1, 1<<16, 1<<16, 0)
			want := make([]float32, 1<<16)
			for i := range all.U16 {
				all.U16[i] = uint16(i)
			}
			all.Read(want, 0)
			set["dequantize"].Run(&kernels.Call{Args: []kernels.Tensor{all}, Results: []kernels.Tensor{wide}}, 0, 1)
			for i, v := range want {
				if got := wide.F32[i]; math.Float32bits(got) != math.Float32bits(v) && (got == got || v == v) {
					t.Fatalf("%s %#x is %g, want %g", d, i, got, v)
				}
			}
		})
	}
}
