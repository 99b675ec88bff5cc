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

// perToken says which operands have a row per token or wanted row, and which a row per sequence.
func perToken(op *graph.Op) (token, sequence func(i int) bool) {
	if op.Rule == nil { // concat, quantize
		return func(int) bool { return true }, func(int) bool { return false }
	}
	left, _, _ := strings.Cut(strings.ReplaceAll(op.Rule.String(), "*", "t d"), "->")
	lists := strings.Split(left, ",")
	begins := func(letters string) func(int) bool {
		return func(i int) bool {
			return strings.ContainsAny(strings.TrimSpace(lists[i])[:1], letters) && !isState(op, i)
		}
	}
	return begins("tou"), begins("s")
}

// rowsOf is rows lo to hi of a tensor.
func rowsOf(t kernels.Tensor, lo, hi int) kernels.Tensor {
	from := lo * t.Stride
	t.Dims[0] = hi - lo
	switch t.DType {
	case graph.F32:
		t.F32 = t.F32[min(from, len(t.F32)):]
	case graph.I32:
		t.I32 = t.I32[min(from, len(t.I32)):]
	default:
		t.U16 = t.U16[min(from, len(t.U16)):]
	}
	return t
}

// tokensOf is a call for tokens lo to hi of the batch, all of sequence s, which
// has had some before: the whole call if it has no sequences.
func tokensOf(op *graph.Op, c *kernels.Call, lo, hi, s, before int) kernels.Call {
	token, sequence := perToken(op)
	out := *c
	out.Args = append([]kernels.Tensor(nil), c.Args...)
	for i := range out.Args {
		if token(i) {
			out.Args[i] = rowsOf(out.Args[i], lo, hi)
		}
		if sequence(i) {
			t := clone(&out.Args[i])
			t = rowsOf(t, s, s+1)
			if t.Cols == 3 {
				t.I32[0], t.I32[1] = 0, int32(hi-lo)
			} else {
				t.I32[0] += int32(before)
			}
			out.Args[i] = t
		}
	}
	out.Results = append([]kernels.Tensor(nil), c.Results...)
	for i := range rowResults(op) {
		out.Results[i] = rowsOf(out.Results[i], lo, hi)
	}
	return out
}

// rowResults counts the results that have rows of the batch: those before the states.
func rowResults(op *graph.Op) int {
	if op.Rule == nil {
		return 1
	}
	_, results, _ := strings.Cut(op.Rule.String(), "->")
	return strings.Count(results, ",") + 1 - len(op.States)
}

// order names the kernels of a call that add in an order of their own: calls with
// the same give the same bits.
func order(launches []Launch) string {
	var names []string
	for _, l := range launches {
		for _, own := range []string{"matmul_f32", "matmul_bf16", "matmul_f16", "ssd_scan_chunks", "delta_scan_chunks", "attention_flash", "attention_mma", "few", "mma_split", "mma_round", "rmsnorm", "norm_router", "ssd_mma", "selective_scan_token"} {
			if strings.Contains(l.Function, own) {
				names = append(names, own)
				if own == "few" || strings.HasPrefix(own, "mma") {
					names = append(names, fmt.Sprint(l.Grid[2], strings.Contains(l.Function, "_64_"))) // slices, and tiles of many rows
				}
			}
		}
	}
	return fmt.Sprint(names)
}

// once runs a call in new memory with the states as they are in the call.
func once(t *rapid.T, op *graph.Op, c *kernels.Call, o Options, states map[int]Tensor, dev *device) (results []kernels.Tensor, launches []Launch) {
	on := dev.deviceCall(op, c, states, func() int { return 0 })
	on.Options = o
	launches = dev.compute(op, on, 0)
	for i := range rowResults(op) {
		results = append(results, clone(&c.Results[i]))
		dev.download(on.Results[i], &results[i])
	}
	return results, launches
}

// drawRows draws rows of a call: those of a sequence where it has some.
func drawRows(d *draw, op *graph.Op, c *kernels.Call) (lo, hi, s int) {
	_, sequence := perToken(op)
	for i := range c.Args {
		if sequence(i) && c.Args[i].Cols == 3 {
			s = rapid.IntRange(0, c.Args[i].Rows()-1).Draw(d.T, "sequence")
			start, tokens, _ := c.Args[i].Segment(s)
			return start, start + tokens, s
		}
	}
	rows := c.Results[0].Rows()
	lo = rapid.IntRange(0, rows-1).Draw(d.T, "lo")
	return lo, rapid.IntRange(lo+1, rows).Draw(d.T, "hi"), 0
}

