// Package exec runs schedules. An [Engine] holds one rank per schedule, each
// with its share of the weights and of the state of its sequences, and runs one
// batch at a time: any mix of prefill and decode.
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
	Context int         // tokens per sequence that attention caches have room for; 0: they grow
	Kernels kernels.Set // nil: the fast kernels of package cpu
	Workers int         // goroutines that share the kernels' work, over all ranks; 0: GOMAXPROCS
}

// Engine runs the schedules of all ranks of a graph. Its methods may be called
// from several goroutines; they wait for each other.
//
// A rank is a goroutine that lives as long as the engine (rank 0 is the caller
// of Step). It takes the steps of both streams in the order in which the
// schedule lists them, which is one of the orders that its events allow.
type Engine struct {
	mu     sync.Mutex
	ranks  []*rank
	meet   *rendezvous
	slots  slots
	limit  int // of the tokens of a sequence that are cached; 0: none
	inputs []input
	done   sync.WaitGroup // the ranks' turns
	live   sync.WaitGroup // all goroutines
}

// New makes an engine for the schedules of all ranks, in their order, and loads
// its weights: tensor finds a tensor of the checkpoint, whose memory must stay
// valid as long as the engine is used.
func New(schedules []*lowering.Schedule, tensor func(name string) (graph.Array, error), o Options) (*Engine, error) {
	if o.Slots == 0 {
		o.Slots = 8
	}
	if o.Slots < 1 || o.Workers < 0 || o.Context < 0 {
		return nil, fmt.Errorf("%d slots, %d workers and a context of %d: none may be negative", o.Slots, o.Workers, o.Context)
	}
	if o.Kernels == nil {
		o.Kernels = cpu.Kernels
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if err := lowering.CheckAll(schedules); err != nil {
		return nil, err
	}
	e := &Engine{slots: newSlots(o.Slots), limit: o.Context, meet: newRendezvous(len(schedules))}
	for i, s := range schedules {
		r, err := newRank(s, tensor, o)
		if err != nil {
			return nil, err
		}
		r.comm = &shared{rendezvous: e.meet, rank: i}
		e.ranks = append(e.ranks, r)
	}
	if err := e.findInputs(); err != nil {
		return nil, err
	}
	e.start(o.Workers)
	if err := e.turn(turn{ctx: context.Background(), init: true}); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// start starts the goroutines of the ranks and of their workers.
func (e *Engine) start(workers int) {
	for i, r := range e.ranks {
		r.pool = newPool(max(1, workers/len(e.ranks)), &e.live)
		if i == 0 {
			continue
		}
		r.wake = make(chan turn, 1)
		e.live.Go(func() {
			for t := range r.wake {
				r.take(t)
				e.done.Done()
			}
		})
	}
}

// turn lets all ranks run, and returns the error of the one that failed first.
func (e *Engine) turn(t turn) error {
	e.meet.reset()
	others := e.ranks[1:]
	e.done.Add(len(others))
	for _, r := range others {
		r.wake <- t
	}
	e.ranks[0].take(t)
	e.done.Wait()
	return e.meet.failure()
}

// Close stops the engine's goroutines and returns when they have ended. The
// engine must not be used afterwards.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.ranks {
		r.pool.close()
		if r.wake != nil {
			close(r.wake)
		}
	}
	e.live.Wait()
}

// Schedules are what the engine runs, one per rank.
func (e *Engine) Schedules() []*lowering.Schedule {
	var out []*lowering.Schedule
	for _, r := range e.ranks {
		out = append(out, r.s)
	}
	return out
}

// Output is a result of the last step, valid until the next: a row per token,
// sequence or wanted row, in the order of the batch.
func (e *Engine) Output(name string) (kernels.Tensor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.ranks[0] // all ranks have the same
	for i := range r.s.Outputs {
		if r.s.Outputs[i].Name == name {
			r.bind(&r.outputs[i])
			return r.outputs[i].Tensor, nil
		}
	}
	return kernels.Tensor{}, fmt.Errorf("the graph has no output %s", name)
}
