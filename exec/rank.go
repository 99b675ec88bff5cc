package exec

import (
	"context"
	"fmt"

	"github.com/krait-ml/krait/exec/internal/place"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// rank has its device memory and a way to the other ranks; it sees nothing else
// of them.
type rank struct {
	s       *lowering.Schedule
	comm    comm
	pool    *pool
	wake    chan turn // nil for rank 0, which runs in the caller
	slots   int
	context int      // tokens per slot that caches have room for
	memory  [][]byte // by buffer: parameters, caches, inputs, constants
	states  []byte   // a run per slot
	arena   []byte
	init    []step
	steps   []step
	feeds   []feed
	outputs []place.Operand
	sizes   graph.Sizes
	bound   bool // steps are bound to sizes and to the memory as it is
}

// turn is what all ranks run at the same time.
type turn struct {
	ctx   context.Context
	init  bool // the steps that are run once
	sizes graph.Sizes
}

// step is a step of the schedule with its tensors bound to memory.
type step struct {
	*lowering.Step
	args, results []place.Operand
	kernel        kernels.Kernel
	call          kernels.Call
	wide          bool // worth more than one worker
	exchange      exchange
	done          tally
}

func newRank(s *lowering.Schedule, tensor func(string) (graph.Array, error), o Options) (*rank, error) {
	r := &rank{s: s, slots: o.Slots, context: o.Context, memory: make([][]byte, len(s.Buffers))}
	if err := r.allocate(tensor); err != nil {
		return nil, err
	}
	var err error
	if r.init, err = newSteps(s, s.Init, o.Kernels); err != nil {
		return nil, err
	}
	for _, out := range s.Outputs {
		r.outputs = append(r.outputs, place.NewOperand(s, out.Ref))
	}
	r.steps, err = newSteps(s, s.Steps, o.Kernels)
	return r, err
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
			st.args = append(st.args, place.NewOperand(s, ref))
		}
		for _, ref := range from.Results {
			st.results = append(st.results, place.NewOperand(s, ref))
		}
		if from.Kind == lowering.Launch {
			k, ok := set[from.Op.Name]
			if !ok {
				return nil, fmt.Errorf("%s: this device has no kernel for %s", from.Name, from.Op.Name)
			}
			st.kernel = k
		} else {
			st.exchange = newExchange(s, from, &st.call)
		}
		out = append(out, st)
	}
	return out, nil
}

// allocate gives parameters, states and constants their memory.
func (r *rank) allocate(tensor func(string) (graph.Array, error)) error {
	constants := make([]byte, r.s.Bytes[lowering.Constant])
	r.states = make([]byte, r.s.Bytes[lowering.State]*int64(r.slots))
	for i, b := range r.s.Buffers {
		switch b.Space {
		case lowering.Param:
			a, err := b.Storage.Load(b.Name, b.Type, r.s.Ranks, r.s.Rank, tensor)
			if err != nil {
				return fmt.Errorf("parameter %s: %w", b.Name, err)
			}
			r.memory[i] = aligned(a.Data, a.DType.Bytes())
		case lowering.Cache:
			r.memory[i] = make([]byte, b.Bytes*int64(r.slots*r.context))
		case lowering.Constant:
			r.memory[i] = constants[b.Offset : b.Offset+b.Bytes]
		}
	}
	return nil
}

// take runs a turn. An error or a panic stops the other ranks, too.
func (r *rank) take(t turn) {
	var at *step
	defer func() {
		if p := recover(); p != nil {
			r.comm.stop(r.where(at, fmt.Errorf("BUG: %v", p)))
		}
	}()
	steps := r.steps
	if t.init {
		steps = r.init
	}
	r.prepare(t, steps)
	for i := range steps {
		at = &steps[i]
		err := t.ctx.Err()
		if err != nil {
			err = fmt.Errorf("stopped before %s: %w", at.Name, err)
		} else if !r.comm.stopped() {
			if err = r.do(at); err != nil {
				err = r.where(at, err)
			}
		}
		if err != nil {
			r.comm.stop(err)
		}
		if err != nil || r.comm.stopped() {
			return
		}
	}
}

// where names rank and step of an error.
func (r *rank) where(st *step, err error) error {
	if st != nil {
		err = fmt.Errorf("%s (%s): %w", st.Name, st.Op.Name, err)
	}
	if r.s.Ranks > 1 {
		err = fmt.Errorf("rank %d: %w", r.s.Rank, err)
	}
	return err
}

func (r *rank) do(st *step) error {
	switch st.Kind {
	case lowering.Launch:
		return r.pool.run(&st.kernel, &st.call, st.wide)
	case lowering.Relayout:
		st.exchange.relayout()
		return nil
	}
	if err := st.exchange.run(r.comm); err != nil {
		return err
	}
	st.done.count(st)
	return nil
}
