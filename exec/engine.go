// Package exec runs schedules. An [Engine] holds one rank per schedule, each with its shard of the
// weights and of the state of sequences, and runs one batch at a time: any mix of prefill and
// decode.
//
//	slot, err := e.Alloc() // a sequence
//	r, err := e.Step(ctx, &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: ids}}})
//	logits, err := r.Output("logits") // f32[o v], valid until the next step
//
// A wrong batch is an error before anything runs, and changes nothing. After an error in the middle
// of a step, its sequences must be reset or freed; other sequences are unchanged.
package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/internal/gate"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/lowering"
)

// Options configure an engine. Device is required.
type Options struct {
	Device     Device
	Slots      int                     // sequences that can have state at the same time; 0: 8
	Context    int                     // tokens of a sequence of a model with attention; 0: no limit
	PageTokens int                     // tokens of a KV page; 0: 128
	Trials     int                     // sequences that can have tokens on trial at the same time; 0: none
	Progress   func(done, total int64) // is called with the bytes of weights that a device has loaded; nil: not called
	Record     Recorder                // is called with the events of each step; nil: nothing is measured
	Recording  func() bool             // is called before each step: whether to record it, where the device can skip it; nil: always
	OnBatch    func(*Work)             // is called with each batch before it runs; nil: not called
	// Verify checks the results of each step; its error fails the step. All outputs are copied to
	// the host then. nil: no check.
	Verify func(Results) error
	// World joins the ranks; nil: all are in this process. For ranks in several processes, see
	// exec/group.
	World comm.World
	// Prefill has the schedules that run sequences of several tokens that are not on trial; nil:
	// those of the engine do.
	Prefill *Prefill
	// CheckFiles is called after each step to check that the checkpoint has not changed; its error
	// fails the step. It is for devices that read weights from mapped files. nil: no check.
	CheckFiles func() error
}

// Prefill are schedules of the same model on as many ranks, by another strategy or with other
// payloads. A batch with sequences of both kinds runs twice, and states move between the layouts.
type Prefill struct {
	Schedules []*lowering.Schedule
	Verify    func(Results) error // as in [Options]
	Device    Device              // nil: that of the engine
	World     comm.World          // nil: all ranks are in this process
}

// ErrClosed is the error of calls of a closed engine.
var ErrClosed = gate.ErrClosed

// Engine runs the schedules of all ranks of a graph. Its methods may be called from several
// goroutines; they wait for each other.
type Engine struct {
	*state.Store // slots, KV pages, snapshots
	table        *state.Table
	gate         gate.Gate
	machine      Machine
	checkFiles   func() error
	onBatch      func(*Work)
	recorded     bool      // each step is
	phases       [2]*phase // that run sequences, by side; the second is nil where the first runs all
	relaid       *relaid   // nil: there is one phase
	replicas     *replicas // nil: there is one
	whole        bool      // a batch of one phase is one part
	parts        []part    // of the batch, reused so that a step allocates nothing
	spares       []int     // by slot on trial: its spare
	nextSpare    int       // from which on the next trial of the batch finds one
}

// New makes an engine for the schedules of all ranks, in their order, and loads its weights: tensor
// finds a tensor of the checkpoint, whose memory must stay valid until Close.
func New(schedules []*lowering.Schedule, tensor func(name string) (graph.Array, error), o Options) (*Engine, error) {
	if o.Device == nil {
		return nil, errors.New("no device to run on: exec.Options.Device is one, such as &cpu.Device{} of exec/cpu")
	}
	if err := lowering.CheckAll(schedules); err != nil {
		return nil, err
	}
	world := o.World
	if world == nil {
		world = comm.Local(len(schedules))
	}
	if world.Ranks() != len(schedules) {
		return nil, fmt.Errorf("a model on %d ranks in a world of %d", len(schedules), world.Ranks())
	}
	o.Slots = cmp.Or(o.Slots, 8)
	if n := schedules[0].Mesh.Along(graph.DP); n > max(1, o.Slots) {
		return nil, fmt.Errorf("%d replicas (dp) need a sequence each, and the model has slots for %d: give more slots, or leave out dp", n, o.Slots)
	}
	one := schedules[:len(schedules)/schedules[0].Mesh.Along(graph.DP)] // of a replica: all are alike
	table, err := state.NewTable(one, o.Slots, o.Trials, o.Context, o.PageTokens)
	if err != nil {
		return nil, err
	}
	e := &Engine{table: table, checkFiles: o.CheckFiles, onBatch: o.OnBatch, recorded: o.Record != nil && o.Recording == nil, spares: make([]int, o.Slots), whole: len(one) == schedules[0].Ranks && len(one) == len(schedules)}
	e.Store = state.NewStore(table, &e.gate)
	setup := Setup{Tensor: tensor, Slots: table.MemorySlots(), Trials: o.Trials, Context: o.Context, PageTokens: table.PageTokens(),
		Progress: o.Progress, Record: o.Record, Recording: o.Recording, CheckFiles: o.CheckFiles}
	if e.phases[decodes], err = openPhase(schedules, o.Device, world, setup, o.Verify); err != nil {
		return nil, err
	}
	e.machine = e.phases[decodes].machine
	if n := len(schedules) / len(one); n > 1 {
		e.addReplicas(n, one, o.Trials)
	}
	if o.Prefill != nil {
		err = e.addPrefill(o.Prefill, o.Device, setup)
	}
	if f, ok := e.machine.(Follower); ok && err == nil {
		e.gate.Refusal = fmt.Errorf("this process runs rank %d and follows rank 0, where the engine is called", f.Rank())
		return e, nil
	}
	if err == nil {
		err = table.Open(e.machine)
	}
	if err != nil {
		e.machine.Close()
		return nil, err
	}
	return e, nil
}