// cutAndRounded gives sequences in pieces, and holds each against the reference, which
// continues from the same states: rounded apart, they would drift apart.
func cutAndRounded(t *rapid.T, op *graph.Op, c *kernels.Call, dev *device) {
	segments := c.Args[slices.IndexFunc(c.Args, func(x kernels.Tensor) bool { return x.DType == graph.I32 && x.Cols == 3 })]
	state, on := op.States[0], map[int]Tensor{}
	held := clone(&c.Args[state.Operand])
	for s := range segments.Rows() {
		start, tokens, _ := segments.Segment(s)
		for at := 0; at < tokens; {
			n := rapid.IntRange(1, tokens-at).Draw(t, "piece")
			part := tokensOf(op, c, start+at, start+at+n, s, at)
			got, _ := once(t, op, &part, Options{}, on, dev)
			part.Args[state.Operand], part.Results[state.Result] = held, held
			part.Results[0] = clone(&part.Results[0])
			reference.Kernels[op.Name].Run(&part, 0, 1)
			same(t, fmt.Sprintf("tokens %d to %d of sequence %d", at, at+n, s), &got[0], &part.Results[0], 1e-5)
			kept := clone(&held)
			dev.download(on[state.Operand], &kept)
			sameKept(t, &kept, &held, 1e-5)
			dev.write(on[state.Operand], &held)
			at += n
		}
	}
}

// TestReplay: launches that were planned for one batch of sequences with a token
// each serve the next, for which the memory has other slots, pasts and rows; a
// sequence without tokens is left alone.
func TestReplay(t *testing.T) {
	for _, name := range []string{"conv1d", "selective_scan", "selective_scan_gated", "selective_scan_projected", "selective_scan_normed", "selective_scan_unit_normed", "ssd_scan", "ssd_scan_gated", "delta_scan", "rotary", "attention"} {
		op := findOp(t, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, name, func(t *rapid.T) { checkReplay(t, op) })
		})
	}
}

func checkReplay(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	next := cases[op.Name](d)
	d.decode, d.least, d.most = true, 2, 2
	first, second := next(), next()
	on := dev.deviceCall(op, &first, map[int]Tensor{}, d.offset)
	launches := dev.compute(op, on, 0)
	idle := d.pick("idle", -1, 0, 1)
	for i := range second.Args {
		arg := &second.Args[i]
		*arg = spread(*arg, &first.Args[i])
		if isState(op, i) {
			dev.download(on.Args[i], arg)
			continue
		}
		if arg.DType == graph.I32 && arg.Cols == 3 && idle >= 0 {
			arg.I32[3*idle+1] = 0
		}
		dev.write(on.Args[i], arg)
	}
	if op.Name == "attention" {
		dev.turn(&on.Args[3], &second.Args[5])
	}
	second.Results[0] = spread(second.Results[0], &first.Results[0])
	for _, p := range op.States {
		second.Results[p.Result] = second.Args[p.Operand]
	}
	dev.run(launches, 0)
	plain := reference.Kernels[op.Name]
	plain.Run(&second, 0, 1)
	for i := range second.Results {
		got, want := clone(&second.Results[i]), second.Results[i]
		dev.download(on.Results[i], &got)
		if i == 0 && idle >= 0 {
			got, want = rowsOf(got, 1-idle, 2-idle), rowsOf(want, 1-idle, 2-idle)
		}
		if i == 0 {
			same(t, "result", &got, &want, 1e-5)
		} else {
			sameKept(t, &got, &want, 1e-5)
		}
	}
}

// spread copies a tensor's rows to memory that lies as another's.
func spread(t kernels.Tensor, like *kernels.Tensor) kernels.Tensor {
	if t.DType == graph.I32 {
		return clone(&t)
	}
	out := clone(like)
	line := make([]float32, t.Cols)
	for i := range allRows(&t) {
		t.Read(line, i*t.Stride)
		out.Write(i*out.Stride, line)
	}
	return out
}
