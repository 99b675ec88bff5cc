package simulate_test

import (
	"math"
	"testing"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/session"
)

// TestSteps: small steps have the time of the model's, large ones within their rounding; a step of
// one token per sequence stays one. The scheduler's limits are those of a session in the hardware's
// memory.
func TestSteps(t *testing.T) {
	for _, like := range []string{"jamba-52b", "mamba-130m"} {
		g := sized(t, synth.Options{Like: like, Layers: 8, Vocab: 500})
		m := compiled(t, g, passes.Options{Ranks: 2}, &virtual.Device{Profile: profile(t, "h100-nvlink")})
		s := m.Steps()
		for _, c := range []struct {
			batch, past, n int
			within         float64
		}{{1, 0, 1, 1e-9}, {16, 0, 1, 1e-9}, {1, 0, 16, 1e-9}, {40, 1000, 1, 0.04}, {3, 777, 333, 0.05}, {100, 5000, 1, 0.04}, {999, 10, 1, 0.04}} {
			want, err := m.Step(c.batch, c.past, c.n)
			if err != nil {
				t.Fatal(err)
			}
			b, at, k := int64(c.batch), int64(c.past), int64(c.n)
			for range 2 {
				got, err := s.Step(graph.Sizes{Tokens: b * k, Seqs: b, Rows: b, Cached: b * (at + k), Pairs: b * (k*at + k*(k+1)/2)})
				if err != nil || math.Abs(got/want.Seconds()-1) > c.within {
					t.Errorf("%s: %+v: %g seconds, want %g; %v", like, c, got, want.Seconds(), err)
				}
			}
		}
		l, err := m.Limits(session.Options{Slots: 4})
		if err != nil || l.Slots != 4 || l.Tokens != 515 || (l.Room > 100_000) != (like == "jamba-52b") || l.Page != 128 {
			t.Errorf("%s: %+v, %v", like, l, err)
		}
	}
}
