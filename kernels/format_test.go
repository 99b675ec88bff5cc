package kernels

import (
	"math"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/x448/float16"
)

func TestHalf(t *testing.T) {
	for i := range 1 << 16 {
		got, want := half(uint16(i)), float16.Frombits(uint16(i)).Float32()
		if got != want && !(math.IsNaN(float64(got)) && math.IsNaN(float64(want))) {
			t.Fatalf("%#04x is %g, want %g", i, got, want)
		}
	}
}

// TestWrite: what a format holds is written and read unchanged, and what lies
// between two neighbours goes to the nearer, from the middle to the even one.
func TestWrite(t *testing.T) {
	for _, d := range []graph.DType{graph.F16, graph.BF16, graph.F8} {
		x := &Tensor{DType: d, U16: make([]uint16, 1), U8: make([]byte, 1)}
		write := func(v float32) uint16 {
			x.Write(0, []float32{v})
			if d == graph.F8 {
				return uint16(x.U8[0])
			}
			return x.U16[0]
		}
		value := func(bits uint16) float32 {
			x.U16[0], x.U8[0] = bits, byte(bits)
			var v [1]float32
			x.Read(v[:], 0)
			return v[0]
		}
		for i := range 1<<(8*d.Bytes()) - 1 {
			lo, hi := value(uint16(i)), value(uint16(i+1))
			if lo != lo || hi != hi || math.IsInf(float64(lo), 0) || math.IsInf(float64(hi), 0) || i == 1<<(8*d.Bytes()-1)-1 {
				continue
			}
			even := uint16(i + i&1)
			mid := float32((float64(lo) + float64(hi)) / 2) // exact: a bit more than the format has
			below, above := math.Nextafter32(mid, lo), math.Nextafter32(mid, hi)
			if write(lo) != uint16(i) || write(mid) != even || write(below) != uint16(i) || write(above) != uint16(i+1) {
				t.Fatalf("%s: %#04x %g: around %g are %#04x %#04x %#04x", d, i, lo, mid, write(below), write(mid), write(above))
			}
			one := []float32{mid}
			if Round(d, one); one[0] != value(even) {
				t.Fatalf("%s: %g is rounded to %g, want %g", d, mid, one[0], value(even))
			}
		}
		if nan := value(write(float32(math.NaN()))); nan == nan {
			t.Errorf("%s: NaN becomes %g", d, nan)
		}
	}
}

// TestWriteE4M3: what is beyond 448 becomes 448, and what is no number stays none.
func TestWriteE4M3(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, v := range []float32{448, 449, 464, 480, 1e30, inf} {
		got := []float32{v, -v}
		if Round(graph.F8, got); got[0] != 448 || got[1] != -448 {
			t.Errorf("%g and its negative become %g", v, got)
		}
	}
	got := []float32{float32(math.NaN()), inf - inf, 0x1p-10, 0x1.8p-10, -0x1p-9}
	if Round(graph.F8, got); got[0] == got[0] || got[1] == got[1] || got[2] != 0 || got[3] != 0x1p-9 || got[4] != -0x1p-9 {
		t.Errorf("NaN, NaN and numbers around the least become %g", got)
	}
}

func TestHeldRow(t *testing.T) {
	x := Tensor{Full: 10, Runs: []graph.Run{{Start: 1, Len: 2}, {Start: 5, Len: 0}, {Start: 7, Len: 2}}}
	for i, want := range []int{-1, 0, 1, -1, -1, -1, -1, 2, 3, -1} {
		if at, ok := x.HeldRow(i); ok != (want >= 0) || ok && at != want {
			t.Errorf("entry %d is at %d, %v; want %d", i, at, ok, want)
		}
	}
}
