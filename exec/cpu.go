package exec

import (
	"context"
	"runtime"
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lowering"
)

// cpuDevice is this process.
type cpuDevice struct{}

// cpuMachine has a goroutine per rank that lives as long as the machine (rank 0
// is the caller of Step). It takes the steps of both streams in the order in
// which the schedule lists them, which is one of the orders that its events allow.
type cpuMachine struct {
	ranks []*rank
	meet  *rendezvous
	done  sync.WaitGroup // the ranks' turns
	live  sync.WaitGroup // all goroutines
}

// Open makes the ranks.
func (cpuDevice) Open(schedules []*lowering.Schedule, tensor func(name string) (graph.Array, error), inputs []*Input, o Options) (Machine, error) {
	if o.Kernels == nil {
		o.Kernels = cpu.Kernels
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	m := &cpuMachine{meet: newRendezvous(len(schedules))}
	for i, s := range schedules {
		r, err := newRank(s, tensor, o)
		if err != nil {
			return nil, err
		}
		r.comm = &shared{rendezvous: m.meet, rank: i}
		for k, b := range s.Buffers {
			if b.Space == lowering.Input {
				r.feeds = append(r.feeds, newFeed(s, k, inputNamed(inputs, b.Name)))
			}
		}
		m.ranks = append(m.ranks, r)
	}
	m.start(o.Workers)
	if err := m.turn(turn{ctx: context.Background(), init: true}); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// start starts the goroutines of the ranks and of their workers.
func (m *cpuMachine) start(workers int) {
	for i, r := range m.ranks {
		r.pool = newPool(max(1, workers/len(m.ranks)), &m.live)
		if i == 0 {
			continue
		}
		r.wake = make(chan turn, 1)
		m.live.Go(func() {
			for t := range r.wake {
				r.take(t)
				m.done.Done()
			}
		})
	}
}

// turn lets all ranks run, and returns the error of the one that failed first.
func (m *cpuMachine) turn(t turn) error {
	m.meet.reset()
	others := m.ranks[1:]
	m.done.Add(len(others))
	for _, r := range others {
		r.wake <- t
	}
	m.ranks[0].take(t)
	m.done.Wait()
	return m.meet.failure()
}

// Step runs a batch on all ranks.
func (m *cpuMachine) Step(ctx context.Context, z graph.Sizes) error {
	return m.turn(turn{ctx: ctx, sizes: z})
}

// Close stops the goroutines and returns when they have ended.
func (m *cpuMachine) Close() {
	for _, r := range m.ranks {
		r.pool.close()
		if r.wake != nil {
			close(r.wake)
		}
	}
	m.live.Wait()
}

// Output is where the output lies.
func (m *cpuMachine) Output(i int) (kernels.Tensor, error) {
	r := m.ranks[0]
	r.bind(&r.outputs[i])
	return r.outputs[i].Tensor, nil
}

// Clear makes the states of a slot zero.
func (m *cpuMachine) Clear(slot int) error {
	for _, r := range m.ranks {
		n := r.s.Bytes[lowering.State]
		clear(r.states[int64(slot)*n:][:n])
	}
	return nil
}

// Read copies out of states, or a cache.
func (m *cpuMachine) Read(rank, buffer int, at int64, to []byte) error {
	if len(to) > 0 { // of a sequence without tokens there are no rows, and may be no memory
		copy(to, m.ranks[rank].kept(buffer)[at:])
	}
	return nil
}

// Write copies into states, or a cache.
func (m *cpuMachine) Write(rank, buffer int, at int64, from []byte) error {
	if len(from) > 0 {
		copy(m.ranks[rank].kept(buffer)[at:], from)
	}
	return nil
}

// kept is the memory that a buffer is in: that of all states, or a cache.
func (r *rank) kept(buffer int) []byte {
	if r.s.Buffers[buffer].Space == lowering.State {
		return r.states
	}
	return r.memory[buffer]
}

// Room is the caches' room per slot.
func (m *cpuMachine) Room() int { return m.ranks[0].context }

// Grow moves the caches to larger memory.
func (m *cpuMachine) Grow(room int) error {
	for _, r := range m.ranks {
		r.grow(room)
	}
	return nil
}

// Collectives counts as they ran, since Open or ResetCounts.
func (m *cpuMachine) Collectives() []CollectiveCount {
	var out []CollectiveCount
	for _, st := range m.ranks[0].steps {
		if st.Kind == lowering.Exchange {
			out = append(out, CollectiveCount{st.Name, st.Op.Name, st.done.calls, st.done.elems, st.done.bytes})
		}
	}
	return out
}

// ResetCounts lets Collectives count from 0 again.
func (m *cpuMachine) ResetCounts() {
	for _, r := range m.ranks {
		for i := range r.steps {
			r.steps[i].done = tally{}
		}
	}
}
