package virtual

import (
	"fmt"
	"slices"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// staged makes the schedules of a mesh of stages and replicas by hand: a text per stage, in which
// send8 and receive8 pass 8 bytes between neighbours.
func staged(t *testing.T, replicas int, texts ...string) (list []*lowering.Schedule) {
	mesh := graph.Mesh{graph.PP: len(texts), graph.DP: replicas}
	for r := range replicas {
		for stage, text := range texts {
			s := hand(t, text, 0, 1)
			s.Mesh, s.Stage, s.Replica = mesh, stage, r
			list = append(list, s)
		}
	}
	return list
}

// TestStagesByHand: a kernel of 3 seconds in the first stage, 1 + 8 seconds of 8 bytes on their
// way, and a kernel of 5 in the second, worked out on paper.
//
//   - One batch: 3 + 9 + 5 = 17. The first stage stands still for 5 at the end, the second for 3 at
//     the beginning.
//   - Two microbatches: the first sends from 3 to 12, computes to 15, and waits for the second,
//     which computes from 12 to 17; they pass tensors until 26, and the second computes until 31.
//     So the first is idle for 2 + 5, the second for 3.
//   - Replicas run beside each other.
func TestStagesByHand(t *testing.T) {
	for _, c := range []struct {
		replicas, tokens, seqs int64
		seconds                float64
		busy, idle             [2]float64
	}{
		{1, 1, 1, 17, [2]float64{3, 5}, [2]float64{5, 3}},
		{1, 128, 1, 31, [2]float64{6, 10}, [2]float64{7, 3}},
		{2, 2, 2, 17, [2]float64{3, 5}, [2]float64{5, 3}},
		{2, 256, 2, 31, [2]float64{6, 10}, [2]float64{7, 3}},
	} {
		list := staged(t, int(c.replicas), "k3 r0 w1 | w0 send8 r1", "w0 k5 | receive8 r0")
		m, err := New(list, &Device{Profile: plain(1)}, exec.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.Run(graph.Sizes{Tokens: c.tokens, Seqs: c.seqs, Rows: c.seqs}, nil)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%d tokens on %d replicas", c.tokens, c.replicas)
		if s.Seconds() != c.seconds {
			t.Errorf("%s take %g seconds, want %g", name, s.Seconds(), c.seconds)
		}
		if want := slices.Repeat(c.busy[:], int(c.replicas)); !slices.Equal(s.Busy, want) {
			t.Errorf("%s: busy for %v, want %v", name, s.Busy, want)
		}
		if want := slices.Repeat(c.idle[:], int(c.replicas)); !slices.Equal(s.Idle, want) {
			t.Errorf("%s: idle for %v, want %v", name, s.Idle, want)
		}
	}
}
