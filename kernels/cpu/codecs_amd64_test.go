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
		for trial := range 3000 {
			c := graph.Codec{Kind: graph.CodecKinds()[trial%5], Block: graph.MinBlock << r.IntN(4)}
			if trial%2 == 0 {
				c.Kind = graph.Int8
			}
			x := make([]float32, 1+r.IntN(3*c.Block))
			for i := range x {
				x[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(8))))
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
