package cuda

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// TestScanEach: single tokens of more sequences than a block has, some of them without a token.
func TestScanEach(t *testing.T) {
	for _, name := range []string{"selective_scan", "selective_scan_gated", "selective_scan_projected", "selective_scan_normed", "selective_scan_unit_normed"} {
		op := findOp(t, name)
		check(t, name, func(t *rapid.T) { checkEach(t, op) })
	}
}

func checkEach(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	next, n := cases[op.Name](d), d.pick("sequences", 2, 5, 8, 9, 13)
	d.decode, d.least, d.most = true, n, n
	c := next()
	seg := slices.IndexFunc(c.Args, func(a kernels.Tensor) bool { return a.DType == graph.I32 })
	taken := map[int32]bool{}
	for _, i := range d.rng.Perm(n) {
		slot := c.Args[seg].I32[3*i+2]
		if taken[slot] || d.rng.IntN(4) == 0 {
			c.Args[seg].I32[3*i+1] = 0
			continue
		}
		taken[slot] = true
	}
	states, state := map[int]Tensor{}, op.States[0]
	on := dev.deviceCall(op, &c, states, d.offset)
	dev.write(on.Results[0], &c.Results[0]) // of which rows without tokens stay as they are
	dev.compute(op, on, d.rng.Uint64())
	got, held := clone(&c.Results[0]), clone(&c.Args[state.Operand])
	dev.download(on.Results[0], &got)
	before := c.Results[0]
	c.Results[0], c.Args[state.Operand], c.Results[state.Result] = clone(&c.Results[0]), held, held
	reference.Kernels[op.Name].Run(&c, 0, 1)
	for i := range n {
		row, want, share := rowsOf(got, i, i+1), rowsOf(c.Results[0], i, i+1), 1e-5
		if c.Args[seg].I32[3*i+1] == 0 {
			want, share = rowsOf(before, i, i+1), 0
		}
		same(t, "result", &row, &want, share)
	}
	kept := clone(&held)
	dev.download(states[state.Operand], &kept)
	sameKept(t, &kept, &held, 1e-5)
}

// TestScanEachPlan: which kernels scan single tokens is decided by numbers of sequences and states.
func TestScanEachPlan(t *testing.T) {
	for _, c := range []struct {
		sequences, states int
		want              string
	}{
		{1, 16, "selective_scan_token_bf16 (1,4,1)"},
		{8, 16, "selective_scan_token_bf16 (8,4,1)"},
		{9, 16, "product selective_scan_each (3,4,1)"},
		{1, 17, "product selective_scan_steps (1,4,1)"},
	} {
		rows := func(cols int) Tensor { return Tensor{Tensor: shaped(graph.F32, c.sequences, cols)} }
		vector, state := Tensor{Tensor: shaped(graph.F32, 128)}, Tensor{Tensor: shaped(graph.F32, slots, 128, c.states)}
		x, w, a := rows(128), Tensor{Tensor: shaped(graph.BF16, 128, 48)}, Tensor{Tensor: shaped(graph.F32, 128, c.states)}
		call := &Call{Args: []Tensor{x, rows(48), w, vector, a, rows(c.states), rows(c.states), vector, x, state, {Tensor: shaped(graph.I32, c.sequences, 3)}},
			Results: []Tensor{x, state}}
		launches, err := Kernels["selective_scan_projected"].Launches(call)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range launches {
			if !strings.HasPrefix(l.Function, "selective_scan_") {
				got = append(got, "product")
				continue
			}
			got = append(got, fmt.Sprintf("%s (%d,%d,%d)", l.Function, l.Grid[0], l.Grid[1], l.Grid[2]))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%d sequences, %d states: %s, want %s", c.sequences, c.states, got, c.want)
		}
	}
}
