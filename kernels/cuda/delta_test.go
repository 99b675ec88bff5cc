package cuda

import (
	"fmt"
	"math"
	"testing"

	"github.com/krait-ml/krait/graph"
	"pgregory.net/rapid"
)

// TestDeltaChunks: prompts of 1 to 130 tokens in chunks give what the float64 kernel gives by
// steps, with decays of heads and of rows from none to all, and with those from 0 to 5 that a gate
// with a lower bound gives. Sequences have the same bits alone, and cut at a multiple of a chunk's
// tokens.
func TestDeltaChunks(t *testing.T) {
	op := findOp(t, "delta_scan")
	test := func(t *rapid.T) { checkDeltaChunks(t, op) }
	check(t, op.Name, test)
	until(t, test, "delta_f32.delta_scan_chunks", "delta_bf16.delta_scan_chunks",
		"delta_f32.delta_scan_chunks_rows", "delta_bf16.delta_scan_chunks_rows")
}

func checkDeltaChunks(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	d.decode, d.most, d.lens = false, 3, []int{1, 2, 31, 32, 33, 63, 64, 65, 100, 130}
	d.aligned = d.pick("aligned", 0, 1) == 1
	decay := rapid.SampledFrom([]float64{0, 1e-3, 0.1, 1, 40, 1000}).Draw(t, "decay")
	n, chunk := d.pick("n", 1, 3, 16, 20, 64, 128), deltaChunk
	decays := d.pick("decays", 1, n)
	if decays > 1 {
		chunk /= 2
	}
	c := drawDelta(d, n, d.pick("p", 1, 17, 32, 40), decays, decay)()
	if d.pick("bounded", 0, 1) == 1 {
		d.fill(&c.Args[3], func(v float64) float64 { return -5 / (1 + math.Exp(-v)) })
	}
	r := &relation{draw: d, op: op, dev: dev, call: c, states: map[int]Tensor{}}
	r.results, r.launches = once(t, op, &c, Options{}, r.states, dev)
	r.againstReference()
	r.someRows()
	segments, state := &c.Args[6], op.States[0].Operand
	if c.Args[state].DType != graph.F32 {
		return // it is rounded at every cut
	}
	cut := map[int]Tensor{}
	for s := range segments.Rows() {
		start, tokens, _ := segments.Segment(s)
		at := chunk * d.pick("chunks", 0, 1, 2)
		if tokens-at < 2 { // one token is a step
			at = 0
		}
		for _, span := range [][2]int{{0, at}, {at, tokens}} {
			if span[0] == span[1] {
				continue
			}
			part := tokensOf(op, &c, start+span[0], start+span[1], s, span[0])
			got, launches := once(t, op, &part, Options{}, cut, dev)
			if order(launches) != order(r.launches) {
				return
			}
			want := rowsOf(r.results[0], start+span[0], start+span[1])
			same(t, fmt.Sprintf("tokens %d to %d of sequence %d", span[0], span[1], s), &got[0], &want, 0)
		}
	}
	whole, parts := clone(&c.Args[state]), clone(&c.Args[state])
	dev.download(r.states[state], &whole)
	dev.download(cut[state], &parts)
	same(t, "state", &parts, &whole, 0)
}

// TestDeltaPlan: prompts go in chunks where shared memory suffices, and where rows have their
// decays if there are few.
func TestDeltaPlan(t *testing.T) {
	for _, c := range []struct {
		sequences, tokens, n, decays, limit int
		want                                string
	}{
		{1, 512, 128, 1, 0, "delta_scan_chunks (1,4,4)"},
		{1, 512, 128, 1, 99 << 10, "delta_scan_chunks (1,4,4)"},
		{2, 3, 128, 1, 0, "delta_scan_chunks (2,4,4)"},
		{2, 2, 128, 1, 0, "delta_scan_steps (2,4,4)"},
		{1, 512, 128, 128, 0, "delta_scan_chunks_rows (1,4,4)"},
		{1, 512, 128, 128, 99 << 10, "delta_scan_chunks_rows (1,4,4)"},
		{2, 2, 128, 128, 0, "delta_scan_steps (2,4,4)"},
		{1, 512, 132, 132, 0, "delta_scan_steps (1,4,4)"},
		{1, 512, 256, 1, 163 << 10, "delta_scan_chunks (1,4,4)"},
		{1, 512, 256, 1, 99 << 10, "delta_scan_steps (1,4,4)"},
	} {
		rows := func(cols int) Tensor { return Tensor{Tensor: shaped(graph.F32, c.tokens, cols), Ptr: 256} }
		q, v, state := rows(4*c.n), rows(4*128), Tensor{Tensor: shaped(graph.F32, slots, 4, c.n, 128), Ptr: 256}
		call := &Call{Args: []Tensor{q, q, v, rows(4 * c.decays), rows(4), state, {Tensor: shaped(graph.I32, c.sequences, 3)}},
			Results: []Tensor{v, state}, Attrs: graph.Attrs{"scale": 1.0}, Options: Options{Shared: c.limit}}
		if got := planned(t, "delta_scan", call, func([]Launch) int64 { return 0 }); got != c.want {
			t.Errorf("%d sequences of %d tokens, %d rows, %d decays, %d bytes: %s, want %s", c.sequences, c.tokens, c.n, c.decays, c.limit, got, c.want)
		}
	}
}
