package cpu

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/spin"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// rank has its device memory and a way to the other ranks; it sees nothing else of them.
type rank struct {
	s         *lowering.Schedule
	comm      comm.Comm
	pool      *pool
	wait      *spin.Waiter // nil for the first rank, which runs in the caller
	slots     int
	memory    [][]byte // by buffer: parameters, inputs, constants
	states    []byte   // a run per slot
	kept      [][]byte // and by slot beyond these
	pages     kernels.Pages
	inPage    []int // by buffer: where a cache's rows begin in a page
	pageBytes int64
	arena     []byte
	scratch   []byte // of the kernel that runs
	init      []step
	steps     []step
	at        *step // that runs
	piece     int   // of a loop
	inputs    []input
	outputs   []operand.Operand
	batch     graph.Batch
	wide      []graph.Run // of the batch's rows, see exec.Work
	bound     bool        // steps are bound to the batch and to the memory as it is
	gives     bool        // the outputs, where it is of the last stage: the first rank of its stage, or here
	trials    trials

	recorded bool // what it does is written down
	origin   time.Time
	events   []exec.Event // of the step
}

// step is a step of the schedule with its tensors bound to memory.
type step struct {
	*lowering.Step
	args, results []operand.Operand
	kernel        kernels.Kernel
	call          kernels.Call
	work          int64           // operations and words read
	collective    comm.Collective // also of a Relayout
	ran           tally
	recurrence    *recurrence // nil: trials run the step as it is, or there are none
	passed        *passed     // of a step that passes states along a chain
}

func newRank(s *lowering.Schedule, set kernels.Set, o *exec.Setup) (*rank, error) {
	r := &rank{s: s, slots: o.Slots, memory: make([][]byte, len(s.Buffers)), pages: kernels.Pages{Tokens: o.PageTokens}}
	r.inPage, r.pageBytes = s.Page(o.PageTokens)
	if err := r.allocate(o.Tensor); err != nil {
		return nil, err
	}
	var err error
	if r.init, err = newSteps(s, s.Init, set); err != nil {
		return nil, err
	}
	for _, out := range s.Outputs {
		r.outputs = append(r.outputs, operand.New(s, out.Ref))
	}
	for i, b := range s.Buffers {
		if b.Space == lowering.Input {
			r.inputs = append(r.inputs, newInput(s, i))
		}
	}
	if r.steps, err = newSteps(s, s.Steps, set); err != nil {
		return nil, err
	}
	r.addTrials(o.Trials)
	return r, nil
}

// newSteps leaves the events out: one goroutine takes the steps in order.
func newSteps(s *lowering.Schedule, steps []lowering.Step, set kernels.Set) ([]step, error) {
	var out []step
	for i := range steps {
		from := &steps[i]
		if from.Kind == lowering.Record || from.Kind == lowering.Wait {
			continue
		}
		st := step{Step: from}
		st.call = kernels.Call{Args: make([]kernels.Tensor, len(from.Args)), Results: make([]kernels.Tensor, len(from.Results)), Attrs: from.Attrs}
		for _, ref := range from.Args {
			st.args = append(st.args, operand.New(s, ref))
		}
		for _, ref := range from.Results {
			st.results = append(st.results, operand.New(s, ref))
		}
		if from.Kind == lowering.Launch {
			k, ok := set[from.Op.Name]
			if !ok {
				return nil, fmt.Errorf("%s: there is no kernel for %s among those that were chosen (kernels/cpu.Register adds one)", from.Name, from.Op.Name)
			}
			st.kernel = k
		} else {
			st.collective = comm.Of(s, from, &st.call)
			st.passed = newPassed(s, from)
		}
		out = append(out, st)
	}
	return out, nil
}

// allocate gives parameters, states and constants their memory.
func (r *rank) allocate(tensor func(string) (graph.Array, error)) error {
	constants := make([]byte, r.s.Bytes[lowering.Constant])
	r.states = roomy(r.s.Bytes[lowering.State] * int64(r.slots))
	for i, b := range r.s.Buffers {
		switch b.Space {
		case lowering.Param:
			share, ranks, at := r.s.Share(b.Type)
			a, err := b.Storage.Load(b.Name, share, ranks, at, tensor)
			if err != nil {
				return fmt.Errorf("parameter %s: %w", b.Name, err)
			}
			r.memory[i] = aligned(a.Data, max(1, a.DType.Bytes()))
		case lowering.Constant:
			r.memory[i] = constants[b.Offset : b.Offset+b.Bytes]
		}
	}
	return nil
}

