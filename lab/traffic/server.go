package traffic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/balance"
	"github.com/krait-ml/krait/session/admit"
	"github.com/krait-ml/krait/session/schedule"
)

// server is a server. It is the [schedule.Engine] of its scheduler, and counts tokens.
type server struct {
	Server
	s       *simulation
	name    string
	stepper *schedule.Stepper
	queue   *admit.Queue
	cache   *cache // nil: none
	load    balance.Load
	idle    bool          // no step runs, and something has changed
	runs    bool          // a step runs
	start   time.Duration // of the step
	ends    event         // of the step
	sends   time.Duration // when its link is free

	past   []int   // tokens of each slot's sequence, by the slot's index
	free   []int   // indices of slots
	given  int     // slots so far; each has a number of its own, as an engine's handles
	tried  []int   // tokens of each slot's trial
	took   float64 // seconds of the step
	sizes  graph.Sizes
	result exec.Results

	requests       int
	busy, sequence float64 // seconds of steps, and times their sequences
	room           int     // the most tokens that admitted requests held
}

// servers makes the servers of a role.
func (s *simulation) servers(role string, o *Server, prefills bool) (p pool, err error) {
	for i := range o.Number {
		x := &server{Server: *o, s: s, name: fmt.Sprint(role, " ", i)}
		x.ends.happen = x.end
		if x.past, x.tried = make([]int, o.Limits.Slots), make([]int, o.Limits.Slots); o.Clock == nil {
			return p, fmt.Errorf("%s: there is no clock", x.name)
		}
		for slot := range x.past {
			x.free = append(x.free, len(x.past)-1-slot)
		}
		var c schedule.Cache
		if o.Policy != "" && prefills {
			if x.cache, err = newCache(x); err != nil {
				return p, err
			}
			c = x.cache
		}
		if x.stepper, err = schedule.NewStepper(x, o.Limits, c); err != nil {
			return p, fmt.Errorf("%s: %w", x.name, err)
		}
		if x.queue, err = admit.New(o.Queue, o.Limits.Slots, o.Limits.Room, max(o.Limits.Page, 1)); err != nil {
			return p, fmt.Errorf("%s: tokens of running and queued requests: %w", x.name, err)
		}
		p.servers = append(p.servers, x)
	}
	return p, nil
}

// enter queues a request.
func (x *server) enter(q schedule.Request, r schedule.Reader) error {
	err := x.stepper.Enter(wall(x.s.now), q, r)
	if err == nil {
		x.idle = true
		x.requests++
	}
	return err
}

// begin begins a step, unless one runs or nothing has changed since there was none to begin.
func (x *server) begin() {
	if x.runs || !x.idle {
		return
	}
	x.start = x.s.now
	if x.idle = false; !x.stepper.Begin(wall(x.start)) {
		return
	}
	x.runs = true
	x.busy += x.took
	x.sequence += x.took * float64(x.sizes.Seqs)
	x.ends.at = x.start + length(x.took)
	x.s.plan(&x.ends)
}

// end ends the step.
func (x *server) end() {
	x.runs, x.idle = false, true
	if x.s.Schedule != nil {
		x.s.Schedule(Step{x.name, x.start, x.s.now, x.sizes})
	}
	x.stepper.End(wall(x.s.now))
}

// used returns what the server did in a time.
func (x *server) used(seconds float64) Use {
	l := x.stepper.Load()
	u := Use{Name: x.name, Ranks: x.Ranks, Requests: x.requests, Steps: l.Steps, Paused: l.Paused, Restarted: l.Restarted}
	if seconds > 0 {
		u.Busy = x.busy / seconds
	}
	if x.busy > 0 {
		u.Sequences = x.sequence / x.busy
	}
	if x.Limits.Room > 0 {
		u.Room = float64(x.room) / float64(x.Limits.Room)
	}
	if x.cache != nil {
		u.Hits, u.Evictions = x.cache.hits, x.cache.tree.Evictions()
	}
	return u
}

// Alloc takes a slot.
func (x *server) Alloc() (int, error) {
	last := len(x.free) - 1
	if last < 0 {
		return 0, errors.New("all slots are taken")
	}
	index := x.free[last]
	x.free, x.past[index] = x.free[:last], 0
	x.given++
	return x.given*len(x.past) + index, nil
}

// of returns the tokens of a slot's sequence.
func (x *server) of(slot int) *int { return &x.past[slot%len(x.past)] }

// Free frees a slot.
func (x *server) Free(slot int) error {
	*x.of(slot) = 0
	x.free = append(x.free, slot%len(x.past))
	return nil
}

// saved is the state of a paused sequence.
type saved struct {
	x      *server
	tokens int
}

// Save copies the state of a slot, which takes no time.
func (x *server) Save(slot int) (schedule.Saved, error) { return &saved{x, *x.of(slot)}, nil }

func (s *saved) Restore(slot int) error {
	*s.x.of(slot) = s.tokens
	return nil
}

func (s *saved) Free() {}

// Step counts a batch, and takes its time.
func (x *server) Step(_ context.Context, b *exec.Batch, read func(*exec.Results) error) (err error) {
	var z graph.Sizes
	trials, tokens, room := 0, 0, 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		n, past := int64(len(q.Tokens)), int64(*x.of(q.Slot))
		z.Seqs++
		z.Tokens += n
		z.Cached += past + n
		z.Pairs += n*past + n*(n+1)/2
		if q.Trial {
			trials, tokens = trials+1, tokens+len(q.Tokens)
			x.tried[q.Slot%len(x.past)] = len(q.Tokens)
		} else {
			*x.of(q.Slot) += len(q.Tokens)
		}
	}
	z.Rows = int64(len(b.Choices))
	for _, n := range x.past {
		room += admit.Pages(n, max(x.Limits.Page, 1))
	}
	x.room = max(x.room, room)
	if x.sizes = z; trials > 0 {
		x.took, _ = x.Clock.Trial(trials, tokens)
	} else {
		x.took = 0
	}
	seconds, err := x.Clock.Step(z)
	if err != nil {
		x.s.err = err
		return err
	}
	x.took += seconds
	x.result.Tokens = append(x.result.Tokens[:0], make([]int32, len(b.Choices))...)
	return read(&x.result)
}

// Settle keeps the first tokens of trials, and replays those of sequences that are rolled back.
func (x *server) Settle(_ context.Context, kept []exec.Kept) error {
	trials, tokens := 0, 0
	for _, k := range kept {
		*x.of(k.Slot) += k.Tokens
		if k.Tokens < x.tried[k.Slot%len(x.past)] {
			trials, tokens = trials+1, tokens+k.Tokens
		}
	}
	if trials > 0 {
		_, replay := x.Clock.Trial(trials, tokens)
		x.took += replay
	}
	return nil
}
