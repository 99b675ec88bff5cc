package cpu

import (
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lowering"
)

// TestRingIsThePlan: rings take the memory that the schedule says, to the byte.
func TestRingIsThePlan(t *testing.T) {
	for _, name := range []string{"block", "mlp"} {
		e, _ := failEngine(t, name, 3)
		for _, s := range e.Schedules() {
			const spares = 2
			r, err := newRank(s, cpu.Kernels, &exec.Setup{Tensor: blockParams(e.graph), Slots: 1 + spares, Trials: spares})
			if err != nil {
				t.Fatal(err)
			}
			var sum, most int64
			for _, c := range r.trials.steps {
				var results int64
				for i := range c.ring {
					sum += bytesOf(c.ring[i].DType, len(c.ring[i].F32))
				}
				for i := range c.unread {
					results += bytesOf(c.unread[i].DType, len(c.unread[i].F32))
				}
				most = max(most, results)
			}
			if want := spares * (s.TrialBytes() - s.Bytes[lowering.State]); sum+most != want {
				t.Errorf("%s, rank %d: rings take %d bytes, planned are %d", name, s.Rank, sum+most, want)
			}
		}
	}
}

func bytesOf(d graph.DType, elems int) int64 { return int64(d.Bytes() * elems) }
