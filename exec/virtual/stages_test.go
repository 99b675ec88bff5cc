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

// TestDecodeMicrobatchesByHand: each of two stages takes 40 seconds for weights and 20 for each
// sequence, and 9 for passing 8 bytes.
//
//   - 2 sequences: one batch takes 80 + 9 + 80 = 169. Two would compute for 3 × 60.
//   - 8 sequences: two microbatches of 4 take 120 in a stage. The first stage ends the second one
//     at 120 + 9 + 120 = 249, when the second stage ends the first one. They pass it until 258, and
//     the second stage ends at 378; one batch would take 200 + 9 + 200 = 409. Each stage is idle
//     for 120.
func TestDecodeMicrobatchesByHand(t *testing.T) {
	for _, c := range []struct {
		seqs                int64
		seconds, busy, idle float64
	}{{2, 169, 80, 80}, {8, 378, 240, 120}} {
		list := decoding(t)
		m, err := New(list, &Device{Profile: plain(1)}, exec.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.Run(graph.Sizes{Tokens: c.seqs, Seqs: c.seqs, Rows: c.seqs}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if busy, idle := []float64{c.busy, c.busy}, []float64{c.idle, c.idle}; s.Seconds() != c.seconds || !slices.Equal(s.Busy, busy) || !slices.Equal(s.Idle, idle) {
			t.Errorf("%d sequences take %g seconds, busy for %v, idle for %v; want %g, %v, %v", c.seqs, s.Seconds(), s.Busy, s.Idle, c.seconds, busy, idle)
		}
	}
}

// decoding makes the schedules of two stages, each of which takes 40 seconds for weights and 20 for
// each sequence.
func decoding(t *testing.T) []*lowering.Schedule {
	list := staged(t, 1, "k40 k20 r0 w1 | w0 send8 r1", "w0 k40 k20 | receive8 r0")
	for _, s := range list {
		for i := range s.Steps {
			st := &s.Steps[i]
			if st.Kind != lowering.Launch {
				continue
			}
			seconds := int64(st.Args[0].Type.Dims[0].Len())
			st.Cost.Read = graph.Const(seconds)
			if seconds == 20 {
				ref := []lowering.Ref{{Type: graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), graph.Size(20))}}
				st.Args, st.Results, st.Cost.Read = ref, ref, graph.Const(20).Times(graph.Var(graph.Seqs))
			}
		}
	}
	return list
}

// TestTurnsByHand: the same stages in two turns, worked out on paper.
//
//   - 2 sequences, one in each turn of 60 in a stage. The first stage runs turn 1 until 60
//     and passes it until 69; the second stage runs it until 129, while the first runs
//     turn 2. They pass that until 138. Then the first stage begins turn 1 again: a round
//     takes 138, and no stage is idle. A step would take 169.
//   - 8 sequences: a turn of 4 takes 120, a round 2 · (120 + 9) = 258, a step 378.
//   - 1 sequence has one turn: 60 + 9 + 60.
//   - 3 on stages that the host starts after 30: turns of 1 and 2. Turn 1 takes 60 and 9 and 60,
//     and begins again 30 after that. In the meantime turn 2, of 80, passes the first stage until
//     149 and the second until 238. So a round is as long as turn 2 from stage to stage, and what
//     the host takes: 80 + 9 + 80 + 30 = 199.
func TestTurnsByHand(t *testing.T) {
	for _, c := range []struct {
		seqs          int64
		host, seconds float64
		busy, idle    [2]float64
	}{
		{2, 0, 138, [2]float64{120, 120}, [2]float64{}},
		{8, 0, 258, [2]float64{240, 240}, [2]float64{}},
		{1, 0, 129, [2]float64{60, 60}, [2]float64{60, 60}},
		{3, 30, 199, [2]float64{140, 140}, [2]float64{41, 41}},
	} {
		p := plain(1)
		p.Overhead.Step.Value = c.host
		m, err := New(decoding(t), &Device{Profile: p}, exec.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second is like the first
			s, err := m.Turns(graph.Sizes{Tokens: c.seqs, Seqs: c.seqs, Rows: c.seqs}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if s.Seconds() != c.seconds || !slices.Equal(s.Busy, c.busy[:]) || !slices.Equal(s.Idle, c.idle[:]) {
				t.Errorf("%d sequences take %g seconds, busy for %v, idle for %v; want %+v", c.seqs, s.Seconds(), s.Busy, s.Idle, c)
			}
		}
	}
}
