package cpu

import (
	"context"
	"sync"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// trials are the sequences of the batch whose tokens may be rolled back.
type trials struct {
	list     []exec.Trial
	stepwise []bool        // by segment: its recurrences go token by token
	steps    []*recurrence // those with states
	segments []int32       // of a replay
	again    []bool        // stepwise, of a replay
}

// recurrence is what a step needs for trials.
type recurrence struct {
	lowering.Recurrence
	step   *step
	keep   kernels.Kernel // copies states and operands; without states there is nothing to keep
	trial  kernels.Kernel // the step's, token by token
	replay kernels.Kernel
	ring   []kernels.Tensor // by operand: MaxTrial rows for each spare, of those with a row per token
	unread []kernels.Tensor // likewise, by result: what a replay puts out again
	call   kernels.Call     // of a replay
}

// addTrials gives recurrences their rings.
func (r *rank) addTrials(spares int) {
	if spares == 0 {
		return
	}
	ring := roomy(int64(spares) * (r.s.TrialBytes() - r.s.Bytes[lowering.State]))
	rows := func(ref lowering.Ref, data []byte) (t kernels.Tensor, rest []byte) {
		t = operand.New(r.s, ref).Tensor
		t.Dims[0], t.Stride = spares*lowering.MaxTrial, t.Cols
		n := t.Dims[0] * t.Cols * t.DType.Bytes()
		x := operand.Floats(t.DType, data[:n])
		t.F32, t.U16 = x.F32, x.U16
		return t, data[n:]
	}
	for _, of := range r.s.Recurrences() {
		c := &recurrence{Recurrence: of}
		for i := range r.steps {
			if r.steps[i].Step == &r.s.Steps[of.Step] {
				c.step = &r.steps[i]
			}
		}
		st := c.step
		st.recurrence = c
		c.trial = c.byTokens(r, &r.trials.stepwise)
		if len(c.States) == 0 {
			continue
		}
		c.replay, c.keep = c.byTokens(r, &r.trials.again), c.keeper(r)
		c.ring, c.unread = make([]kernels.Tensor, len(st.Args)), make([]kernels.Tensor, len(st.Results))
		for _, k := range c.Tokens {
			c.ring[k], ring = rows(st.Args[k], ring)
		}
		r.trials.steps = append(r.trials.steps, c)
	}
	for _, c := range r.trials.steps {
		rest := ring // all have the same
		for _, k := range c.Rows {
			c.unread[k], rest = rows(c.step.Results[k], rest)
		}
	}
}

// begin takes the trials of a batch.
func (t *trials) begin(w *exec.Work) {
	t.list = w.Trials
	if len(t.list) == 0 {
		return
	}
	t.stepwise = append(t.stepwise[:0], make([]bool, w.Seqs)...)
	for _, x := range t.list {
		t.stepwise[x.Sequence] = true
	}
}

// run runs the step of a batch with trials.
func (c *recurrence) run(r *rank) error {
	st := c.step
	if len(c.States) > 0 {
		bytes := int64(len(r.trials.list)) * c.stateBytes(r)
		if err := r.pool.run(&c.keep, &st.call, bytes/4); err != nil {
			return err
		}
	}
	return r.pool.launch(&c.trial, &st.call, st.work)
}

// keptBytes of states are a unit of copying them.
const keptBytes = 64 << 10

// keeper copies the states before trials, and the operands of their tokens.
func (c *recurrence) keeper(r *rank) kernels.Kernel {
	pieces := 1 + int(c.stateBytes(r)/keptBytes)
	return kernels.Kernel{
		Units: func(*kernels.Call) int { return len(r.trials.list) * pieces },
		Run: func(call *kernels.Call, lo, hi int) {
			for u := lo; u < hi; u++ {
				x, piece := r.trials.list[u/pieces], int64(u%pieces)
				start, tokens, slot := call.Args[c.Segments].Segment(x.Sequence)
				for _, k := range c.States {
					b := &r.s.Buffers[c.step.Args[k].Buffer]
					from, end := piece*b.Bytes/int64(pieces), (piece+1)*b.Bytes/int64(pieces)
					copy(r.stateOf(slot)[b.Offset+from:b.Offset+end], r.stateOf(x.From)[b.Offset+from:])
				}
				for t := 0; t < tokens && piece == 0; t++ {
					for _, k := range c.Tokens {
						from, to := &call.Args[k], &c.ring[k]
						to.Copy((x.Spare*lowering.MaxTrial+t)*to.Stride, from, (start+t)*from.Stride, to.Cols)
					}
				}
			}
		},
	}
}

// stateBytes is the size of the states of a slot that the step updates.
func (c *recurrence) stateBytes(r *rank) (n int64) {
	for _, k := range c.States {
		n += r.s.Buffers[c.step.Args[k].Buffer].Bytes
	}
	return n
}

// nearBytes of states stay in a core's first cache while tokens go past them.
const nearBytes = 16 << 10

// byTokens is the step's kernel, segment by segment, and of those that are stepwise token by token:
// each call is that of a single step, so that it leaves its bits, also where states are rounded. A
// unit is one of such a call.
func (c *recurrence) byTokens(r *rank, stepwise *[]bool) kernels.Kernel {
	kernel := &c.step.kernel
	return kernels.Kernel{
		Units: func(call *kernels.Call) int {
			one := c.single(call)
			defer singles.Put(one)
			return len(*stepwise) * kernel.Units(&one.Call)
		},
		Run: func(call *kernels.Call, lo, hi int) {
			one := c.single(call)
			defer singles.Put(one)
			each := kernel.Units(&one.Call)
			near := 1 + nearBytes*each/int(1+c.stateBytes(r))
			for lo < hi {
				s := lo / each
				start, tokens, slot := call.Args[c.Segments].Segment(s)
				from, to, n := lo-s*each, min(hi-s*each, each), tokens
				if (*stepwise)[s] {
					n = 1
				}
				for lo = s*each + to; from < to; from += near {
					for t := start; t < start+tokens; t += n {
						c.cut(one, call, t, n, slot)
						kernel.Run(&one.Call, from, min(to, from+near))
					}
				}
			}
		},
	}
}

// single is a call for one segment, or a token of it.
type single struct {
	kernels.Call
	args, results []kernels.Tensor
	segment       [3]int32
}

var singles = sync.Pool{New: func() any { return new(single) }}

// single is a call like another, of a segment that is cut then.
func (c *recurrence) single(like *kernels.Call) *single {
	one := singles.Get().(*single)
	one.args, one.results = append(one.args[:0], like.Args...), append(one.results[:0], like.Results...)
	one.Call = kernels.Call{Args: one.args, Results: one.results, Attrs: like.Attrs, Scratch: like.Scratch}
	seg := &one.args[c.Segments]
	seg.I32, seg.Dims[0] = one.segment[:], 1
	return one
}

// cut limits a call to n tokens of a slot, from one on.
func (c *recurrence) cut(one *single, of *kernels.Call, first, n, slot int) {
	one.segment = [3]int32{0, int32(n), int32(slot)}
	for _, k := range c.Tokens {
		one.args[k] = of.Args[k].Cut(first, n)
	}
	for _, k := range c.Rows {
		one.results[k] = of.Results[k].Cut(first, n)
	}
	if k := &c.step.kernel; k.Before != nil {
		k.Prepare(&one.Call)
	}
}

// Replay takes states past the first tokens of trials.
func (m *machine) Replay(ctx context.Context, list []state.Replay) error {
	return m.run(work{ctx: ctx, replays: list})
}

// replay runs the recurrences of a replay.
func (r *rank) replay(w work) {
	z := graph.Sizes{Seqs: int64(len(w.replays))}
	r.trials.segments, r.trials.again = r.trials.segments[:0], r.trials.again[:0]
	for _, x := range w.replays {
		z.Tokens += int64(x.Tokens)
		r.trials.segments = append(r.trials.segments, int32(x.Spare*lowering.MaxTrial), int32(x.Tokens), int32(x.Memory))
		r.trials.again = append(r.trials.again, true)
	}
	for _, c := range r.trials.steps {
		if !r.may(c.step, w) {
			return
		}
		c.bindReplay(r)
		if err := r.pool.launch(&c.replay, &c.call, workOf(c.step.Cost, z)/int64(r.s.Ranks)); err != nil {
			r.comm.Stop(r.where(c.step, err))
			return
		}
	}
}

// bindReplay binds the call of a replay: as that of the step, with operands in the ring.
func (c *recurrence) bindReplay(r *rank) {
	of := &c.step.call
	c.call = kernels.Call{Args: append(c.call.Args[:0], of.Args...), Results: append(c.call.Results[:0], of.Results...), Attrs: of.Attrs, Scratch: of.Scratch}
	for _, k := range c.Tokens {
		c.call.Args[k] = c.ring[k]
	}
	for _, k := range c.Rows {
		c.call.Results[k] = c.unread[k]
	}
	seg := &c.call.Args[c.Segments]
	seg.I32, seg.Dims[0] = r.trials.segments, len(r.trials.again)
}
