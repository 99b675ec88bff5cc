package cpu

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/codec"
)

// TestBlocksOfBytes: the bits of package codec, of every codec, and nothing behind them.
func TestBlocksOfBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 5))
	for name, set := range map[string]struct {
		has bool
		v   bytesCodec
	}{"AVX2": {hasAVX2(), bytesAVX2}, "AVX-512": {hasAVX512(), bytesAVX512}} {
		if !set.has {
			t.Logf("%s is not here", name)
			continue
		}
		for trial := range 6000 {
			c := graph.Codec{Kind: graph.CodecKinds()[trial%5], Block: graph.MinBlock << r.IntN(4)}
			dyadic := trial/5%2 == 0 // many lie in the middle of two codes
			x := make([]float32, 1+r.IntN(3*c.Block))
			for i := range x {
				x[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(8))))
				if dyadic {
					x[i] = float32(r.IntN(4097)-2048) * 0x1p-7
				}
				switch r.IntN(400) {
				case 0:
					x[i] = float32(math.NaN())
				case 1:
					x[i] = float32(math.Inf(-1))
				case 2:
					x[i] = -math.MaxFloat32
				case 3:
					x[i] = 0x1p-140
				}
			}
			if r.IntN(8) == 0 {
				clear(x)
			}
			n := c.RowBytes(len(x))
			want, got := make([]byte, n+64), bytes.Repeat([]byte{0xa5}, n+64)
			copy(want[n:], got[n:])
			codec.Encode(c, want, x)
			if set.v.encode(c, got, x); !bytes.Equal(got, want) {
				t.Fatalf("%s, %s: %d elements are %v, want %v", name, c, len(x), got, want)
			}
			if trial%3 == 0 { // codes that no kernel writes, and scales
				for i := range n {
					want[i] = byte(r.Uint32())
				}
				copy(got, want)
			}
			back, plain := make([]float32, len(x)+16), make([]float32, len(x)+16)
			set.v.decode(c, back[:len(x)], got)
			codec.Decode(c, plain[:len(x)], want)
			for i := range back {
				if math.Float32bits(back[i]) != math.Float32bits(plain[i]) && !(back[i] != back[i] && plain[i] != plain[i]) {
					t.Fatalf("%s, %s: element %d is %g, want %g", name, c, i, back[i], plain[i])
				}
			}
		}
	}
}

// BenchmarkBlocksOfBytes: a megabyte of f32 to blocks and back, by vectors and by package codec.
func BenchmarkBlocksOfBytes(b *testing.B) {
	if !hasAVX2() {
		b.Skip("AVX2 is not here")
	}
	x := make([]float32, 1<<18)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	v := bytesAVX2
	if hasAVX512() {
		v = bytesAVX512
	}
	for _, kind := range graph.CodecKinds() {
		c := graph.Codec{Kind: kind, Block: 32}
		y := make([]byte, c.RowBytes(len(x)))
		for name, f := range map[string]func(){
			"encode": func() { v.encode(c, y, x) }, "decode": func() { v.decode(c, x, y) },
			"encode/plain": func() { codec.Encode(c, y, x) }, "decode/plain": func() { codec.Decode(c, x, y) },
		} {
			codec.Encode(c, y, x)
			b.Run(kind.String()+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(4*len(x) + len(y)))
				for b.Loop() {
					f()
				}
			})
		}
	}
}
