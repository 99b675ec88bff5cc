package cuda

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// Kernels that look across time differ for prompts and for single tokens. A batch that has both, or
// tokens on trial, launches them once for each kind, with segment tables in which sequences of the
// other kind have no tokens: one of the prompts, one of the other sequences, and for recurrences,
// which go token by token there, one for each token. The tables come with the inputs, so that a
// program serves all batches of its sizes.

// trialKey is the part of a [programKey] that says which of these launches a program has; zero: it
// has one launch for all sequences.
type trialKey struct {
	prompts bool   // some sequences are prefilled
	tokens  int    // most of a sequence that goes token by token
	spares  string // of the trials, in their order, a rune each
	replay  bool   // only the recurrences, of tokens in the ring
}

// segment is a sequence's part of a batch.
type segment struct {
	first, tokens, slot int
	decodes             bool // goes token by token
}

// trials is what a machine's step has on trial.
type trials struct {
	segments []segment
	list     []exec.Trial
}

// recurrence is a step that goes token by token, and the operands that it keeps of tokens on trial.
type recurrence struct {
	lowering.Recurrence
	call   *call
	ring   []driver.Ptr // by operand: MaxTrial rows for each spare, of those with a row per token
	unread []driver.Ptr // likewise, by result: what a replay puts out again
}

// refuseTrials is an error for recurrences that the host computes, if there may be trials.
func refuseTrials(s *lowering.Schedule, trials int) error {
	if trials == 0 {
		return nil
	}
	for _, x := range s.Recurrences() {
		if st := &s.Steps[x.Step]; !hasKernel(st) {
			return fmt.Errorf("%s: operation %s has no kernel for GPUs, which speculative decoding requires there: register one with kernels/cuda.Register, or leave out --speculate", st.Name, st.Op.Name)
		}
	}
	return nil
}

// makeRing allocates the ring of operands, and room for the results of a replay. Its rows are zero:
// a replay computes those beyond its tokens, too.
func (r *rank) makeRing() error {
	spares := int64(r.machine.spares)
	bytes := spares * (r.s.TrialBytes() - r.s.Bytes[lowering.State])
	var err error
	if r.ring, err = r.alloc(bytes); err != nil {
		return err
	}
	if bytes > 0 {
		if err := r.compute.Fill(r.ring, 0, bytes); err != nil {
			return err
		}
	}
	take := func(at *driver.Ptr, ref *lowering.Ref) driver.Ptr {
		t := r.s.Local(ref.Type)
		from := *at
		*at += driver.Ptr(spares * lowering.MaxTrial * int64(graph.RowElems(t.Dims)*t.DType.Bytes()))
		return from
	}
	end := r.ring
	for _, x := range r.recurrences {
		x.ring = make([]driver.Ptr, len(x.call.args))
		for _, k := range x.Tokens {
			if len(x.States) > 0 {
				x.ring[k] = take(&end, &x.call.step.Args[k])
			}
		}
	}
	for _, x := range r.recurrences {
		x.unread = make([]driver.Ptr, len(x.call.results))
		rest := end // all have the same
		for _, k := range x.Rows {
			x.unread[k] = take(&rest, &x.call.step.Results[k])
		}
	}
	return nil
}

// findRecurrences lists those of the rank's schedule.
func (r *rank) findRecurrences() {
	r.recurs = map[*call]*recurrence{}
	for _, of := range r.s.Recurrences() {
		x := &recurrence{Recurrence: of, call: r.calls[of.Step]}
		r.recurrences, r.recurs[x.call] = append(r.recurrences, x), x
	}
}

// begin takes the segments of a batch and what of it is on trial.
func (t *trials) begin(w *exec.Work) {
	t.segments, t.list = t.segments[:0], w.Trials
	seg := w.Find("seg")
	if seg == nil {
		return // nothing looks across time
	}
	for i := range int(w.Seqs) {
		n := func(k int) int { return int(int32(binary.LittleEndian.Uint32(seg.Data[4*(3*i+k):]))) }
		t.segments = append(t.segments, segment{n(0), n(1), n(2), n(1) == 1})
	}
	for _, x := range t.list {
		t.segments[x.Sequence].decodes = true
	}
}