// addReplicas joins the replicas of the machine, whose ranks have the same schedules as one's.
func (e *Engine) addReplicas(n int, one []*lowering.Schedule, trials int) {
	if _, follows := e.machine.(Follower); !follows {
		e.replicas = newReplicas(e.machine, n, one, e.table.MemorySlots(), trials, e.table.PageTokens())
		e.machine = e.replicas
	}
}

// Open opens a device, and turns a fault in a mapped file into an error. A state that passes from
// part to part cannot be taken back to a token within a part, as trials require.
func Open(d Device, schedules []*lowering.Schedule, world comm.World, o Setup) (m Machine, err error) {
	if o.Trials > 0 && len(schedules) > 0 && schedules[0].RowPlace() == graph.InParts {
		return nil, errors.New("ranks that have tokens in parts (strategy context) do not run speculative decoding; leave it out, or use another strategy")
	}
	if len(schedules) > 0 && schedules[0].Worlds() > schedules[0].Ranks {
		if _, ok := d.(Pipelines); !ok {
			return nil, fmt.Errorf("this device runs no pipeline stages or replicas (mesh %s): run them on the CPU (--device cpu)", schedules[0].Mesh)
		}
	}
	err = files.Guard(func() error {
		m, err = d.Open(schedules, world, o)
		return err
	})
	return m, err
}

// Follow runs what rank 0 runs, in a process of another rank (see exec/group), until the engine of
// rank 0 is closed. Other errors end all processes.
func (e *Engine) Follow(ctx context.Context) error {
	f, ok := e.machine.(Follower)
	switch {
	case !ok:
		return errors.New("the engine has no rank 0 in another process to follow")
	case e.gate.Closed():
		return ErrClosed
	}
	return f.Follow(ctx)
}

// Close waits for the running step and frees what the engine holds, results of the last step
// included. Waiting and later calls return [ErrClosed]; a second Close does nothing.
func (e *Engine) Close() { e.gate.Close(e.machine.Close) }

// Schedules are those that the engine runs, one per rank of a replica; of two phases, those of
// decode.
func (e *Engine) Schedules() []*lowering.Schedule {
	list := e.phases[decodes].schedules
	return list[:len(list)/list[0].Mesh.Along(graph.DP)]
}

// Ranks is the number of ranks, of all stages and replicas.
func (e *Engine) Ranks() int { return len(e.phases[decodes].schedules) }

// CollectiveCount is what one collective of the schedule has done.
type CollectiveCount struct {
	Name  string // of its first result
	Kind  string // the operation: all_reduce, …
	Calls int
	// Elems and Bytes are the payload of all calls: each operand whole and once.
	Elems, Bytes int64
}

// Collectives counts the collectives since New or [Engine.ResetCounts], in the order of the
// schedule.
func (e *Engine) Collectives() []CollectiveCount {
	e.gate.LockAlways()
	defer e.gate.Unlock()
	return e.machine.Collectives()
}

// ResetCounts lets [Engine.Collectives] count from 0 again.
func (e *Engine) ResetCounts() {
	e.gate.LockAlways()
	defer e.gate.Unlock()
	e.machine.ResetCounts()
}

// Transport describes how the collectives of this process's ranks travel, where the device has
// several ways; otherwise it is empty.
func (e *Engine) Transport() string {
	e.gate.LockAlways()
	defer e.gate.Unlock()
	return e.machine.Transport()
}
