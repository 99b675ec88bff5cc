package cuda

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// cutInTime are the operations whose sequences may come in several batches.
var cutInTime = []string{"conv1d", "conv1d_silu", "unbiased_conv1d_silu", "selective_scan", "selective_scan_gated", "selective_scan_projected", "selective_scan_normed",
	"selective_scan_unit_normed", "ssd_scan", "ssd_scan_gated", "delta_scan", "attention"}

// otherOrder are the fused operations that sum in another order than the operations that they
// replace.
var otherOrder = []string{"norm_matmul", "norm_matmul_add", "norm_router", "selective_scan_projected", "selective_scan_normed",
	"selective_scan_unit_normed", "gated_matmul", "norm_gated_matmul", "rmsnorm_each", "unit_rmsnorm_each"}

// relation is a call that was interpreted once, and what it gave.
type relation struct {
	*draw
	op       *graph.Op
	dev      *device
	o        Options
	call     kernels.Call
	states   map[int]Tensor   // on the device, after the call
	results  []kernels.Tensor // with a row per token
	launches []Launch
}

// checkRelations runs a call once and compares it with float64, and with the same call of some
// rows, in place, by the operations that it replaces, and by pieces of its sequences.
func checkRelations(t *rapid.T, op *graph.Op) {
	r := &relation{draw: newDraw(t), op: op, dev: newDevice(t), states: map[int]Tensor{}}
	r.o.Math = Math(r.pick("math", 0, 0, 1))
	next := cases[op.Name](r.draw)
	cut := r.o.Math == F32 && slices.Contains(cutInTime, op.Name) && r.pick("cut", 0, 1) == 1
	if cut {
		r.decode, r.most = false, min(r.most, 2)
	}
	r.call = next()
	over := r.overOperands()
	r.results, r.launches = once(t, op, &r.call, r.o, r.states, r.dev)
	if r.o.Math == F32 {
		r.againstReference()
	}
	if op.Name != "select_rows" {
		r.someRows()
	}
	if len(over) > 0 {
		r.inPlace(over)
	}
	if op.Apart() != nil && r.o.Math == F32 {
		r.apart()
	}
	if cut {
		r.inPieces()
	}
}

// plain is the call with states of its own, for the float64 kernel.
func (r *relation) plain() *kernels.Call {
	c := kernels.Call{Attrs: r.call.Attrs}
	for i := range r.call.Args {
		c.Args = append(c.Args, clone(&r.call.Args[i]))
	}
	for i := range r.call.Results {
		c.Results = append(c.Results, clone(&r.call.Results[i]))
	}
	for _, s := range r.op.States {
		c.Results[s.Result] = c.Args[s.Operand]
	}
	return &c
}

func (r *relation) againstReference() {
	c := r.plain()
	k := reference.Kernels[r.op.Name]
	k.Run(c, 0, 1)
	for i := range r.results {
		if r.op.Name == "choose" {
			mayChoose(r.T, c, r.results[i].I32)
			continue
		}
		same(r.T, "result", &r.results[i], &c.Results[i], 1e-5)
	}
	for _, s := range r.op.States {
		got := clone(&r.call.Args[s.Operand])
		r.dev.download(r.states[s.Operand], &got)
		sameKept(r.T, &got, &c.Results[s.Result], 1e-5)
	}
}

// someRows: rows do not depend on the rest of the batch. A sequence by itself, or some of the
// rows, give the same bits.
func (r *relation) someRows() {
	lo, hi, s := drawRows(r.draw, r.op, &r.call)
	part := tokensOf(r.op, &r.call, lo, hi, s, 0)
	got, alone := once(r.T, r.op, &part, r.o, map[int]Tensor{}, r.dev)
	for i := range r.results {
		want := rowsOf(r.results[i], lo, hi)
		switch what := fmt.Sprintf("tokens %d to %d", lo, hi); {
		case order(r.launches) == order(alone):
			same(r.T, what, &got[i], &want, 0)
		case r.o.Math == F32:
			same(r.T, what, &got[i], &want, 1e-5)
		}
	}
}

// overOperands draws operands that results may overwrite, and lays these results as they lie.
func (r *relation) overOperands() (over []int) {
	if r.op.InPlace == nil {
		return nil
	}
	over = rapid.Permutation(r.op.InPlace).Draw(r.T, "operands")
	over = over[:min(len(over), len(r.call.Results))]
	for i, k := range over {
		r.call.Results[i] = clone(&r.call.Args[k])
	}
	return over
}