// run runs the steps of a batch, or those that are run once. An error or a panic
// stops the other ranks, too.
func (r *rank) run(w work) {
	r.comm.Begin()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // see files.Guard
	r.at = nil
	defer func() {
		if p := recover(); p != nil {
			r.comm.Stop(r.where(r.at, files.Recovered(p)))
		}
	}()
	r.events = r.events[:0]
	switch {
	case w.replays != nil:
		r.replay(w)
	case w.feed != nil:
		r.follow(w)
	case w.batch == nil:
		r.bindAll(r.init)
		r.runSteps(r.init, w, nil)
	case w.batch.Replica == r.s.Replica:
		r.prepare(w.batch)
		r.runSteps(r.steps, w, w.batch)
	}
}

// runSteps runs steps, those of a batch as far as it wants them, and says whether the ranks go on.
func (r *rank) runSteps(steps []step, w work, batch *exec.Work) bool {
	for i, end := 0, 0; i < len(steps); i = end {
		if end = loopEnd(steps, i); !r.each(steps[i:end], w, batch) {
			return false
		}
	}
	return true
}

// each runs the steps of a loop for each piece of the batch, or one that is in none, and
// says whether the batch goes on.
func (r *rank) each(steps []step, w work, batch *exec.Work) bool {
	pieces := 1
	if steps[0].Loop > 0 {
		pieces = r.s.PieceCount(int(r.batch.Tokens))
	}
	for k := range pieces {
		if r.piece = k; pieces > 1 {
			r.bindLoop(steps, r.s.Piece(int(r.batch.Tokens), k))
		}
		for i := range steps {
			if !r.try(&steps[i], w, batch) {
				return false
			}
		}
	}
	return true
}

// try runs a step, if the batch wants it, and says whether the batch goes on.
func (r *rank) try(st *step, w work, batch *exec.Work) bool {
	if batch != nil && !batch.Runs(st.For, r.gives) {
		return true
	}
	if !r.may(st, w) {
		return false
	}
	err := r.timed(st)
	if err != nil {
		r.comm.Stop(r.where(st, err))
	}
	return err == nil
}

// may reports whether a step may run: no rank has failed, and the context goes on.
func (r *rank) may(st *step, w work) bool {
	if r.comm.Stopped() {
		return false
	}
	r.at = st
	err := w.ctx.Err()
	if err != nil {
		r.comm.Stop(fmt.Errorf("stopped before %s: %w", st.Name, err))
	}
	return err == nil
}

// loopEnd is the end of the loop that a step is in, or of the step.
func loopEnd(steps []step, i int) int {
	end := i + 1
	for steps[i].Loop > 0 && end < len(steps) && steps[end].Loop == steps[i].Loop {
		end++
	}
	return end
}

// where names rank and step of an error.
func (r *rank) where(st *step, err error) error {
	if st != nil {
		err = fmt.Errorf("%s (%s): %w", st.Name, st.Op.Name, err)
	}
	if r.s.Worlds() > 1 {
		err = fmt.Errorf("rank %d: %w", r.s.World(), err)
	}
	return err
}

func (r *rank) do(st *step) error {
	switch st.Kind {
	case lowering.Launch:
		if st.recurrence != nil && len(r.trials.list) > 0 {
			return st.recurrence.run(r)
		}
		return r.pool.launch(&st.kernel, &st.call, st.work)
	case lowering.Relayout:
		r.relayout(st)
		return nil
	}
	if st.passed != nil && !st.passed.find(st) {
		return nil
	}
	if err := r.comm.Run(&st.collective); err != nil {
		return err
	}
	st.ran.count(st, r.piece == 0)
	return nil
}

// relayout keeps the rank's part of a whole value, copies a field, or makes the term of a
// rank that is not the first: zeros.
func (r *rank) relayout(st *step) {
	from, to := &st.collective.Args[0], &st.collective.Results[0]
	if st.Op.Class == graph.View {
		for row := range to.Rows() {
			to.Copy(row*to.Stride, from, row*from.Stride+r.s.Column(st.Step), to.Cols)
		}
		return
	}
	if st.Op.To == graph.Partial {
		clear(to.F32)
		clear(to.U16)
		return
	}
	st.collective.Parts[st.collective.At].Each(from.Rows(), from.Cols, func(row, whole, partRow, part, n int) {
		to.Copy(partRow*to.Stride+part, from, row*from.Stride+whole, n)
	})
}
