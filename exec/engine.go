// Package exec runs schedules. An [Engine] holds a schedule's weights, the
// state of its sequences and its arena, and runs one batch at a time: any mix of
// prefill and decode.
package exec

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lowering"
)

// Options say how an engine runs. The zero value is a good start.
type Options struct {
	Slots   int         // sequences that can have state at the same time; 0: 8
	Kernels kernels.Set // nil: the fast kernels of package cpu
	Workers int         // goroutines that share a kernel's work; 0: GOMAXPROCS
}

// Engine runs a schedule. Its methods may be called from several goroutines;
// they wait for each other.
type Engine struct {
	mu     sync.Mutex
	s      *lowering.Schedule
	slots  slots
	pool   *pool
	memory [][]byte // by buffer: parameters, states, inputs, constants
	arena  []byte
	steps  []launch
	init   []launch
	sizes  graph.Sizes
	bound  bool        // steps is bound to sizes and to the memory as it is
	limits map[int]int // by buffer of an i32 input: ids must be below
	feeds  []feed
}

// launch is a step with its tensors bound to memory.
type launch struct {
	step   *lowering.Step
	kernel kernels.Kernel
	call   kernels.Call
	wide   bool // worth more than one worker
}

// New makes an engine and loads its weights: tensor finds a tensor of the
// checkpoint, whose memory must stay valid as long as the engine is used.
func New(s *lowering.Schedule, tensor func(name string) (graph.Array, error), o Options) (*Engine, error) {
	if o.Slots == 0 {
		o.Slots = 8
	}
	if o.Slots < 1 || o.Workers < 0 {
		return nil, fmt.Errorf("%d slots and %d workers: neither may be negative", o.Slots, o.Workers)
	}
	if o.Kernels == nil {
		o.Kernels = cpu.Kernels
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	e := &Engine{s: s, slots: newSlots(o.Slots), memory: make([][]byte, len(s.Buffers))}
	if err := e.allocate(tensor); err != nil {
		return nil, err
	}
	var err error
	if e.init, err = launches(s.Init, o.Kernels); err != nil {
		return nil, err
	}
	if e.steps, err = launches(s.Steps, o.Kernels); err != nil {
		return nil, err
	}
	e.findInputs()
	e.pool = newPool(o.Workers)
	e.bindAll(e.init)
	if err := e.run(context.Background(), e.init); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Close stops the engine's goroutines. The engine must not be used afterwards.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pool.close()
}

// Schedule is what the engine runs.
func (e *Engine) Schedule() *lowering.Schedule { return e.s }

func launches(steps []lowering.Step, set kernels.Set) ([]launch, error) {
	out := make([]launch, len(steps))
	for i := range steps {
		st := &steps[i]
		k, ok := set[st.Op.Name]
		if !ok {
			return nil, fmt.Errorf("%s: this device has no kernel for %s", st.Name, st.Op.Name)
		}
		out[i] = launch{step: st, kernel: k, call: kernels.Call{
			Args:    make([]kernels.Tensor, len(st.Args)),
			Results: make([]kernels.Tensor, len(st.Results)),
			Attrs:   st.Attrs,
		}}
	}
	return out, nil
}

// allocate gives parameters, states and constants their memory.
func (e *Engine) allocate(tensor func(string) (graph.Array, error)) error {
	constants := make([]byte, e.s.Bytes[lowering.Constant])
	for i, b := range e.s.Buffers {
		switch b.Space {
		case lowering.Param:
			v := b.Value
			a, err := v.Def.Storage.Load(v.Name, v.Type, e.s.Ranks, e.s.Rank, tensor)
			if err != nil {
				return fmt.Errorf("parameter %s: %w", v.Name, err)
			}
			e.memory[i] = aligned(a.Data, a.DType.Bytes())
		case lowering.State:
			e.memory[i] = make([]byte, b.Bytes*int64(len(e.slots.state)))
		case lowering.Constant:
			e.memory[i] = constants[b.Offset : b.Offset+b.Bytes]
		}
	}
	return nil
}

// run launches the kernels in order. A panic in one becomes an error that names
// the step.
func (e *Engine) run(ctx context.Context, steps []launch) error {
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped before %s: %w", steps[i].step.Name, err)
		}
		l := &steps[i]
		if err := e.pool.run(&l.kernel, &l.call, l.wide); err != nil {
			return fmt.Errorf("%s (%s): %w", l.step.Name, l.step.Op.Name, err)
		}
	}
	return nil
}
