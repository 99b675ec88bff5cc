package cpu

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/spin"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// machine has a goroutine per rank that lives as long as the machine (the first rank
// is the caller of Step). It takes the steps of both streams in the order in
// which the schedule lists them, which is one of the orders that its events allow.
type machine struct {
	ranks   []*rank        // of this process
	live    sync.WaitGroup // all goroutines
	outputs []kernels.Tensor
	recording
	beside int // processes that share this host with it, and itself

	work   work         // current
	turn   atomic.Int64 // counts works, so that ranks see a new one; below 0: the machine is closed
	open   atomic.Int64 // ranks that are not done with it
	caller *spin.Waiter
	done   func() bool // what the caller waits for
}

// work is what all ranks run at the same time: a batch, the batches of a feed, the replays of
// trials, or if there are none the steps that run once.
type work struct {
	ctx     context.Context
	batch   *exec.Work
	feed    *feed
	replays []state.Replay
}

// start starts the goroutines of the ranks and of their workers.
func (m *machine) start(workers int) {
	each := max(1, workers/len(m.ranks))
	crowded := m.beside*each*len(m.ranks) > runtime.GOMAXPROCS(0)
	m.caller = spin.New(crowded)
	m.done = func() bool { return m.open.Load() == 0 }
	for i, r := range m.ranks {
		r.pool = newPool(each, crowded, &m.live)
		if i > 0 {
			r.wait = spin.New(crowded)
			m.live.Go(func() { m.serve(r) })
		}
	}
}

// serve runs a rank's part of each work.
func (m *machine) serve(r *rank) {
	turn := int64(0)
	next := func() bool { return m.turn.Load() != turn }
	for {
		r.wait.Wait(next)
		if turn = m.turn.Load(); turn < 0 {
			return
		}
		r.run(m.work)
		if fed := m.work.feed != nil; m.open.Add(-1) == 0 || fed {
			m.caller.Wake() // it may wait for a batch that an error ended
		}
	}
}

// run lets all ranks run, and returns the error of the one that failed first.
func (m *machine) run(w work) error {
	m.work = w
	m.open.Store(int64(len(m.ranks) - 1))
	m.announce(m.turn.Load() + 1)
	m.ranks[0].run(w)
	if w.feed != nil {
		w.feed.end()
	}
	m.caller.Wait(m.done)
	m.work = work{}
	return m.ranks[0].comm.Err()
}

// announce begins a turn on the other ranks.
func (m *machine) announce(turn int64) {
	m.turn.Store(turn)
	m.wake()
}

// wake wakes the other ranks.
func (m *machine) wake() {
	for _, r := range m.ranks[1:] {
		r.wait.Wake()
	}
}

// giver is the rank of a replica that has the outputs; nil: it is in another process.
func (m *machine) giver(replica int) *rank {
	for _, r := range m.ranks {
		if r.gives && r.s.Last() && r.s.Replica == replica {
			return r
		}
	}
	return nil
}

// Step runs a batch on all ranks. The outputs are where the rank that gives them has them.
func (m *machine) Step(ctx context.Context, w *exec.Work) ([]kernels.Tensor, error) {
	m.record()
	if err := m.run(work{ctx: ctx, batch: w}); err != nil {
		return nil, err
	}
	m.tell()
	r := m.giver(w.Replica)
	if r == nil {
		return nil, nil
	}
	m.outputs = r.results(w, m.outputs[:0])
	return m.outputs, nil
}

// StepEach runs batches, each on the ranks of its replica, which take them in their order: so a
// stage runs one while the next runs the one before.
func (m *machine) StepEach(ctx context.Context, next func(exec.Await) []*exec.Work) error {
	m.record()
	err := m.run(work{ctx: ctx, feed: &feed{m: m, next: next}})
	if err == nil {
		m.tell()
	}
	return err
}

// results are the outputs of a batch, where the rank has them.
func (r *rank) results(w *exec.Work, out []kernels.Tensor) []kernels.Tensor {
	for i := range r.outputs {
		if w.Outputs[i] {
			r.bind(&r.outputs[i])
			out = append(out, r.outputs[i].Tensor)
		} else {
			out = append(out, kernels.Tensor{})
		}
	}
	return out
}

// cloned copies the outputs of a batch.
func (r *rank) cloned(w *exec.Work) []kernels.Tensor {
	list := r.results(w, nil)
	for i := range list {
		if w.Outputs[i] {
			list[i] = operand.Clone(&list[i])
		}
	}
	return list
}

// Close stops the goroutines and returns when they have ended.
func (m *machine) Close() {
	m.announce(-1)
	for _, r := range m.ranks {
		r.pool.close()
	}
	m.live.Wait()
}

// Collectives counts as they ran, since Open or ResetCounts.
func (m *machine) Collectives() []exec.CollectiveCount {
	var out []exec.CollectiveCount
	for _, r := range m.ranks {
		if r != m.ranks[0] && (r.s.Rank > 0 || r.s.Replica > 0) { // as the first of its stage
			continue
		}
		for _, st := range r.steps {
			if st.Kind == lowering.Collective && st.Op != lowering.Receive {
				out = append(out, exec.CollectiveCount{Name: st.Name, Kind: st.Op.Name, Calls: st.ran.calls, Elems: st.ran.elems, Bytes: st.ran.bytes})
			}
		}
	}
	return out
}

// Transport is empty: the ranks share memory.
func (m *machine) Transport() string { return "" }

// ResetCounts lets Collectives count from 0 again.
func (m *machine) ResetCounts() {
	for _, r := range m.ranks {
		for i := range r.steps {
			r.steps[i].ran = tally{}
		}
	}
}
