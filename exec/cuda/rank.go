package cuda

import (
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// rank is a rank's memory and streams on a GPU, which it may share with others.
type rank struct {
	machine *machine
	s       *lowering.Schedule
	gpu     *gpu

	compute, comm driver.Stream
	events        []driver.Event // of the schedule
	ready, done   driver.Event   // of the active collective, where ranks share a GPU
	nccl          driver.Collectives
	box           box // where ranks sum over each other's memory
	gemm          gemm
	record        *recording // nil: steps are not timed

	memory    []driver.Ptr // by buffer: parameters, constants
	states    driver.Ptr   // a run per slot
	kept      []driver.Ptr // and by slot beyond these
	ring      driver.Ptr   // operands of trials, see makeRing
	pages     []driver.Ptr // of caches
	slabs     []driver.Ptr // allocations of kept and pages
	inPage    []int        // by buffer: where a cache's rows begin in a page
	pageBytes int64
	layout    kernels.Pages // of the same size
	arena     memory
	scratch   memory     // of kernels, one after another
	arrivals  driver.Ptr // see kernels.Call
	staging   memory     // of collectives through NCCL
	inputs    memory     // one after another

	inputsHost, outputsHost pinned

	recurrences []*recurrence // in the order of steps
	recurs      map[*call]*recurrence
	norms       map[*call]*call   // by all_reduce: the add_rmsnorm that one launch may do with it
	calls, once []*call           // of a step, and of what is run once
	narrow      []bool            // by buffer: of the program at hand, see applyFormats; nil: none
	outputs     []operand.Operand // of the schedule
	programs    *programs
}

func newRank(m *machine, g *gpu, s *lowering.Schedule) *rank {
	r := &rank{machine: m, s: s, gpu: g, memory: make([]driver.Ptr, len(s.Buffers)), programs: newPrograms(maxPrograms)}
	if m.record != nil {
		r.record = &recording{rank: r}
	}
	r.inPage, r.pageBytes = s.Page(m.page)
	r.layout.Tokens = m.page
	r.calls, r.once = newCalls(s, s.Steps), newCalls(s, s.Init)
	r.norms = r.peerNorms()
	r.findRecurrences()
	for _, out := range s.Outputs {
		r.outputs = append(r.outputs, operand.New(s, out.Ref))
	}
	return r
}

// where names the rank of an error.
func (r *rank) where(err error) error {
	if err != nil && r.s.Ranks > 1 {
		return fmt.Errorf("rank %d: %w", r.s.Rank, err)
	}
	return err
}

// load allocates memory and loads the weights.
func (r *rank) load(l *loader, tensor func(string) (graph.Array, error)) error {
	if err := r.makeStreams(); err != nil {
		return err
	}
	if err := r.gemm.open(r); err != nil {
		return err
	}
	if err := r.makeArrivals(); err != nil {
		return fmt.Errorf("counters of kernels: %w", err)
	}
	if err := r.makeStates(); err != nil {
		return fmt.Errorf("states: %w", err)
	}
	if err := r.makeRing(); err != nil {
		return fmt.Errorf("operands of trials: %w", err)
	}
	for i, b := range r.s.Buffers {
		var err error
		switch b.Space {
		case lowering.Param:
			err = r.loadParam(l, i, tensor)
		case lowering.Constant:
			r.memory[i], err = r.alloc(b.Bytes)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", b.Space, b.Name, err)
		}
	}
	return r.compute.Synchronize()
}

// makeArrivals allocates the counters of kernels; they are zero.
func (r *rank) makeArrivals() error {
	const bytes = 4 * cuda.MaxArrivals
	var err error
	if r.arrivals, err = r.alloc(bytes); err != nil {
		return err
	}
	return r.compute.Fill(r.arrivals, 0, bytes)
}

// makeStates allocates the states of all slots; they are zero.
func (r *rank) makeStates() error {
	n := r.s.Bytes[lowering.State] * int64(r.machine.slots)
	var err error
	if r.states, err = r.alloc(n); err != nil || n == 0 {
		return err
	}
	return r.compute.Fill(r.states, 0, n)
}

func (r *rank) makeStreams() error {
	var err error
	if r.compute, err = r.gpu.ctx.Stream(); err != nil {
		return err
	}
	if r.comm, err = r.gpu.ctx.Stream(); err != nil {
		return err
	}
	if r.ready, err = r.gpu.ctx.Event(false); err != nil {
		return err
	}
	if r.done, err = r.gpu.ctx.Event(false); err != nil {
		return err
	}
	for _, st := range r.s.Steps {
		for st.Kind == lowering.Record && st.Event >= len(r.events) {
			e, err := r.gpu.ctx.Event(false)
			if err != nil {
				return err
			}
			r.events = append(r.events, e)
		}
	}
	return nil
}

// settle waits for all issued work. At the end of a step compute has waited for
// all collectives; after a stop it may not have.
func (r *rank) settle(stopped bool) error {
	err := r.compute.Synchronize()
	if stopped {
		err = errors.Join(err, r.comm.Synchronize())
	}
	return err
}

// alloc allocates memory; 0 bytes are the null pointer.
func (r *rank) alloc(bytes int64) (driver.Ptr, error) {
	if bytes == 0 {
		return 0, nil
	}
	return r.gpu.ctx.Alloc(bytes)
}

func (r *rank) loadParam(l *loader, i int, tensor func(string) (graph.Array, error)) error {
	b := &r.s.Buffers[i]
	var err error
	if r.memory[i], err = r.alloc(paramBytes(r.s, b)); err != nil || tensor == nil {
		return err
	}
	a, err := b.Storage.Load(b.Name, b.Type, r.s.Ranks, r.s.Rank, tensor)
	if err != nil {
		return err
	}
	if b.Type.DType.Quantized() {
		return l.copyLines(r.memory[i], a.Data, graph.BlocksOf(b.Type, r.s.Ranks, r.s.Rank))
	}
	return l.copy(r.memory[i], a.Data)
}

// paramBytes is the memory of a parameter: of one in blocks, lines as kernels read them.
func paramBytes(s *lowering.Schedule, b *lowering.Buffer) int64 {
	local := s.Local(b.Type)
	if b.Type.DType.Quantized() {
		return int64(local.Lines() * cuda.LineBytes(graph.BlocksOf(b.Type, s.Ranks, s.Rank)))
	}
	return local.Bytes().At(graph.Sizes{})
}

// forget drops the programs of all ranks of the GPU, after memory that they point to has moved.
func (g *gpu) forget() error {
	for _, r := range g.ranks {
		if err := r.programs.clear(); err != nil {
			return err
		}
	}
	return nil
}

// close frees all resources, also after errors.
func (r *rank) close() []error {
	var errs []error
	failed := func(err error) { errs = append(errs, err) }
	failed(r.gpu.forget())
	if r.nccl != nil {
		failed(r.nccl.Close())
	}
	failed(r.gemm.close(r.gpu))
	errs = append(errs, r.closeBox()...)
	for _, p := range slices.Concat(r.memory, r.slabs, []driver.Ptr{r.states, r.arrivals, r.ring}) {
		if p != 0 {
			failed(r.gpu.ctx.Release(p))
		}
	}
	for _, m := range []*memory{&r.arena, &r.scratch, &r.staging, &r.inputs} {
		failed(m.release(r.gpu))
	}
	failed(r.inputsHost.release(r.gpu))
	failed(r.outputsHost.release(r.gpu))
	for _, e := range append(append(r.events, r.ready, r.done), r.record.events()...) {
		if e != nil {
			failed(e.Close())
		}
	}
	for _, s := range []driver.Stream{r.compute, r.comm} {
		if s != nil {
			failed(s.Close())
		}
	}
	return errs
}