// inPlace runs the call with results over operands, and over two for two results: the
// bits are the same. The interpreter sees reads through a cache that does not see the writes.
func (r *relation) inPlace(over []int) {
	at := r.offset()
	within := r.dev.deviceCall(r.op, &r.call, map[int]Tensor{}, func() int { return at })
	within.Options = r.o
	for i, k := range over {
		within.Results[i].Ptr = within.Args[k].Ptr
	}
	r.dev.compute(r.op, within, r.rng.Uint64())
	plain := r.plain()
	for i, k := range over { // the float64 kernel, in place too
		plain.Results[i] = plain.Args[k]
	}
	k := reference.Kernels[r.op.Name]
	k.Run(plain, 0, 1)
	for i := range over {
		got := clone(&r.call.Results[i])
		r.dev.download(within.Results[i], &got)
		if at == 0 {
			same(r.T, "result in place", &got, &r.results[i], 0)
		}
		if r.o.Math == F32 {
			same(r.T, "result in place", &got, &plain.Results[i], 1e-5)
		}
	}
}

// apart: fused operations give the bits of those that they replace, but for those that sum in
// another order.
func (r *relation) apart() {
	share := 0.0
	if slices.Contains(otherOrder, r.op.Name) {
		share = 1e-5
	}
	values := apart(r.op, &r.call, func(op *graph.Op, on *kernels.Call) []kernels.Tensor {
		out, _ := once(r.T, op, on, Options{}, map[int]Tensor{}, r.dev)
		return out
	})
	for i := range r.results {
		same(r.T, "result", &r.results[i], &values[len(r.call.Args)+i], share)
	}
}

// apart runs the operations that a fused one replaces, and returns all values. The results of run
// lie elsewhere than those of the call.
func apart(op *graph.Op, c *kernels.Call, run func(op *graph.Op, on *kernels.Call) []kernels.Tensor) []kernels.Tensor {
	a := op.Apart().Whole()
	values := slices.Concat(c.Args, c.Results)
	for _, like := range a.Like[len(values):] {
		between := kernels.Between(&values[like])
		between.F32 = make([]float32, between.Rows()*between.Cols)
		values = append(values, between)
	}
	for i := range a.Steps {
		s := &a.Steps[i]
		on := kernels.Call{Attrs: s.AttrsOf(c.Attrs)}
		for _, v := range s.Args {
			on.Args = append(on.Args, values[v])
		}
		for _, v := range s.Results {
			on.Results = append(on.Results, values[v])
		}
		out := run(s.Op, &on)
		for k, v := range s.Results[:len(out)] {
			values[v] = out[k]
		}
	}
	return values
}

// inPieces: a sequence gives the same, and leaves the same state, in however many batches it comes;
// where states in 16 bits are rounded at every cut, the same as a reference that rounds there, too.
func (r *relation) inPieces() {
	attention := r.op.Name == "attention"
	if r.call.Args[r.op.States[0].Operand].DType != graph.F32 && !attention {
		cutAndRounded(r.T, r.op, &r.call, r.dev)
		return
	}
	share := 0.0
	if strings.HasPrefix(r.op.Name, "ssd_scan") || r.op.Name == "delta_scan" || attention || slices.Contains(otherOrder, r.op.Name) {
		share = 1e-5
	}
	_, sequence := perToken(r.op)
	segments := &r.call.Args[slices.IndexFunc(r.call.Args, func(x kernels.Tensor) bool { return x.DType == graph.I32 && x.Cols == 3 })]
	if i := slices.IndexFunc(r.call.Args, func(x kernels.Tensor) bool { return x.DType == graph.I32 && x.Cols == 3 }); !sequence(i) {
		r.Fatalf("operand %d of %s has no row per sequence", i, r.op.Name)
	}
	cut := map[int]Tensor{}
	for s := range segments.Rows() {
		start, tokens, _ := segments.Segment(s)
		for at := 0; at < tokens; {
			n := rapid.IntRange(1, tokens-at).Draw(r.T, "piece")
			part := tokensOf(r.op, &r.call, start+at, start+at+n, s, at)
			got, _ := once(r.T, r.op, &part, Options{}, cut, r.dev)
			want := rowsOf(r.results[0], start+at, start+at+n)
			same(r.T, fmt.Sprintf("tokens %d to %d of sequence %d", at, at+n, s), &got[0], &want, share)
			at += n
		}
	}
	for _, p := range r.op.States {
		if attention {
			continue // most of the caches is not written
		}
		a, b := clone(&r.call.Args[p.Operand]), clone(&r.call.Args[p.Operand])
		r.dev.download(r.states[p.Operand], &a)
		r.dev.download(cut[p.Operand], &b)
		same(r.T, "state", &b, &a, share)
	}
}
