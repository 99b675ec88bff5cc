package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// phase is what runs batches: schedules on a machine, and the batch that it runs.
type phase struct {
	schedules    []*lowering.Schedule
	machine      Machine
	verify       func(Results) error
	inputs       []Input
	sources      []source // of the inputs
	microbatches Microbatches
	works        []*Work // reused, so that a step allocates nothing
}

// outputs are those of the schedules.
func (p *phase) outputs() []lowering.Output { return lowering.Giver(p.schedules).Outputs }

// openPhase opens the machine of schedules.
func openPhase(schedules []*lowering.Schedule, d Device, world comm.World, o Setup, verify func(Results) error) (*phase, error) {
	p := &phase{schedules: schedules, verify: verify, microbatches: NewMicrobatches(schedules)}
	if err := p.findInputs(); err != nil {
		return nil, err
	}
	var err error
	p.machine, err = Open(d, schedules, world, o)
	return p, err
}

// addPrefill opens the machine of prefill, beside that of decode.
func (e *Engine) addPrefill(o *Prefill, d Device, setup Setup) error {
	own := e.phases[decodes]
	if err := lowering.CheckAll(o.Schedules); err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	if len(o.Schedules) != len(own.schedules) {
		return fmt.Errorf("prefill on %d ranks, and decode on %d", len(o.Schedules), len(own.schedules))
	}
	world := o.World
	if world == nil {
		world = comm.Local(len(o.Schedules))
	}
	if o.Device != nil {
		d = o.Device
	}
	if own.schedules[0].Mesh.Along(graph.DP) > 1 {
		return errors.New("replicas (dp) have one strategy for prefill and decode: leave out that of prefill")
	}
	setup.Trials = 0 // its slots are those of decode, spares included, as these change places
	p, err := openPhase(o.Schedules, d, world, setup, o.Verify)
	if err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	e.phases[prefills] = p
	f, _ := own.machine.(Follower)
	if g, ok := p.machine.(Follower); ok {
		e.machine = &followers{f, g}
		return nil
	}
	machines := [2]Machine{own.machine, p.machine}
	if e.relaid, err = newRelaid(machines, [2][]*lowering.Schedule{own.schedules, o.Schedules}, setup.Slots, setup.PageTokens); err != nil {
		p.machine.Close()
		return err
	}
	e.machine = e.relaid
	return nil
}

// followers are the machines of a process that follows in both phases.
type followers struct {
	Follower // in decode
	prefill  Follower
}

// Follow runs what rank 0 runs in either phase.
func (f *followers) Follow(ctx context.Context) error {
	end := make(chan error)
	go func() { end <- f.prefill.Follow(ctx) }()
	err := f.Follower.Follow(ctx)
	return cmp.Or(err, <-end)
}

// Close closes both.
func (f *followers) Close() {
	f.Follower.Close()
	f.prefill.Close()
}

// resized makes memory for all rows of a tensor that has its elements in data, and others nowhere.
func resized[E any](data []E, t *kernels.Tensor) []E {
	if data == nil {
		return nil
	}
	return make([]E, t.Dims[0]*t.Stride)
}