// key says which launches the batch needs. Without trials, a row may depend on its company unless
// the machine is invariant: one launch for all is faster.
func (t *trials) key(invariant bool) (key trialKey) {
	for _, x := range t.segments {
		if x.decodes {
			key.tokens = max(key.tokens, x.tokens)
		} else {
			key.prompts = true
		}
	}
	for _, x := range t.list {
		key.spares += string(rune(x.Spare))
	}
	if len(t.list) == 0 && !(invariant && key.prompts && key.tokens > 0) {
		return trialKey{}
	}
	return key
}

// Replay takes states past the first tokens of trials.
func (m *machine) Replay(ctx context.Context, list []state.Replay) error {
	t := &m.trials
	t.segments, t.list = t.segments[:0], nil
	key := programKey{z: graph.Sizes{Seqs: int64(len(list)), Tokens: int64(m.spares) * lowering.MaxTrial}}
	key.trial.replay = true
	for _, x := range list {
		t.segments = append(t.segments, segment{x.Spare * lowering.MaxTrial, x.Tokens, x.Memory, true})
		key.trial.tokens = max(key.trial.tokens, x.Tokens)
	}
	return m.run(ctx, key, nil)
}

const segmentBytes = 3 * 4

// The segment tables, and then the rows of the batch that the ring keeps, lie among the inputs
// after the table of pages.
func (r *rank) segmentsAt(z graph.Sizes) int { return r.tableAt(z) + roundUp(r.tableBytes(z)) }

func (k *programKey) tableSize() int { return roundUp(int(k.z.Seqs) * segmentBytes) }

// segmentsBytes is what these take.
func (k *programKey) segmentsBytes() int {
	if k.trial == (trialKey{}) {
		return 0
	}
	return (2+k.trial.tokens)*k.tableSize() + roundUp(4*lowering.MaxTrial*utf8.RuneCountInString(k.trial.spares))
}

// fillSegments writes them.
func (t *trials) fillSegments(to []byte, key programKey) {
	clear(to)
	table := func(first, tokens func(x segment) int) {
		for i, x := range t.segments {
			at := to[i*segmentBytes:]
			for k, n := range []int{first(x), tokens(x), x.slot} {
				binary.LittleEndian.PutUint32(at[4*k:], uint32(n))
			}
		}
		to = to[key.tableSize():]
	}
	begin := func(x segment) int { return x.first }
	only := func(decodes bool) func(x segment) int {
		return func(x segment) int {
			if x.decodes != decodes {
				return 0
			}
			return x.tokens
		}
	}
	table(begin, only(false))
	table(begin, only(true))
	for k := range key.trial.tokens {
		table(func(x segment) int { return x.first + min(k, x.tokens-1) }, func(x segment) int {
			if !x.decodes || k >= x.tokens {
				return 0
			}
			return 1
		})
	}
	for _, x := range t.list {
		s := t.segments[x.Sequence]
		for k := range lowering.MaxTrial {
			binary.LittleEndian.PutUint32(to, uint32(s.first+min(k, s.tokens-1)))
			to = to[4:]
		}
	}
}

// copyStates copies the states before trials to those that the step updates.
func (r *rank) copyStates(key programKey) error {
	bytes := r.s.Bytes[lowering.State]
	if key.trial.spares == "" || bytes == 0 {
		return nil
	}
	t := &r.machine.trials
	for _, x := range t.list {
		if err := r.compute.Copy(r.stateOf(t.segments[x.Sequence].slot), r.stateOf(x.From), bytes); err != nil {
			return err
		}
	}
	return nil
}

