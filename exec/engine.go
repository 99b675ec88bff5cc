// Package exec runs schedules. An [Engine] holds one rank per schedule, each
// with its share of the weights and of the state of its sequences, and runs one
// batch at a time: any mix of prefill and decode.
//
//	slot, err := e.Alloc() // a sequence's state
//	r, err := e.Step(ctx, &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: ids}}})
//	logits, err := r.Output("logits") // f32[o v], valid until the next step
//
// A batch that is wrong is an error before anything runs, and leaves everything as it was; after one
// in the middle of a step, its sequences must be reset or freed, and other sequences are as they
// were. Sizes are in tokens and bytes.
package exec

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/lowering"
)

// Options say how an engine runs. Without a device there is none.
type Options struct {
	Device  Device
	Slots   int // sequences that can have state at the same time; 0: 8
	Context int // tokens that a sequence may have where there is attention; 0: any number
	// PageTokens is how many tokens a page of attention's caches has rows for; 0: 128.
	PageTokens int
	Progress   func(done, total int64) // of bytes of weights that a device loads; nil: nobody asks
	Record     Recorder                // of what ranks did when; nil: nobody asks, and nothing is measured
	Recording  func() bool             // is asked before each step whether it is to be recorded, where the device can leave it out; nil: each is
	Batches    func(*Work)             // is told of each batch before it runs, as devices see it; nil: nobody asks
	// Verify looks at the results of each step; its error fails the step.
	// All outputs come to the host then. nil: nobody looks.
	Verify func(Results) error
	// World joins the ranks; nil: all are in this process. Of a *[comm.Group], each process
	// runs one: the engine is that of rank 0, and of others only Follow can be called.
	World comm.World
	// Intact is asked after each step whether the checkpoint is what it was; its error
	// fails the step. It is for devices that read weights where the checkpoint has
	// them. nil: nobody asks.
	Intact func() error
}

// ErrClosed is the error of what is asked of an engine that was closed.
var ErrClosed = errors.New("the model is closed")

// Engine runs the schedules of all ranks of a graph. Its methods may be called
// from several goroutines; they wait for each other.
type Engine struct {
	mu        sync.Mutex
	closed    atomic.Bool // before mu is free for Close, so that those who wait for it fail
	closing   sync.Once
	schedules []*lowering.Schedule
	machine   Machine
	slots     slots
	limit     int // of the tokens of a sequence that are cached; 0: none
	pages     *pool
	kept      *pool // of slots for states that are kept
	verify    func(Results) error
	intact    func() error
	batches   func(*Work)
	states    []state
	work      Work          // of the step, kept so that it allocates nothing
	sources   []source      // of its inputs
	group     *comm.Group   // nil: all ranks are here
	following atomic.Bool   // Follow was called
	followed  chan struct{} // closed when it has returned
}

// New makes an engine for the schedules of all ranks, in their order, and loads
// its weights: tensor finds a tensor of the checkpoint, whose memory must stay
// valid as long as the engine is used.
func New(schedules []*lowering.Schedule, tensor func(name string) (graph.Array, error), o Options) (*Engine, error) {
	if o.Slots == 0 {
		o.Slots = 8
	}
	if o.Slots > maxSlots {
		return nil, fmt.Errorf("%d slots; at most %d are possible", o.Slots, maxSlots)
	}
	if o.Slots < 1 || o.Context < 0 {
		return nil, fmt.Errorf("%d slots and a context of %d: neither may be negative", o.Slots, o.Context)
	}
	if o.PageTokens < 0 || o.PageTokens > MaxPageTokens {
		return nil, fmt.Errorf("pages of %d tokens; 1 to %d are possible, and 0 is %d", o.PageTokens, MaxPageTokens, defaultPageTokens)
	}
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
	e := &Engine{schedules: schedules, slots: newSlots(o.Slots), limit: o.Context, verify: o.Verify, intact: o.Intact, batches: o.Batches}
	err := e.findInputs()
	if err != nil {
		return nil, err
	}
	e.work.Wanted = make(lowering.Wanted, len(schedules[0].Outputs))
	if e.states, err = findStates(schedules); err != nil {
		return nil, err
	}
	e.pages, e.kept = newPool(&o), &pool{}
	setup := Setup{Tensor: tensor, Slots: o.Slots, Context: o.Context, PageTokens: e.pages.tokens, Progress: o.Progress, Record: o.Record, Recording: o.Recording}
	if e.group, _ = world.(*comm.Group); e.group != nil {
		err = e.enter(&o, setup)
	} else {
		e.machine, err = open(o.Device, schedules, world, setup)
	}
	if err != nil {
		return nil, err
	}
	if e.follows() {
		return e, nil
	}
	if err := e.reserveContext(); err != nil {
		e.machine.Close()
		return nil, err
	}
	return e, nil
}

// open opens a device for some ranks.
func open(d Device, local []*lowering.Schedule, world comm.World, setup Setup) (m Machine, err error) {
	err = files.Guard(func() error {
		m, err = d.Open(local, world, setup)
		return err
	})
	return m, err
}

// follows reports whether another process says what this one does.
func (e *Engine) follows() bool { return e.group != nil && e.group.Rank() > 0 }

// Close waits for the step under way and gives back what the engine holds, results
// of the last step included. Whoever waits for a step, or asks for anything
// afterwards, gets [ErrClosed]; a second Close does nothing.
func (e *Engine) Close() {
	e.closing.Do(func() {
		e.closed.Store(true)
		if e.follows() {
			e.leave()
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.machine.Close()
	})
}

// lock takes the engine for one caller, unless it is closed.
func (e *Engine) lock() error {
	e.mu.Lock()
	if e.closed.Load() {
		e.mu.Unlock()
		return ErrClosed
	}
	if e.follows() {
		e.mu.Unlock()
		return fmt.Errorf("this process runs rank %d and follows rank 0, where the engine is asked", e.group.Rank())
	}
	return nil
}

// Schedules are what the engine runs, one per rank.
func (e *Engine) Schedules() []*lowering.Schedule { return e.schedules }
