package cpu

import (
	"slices"
	"strings"
	"testing"
)

// TestPeak: every loop ends, whatever it is given; reads of all lengths stay inside.
func TestPeak(t *testing.T) {
	list := append([]Peak{{plain, readPlain, 64, multiplyPlain, 16}}, peaks...)
	for _, p := range list {
		if p.ISA != plain {
			if _, err := ForISA(p.ISA); err != nil {
				t.Log(err)
				continue
			}
		}
		data := make([]byte, 3*p.Turn)
		for n := range data {
			p.Read(data[:n])
		}
		p.Multiply(1)
		p.Multiply(1000)
		if p.FLOPs < 16 || p.Turn < 64 {
			t.Errorf("%+v", p)
		}
	}
	all := slices.DeleteFunc(ISAs(), func(name string) bool { return name == "avx512_bf16" || strings.HasPrefix(name, "amx") })
	if best := BestPeak(); best.ISA != all[len(all)-1] {
		t.Errorf("the best of %v is %s", all, best.ISA)
	}
}

func BenchmarkPeak(b *testing.B) {
	p := BestPeak()
	b.Run("multiply", func(b *testing.B) {
		for b.Loop() {
			p.Multiply(1 << 16)
		}
		b.ReportMetric(float64(b.N)*(1<<16)*float64(p.FLOPs)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	})
	b.Run("read", func(b *testing.B) {
		data := make([]byte, 256<<20)
		for i := range data {
			data[i] = 1
		}
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			p.Read(data)
		}
	})
}