// eachReplayed visits the recurrences with states, bound to the ring.
func (r *rank) eachReplayed(key programKey, visit func(c *call) error) error {
	batch := &graph.Batch{Sizes: key.z}
	for i := range int(key.z.Seqs) {
		batch.Ends = append(batch.Ends, int(key.z.Tokens)/int(key.z.Seqs)*(i+1))
	}
	for _, x := range r.recurrences {
		if len(x.States) == 0 {
			continue
		}
		err := r.visit(key, x.call, batch, nil, func(c *call) error {
			for _, k := range x.Tokens {
				c.on.Args[k] = ringRows(c.on.Args[k], x.ring[k], 0, int(key.z.Tokens))
			}
			for _, k := range x.Rows {
				c.on.Results[k] = ringRows(c.on.Results[k], x.unread[k], 0, int(key.z.Tokens))
			}
			return visit(c)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ringRows is n rows of a ring, from one on, of tensors like t.
func ringRows(t kernels.Tensor, ring driver.Ptr, from, n int) kernels.Tensor {
	t.Stride, t.Dims[0] = t.Cols, n
	t.Ptr = uint64(ring) + uint64(from*t.Cols*t.DType.Bytes())
	return t
}

// kinds visits the call of a kernel as each kind of sequences needs it: with the options, the
// segment table and the number of the tables that follow it.
func (r *rank) kinds(key programKey, c *call, visit func(again int) error) error {
	_, recurs := r.recurs[c]
	seg := segmentsOf(&c.on)
	if key.trial == (trialKey{}) || seg < 0 || !recurs && !r.caches(c) {
		return visit(1)
	}
	own, tables := c.on.Args[seg].Ptr, uint64(r.inputs.ptr)+uint64(r.segmentsAt(key.z))
	defer func() { c.on.Args[seg].Ptr, c.on.Options.Decode = own, false }()
	if key.trial.prompts {
		c.on.Args[seg].Ptr = tables
		if err := visit(1); err != nil {
			return err
		}
	}
	if key.trial.tokens == 0 {
		return nil
	}
	c.on.Options.Decode = true
	if c.on.Args[seg].Ptr = tables + uint64(key.tableSize()); !recurs {
		return visit(1)
	}
	c.on.Args[seg].Ptr += uint64(key.tableSize())
	return visit(key.trial.tokens)
}

// segmentsOf finds the segment table among a call's operands; -1: there is none.
func segmentsOf(c *kernels.Call) int {
	return slices.IndexFunc(c.Args, func(t kernels.Tensor) bool { return t.DType == graph.I32 && t.Cols == 3 })
}

// caches reports whether a call has a KV cache.
func (r *rank) caches(c *call) bool {
	return slices.ContainsFunc(c.step.Args, func(a lowering.Ref) bool { return r.s.Buffers[a.Buffer].Space == lowering.Cache })
}

// keep appends the copies of a recurrence's operands to the ring.
func (b *builder) keep(c *call) error {
	x, ok := b.r.recurs[c]
	if !ok || len(x.States) == 0 || b.key.trial.spares == "" {
		return nil
	}
	index := uint64(b.r.inputs.ptr) + uint64(b.r.segmentsAt(b.z)+(2+b.key.trial.tokens)*b.key.tableSize())
	spares := []rune(b.key.trial.spares)
	for _, k := range x.Tokens {
		for i, n := 0, 0; i < len(spares); i += n {
			for n = 1; i+n < len(spares) && spares[i+n] == spares[i]+rune(n); n++ {
			}
			to := ringRows(c.on.Args[k], x.ring[k], int(spares[i])*lowering.MaxTrial, n*lowering.MaxTrial)
			list := kernels.Gather(to, c.on.Args[k], index+uint64(4*i*lowering.MaxTrial))
			if err := b.launches(c.step.Name, c.step.Stream, list); err != nil {
				return err
			}
		}
	}
	return nil
}
