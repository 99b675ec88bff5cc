package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// machine is the ranks of a model on their GPUs.
type machine struct {
	device    *Device
	gpus      []*gpu
	ranks     []*rank
	slots     int
	spares    int         // for trials
	limit     int         // tokens that a sequence may have; 0: any number
	page      int         // tokens of a page of caches
	width     int         // pages of a sequence that programs have room for
	nccl      bool        // ranks have a GPU each, joined by NCCL
	peerBytes int         // largest payload of an all-reduce over peer memory; 0: none
	failed    error       // why the ranks cannot take part in collectives any more
	group     *comm.Group // the other ranks are in other processes; nil: all are here
	closed    chan struct{}

	record  exec.Recorder
	opened  time.Time
	events  []exec.Event
	results []kernels.Tensor    // of the last step
	trials  trials              // of the step at hand
	ran     map[graph.Sizes]int // batches, by their sizes
}

func newMachine(d *Device, outputs int, o *exec.Setup) *machine {
	page := max(1, o.PageTokens)
	return &machine{device: d, slots: o.Slots, spares: o.Trials, limit: o.Context, page: page, record: o.Record, opened: time.Now(), width: (o.Context + page - 1) / page, results: make([]kernels.Tensor, outputs), ran: map[graph.Sizes]int{}, closed: make(chan struct{})}
}

// each runs f for all GPUs at the same time, and returns the first error. If one fails, the
// collectives of the others are aborted, and the machine is lost.
func (m *machine) each(f func(g *gpu) error) error {
	switch {
	case m.failed != nil:
		return m.failed
	case len(m.gpus) == 1:
		return m.gpus[0].do(func() error { return f(m.gpus[0]) })
	}
	if err := m.all(f); err != nil {
		m.failed = fmt.Errorf("%w; the ranks have left their NCCL group: close the model and open it again", err)
		return err
	}
	return nil
}

// all is each for several GPUs.
func (m *machine) all(f func(g *gpu) error) error {
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, g := range m.gpus {
		wg.Go(func() {
			if err := g.do(func() error { return f(g) }); err != nil {
				once.Do(func() {
					first = err
					m.abort()
				})
			}
		})
	}
	wg.Wait()
	return first
}

// abort ends all waiting in collectives.
func (m *machine) abort() {
	for _, r := range m.ranks {
		if r.nccl != nil {
			_ = r.nccl.Abort() // the caller has an error already
		}
		r.stopWaiting()
	}
}

// Step runs a batch on all ranks.
func (m *machine) Step(ctx context.Context, w *exec.Work) ([]kernels.Tensor, error) {
	if err := m.widen(w); err != nil {
		return nil, err
	}
	key := keyOf(w, m.ranks[0].s.BySequence())
	if m.device.BatchInvariant || len(w.Trials) > 0 {
		m.trials.begin(w)
		key.trial = m.trials.key(m.device.BatchInvariant)
	}
	if err := m.run(ctx, key, w); err != nil {
		return nil, err
	}
	if err := m.tell(w); err != nil {
		return nil, err
	}
	m.ran[key.z]++
	return m.gpus[0].step.programs[0].results(), nil
}

// run lets every GPU issue the programs of its ranks, and waits for them.
//
// GPUs that are joined in collectives all run the step, or none: if one stopped in the
// middle, the others would wait for it. None begins before all have allocated memory, loaded
// modules and instantiated graphs: such calls wait for the work of the other GPUs, which may be
// a collective that waits for this one.
func (m *machine) run(ctx context.Context, key programKey, w *exec.Work) error {
	if err := ctx.Err(); err != nil && m.group == nil {
		return fmt.Errorf("stopped before the step: %w", err)
	}
	if len(m.gpus) > 1 || m.group != nil {
		ctx = context.WithoutCancel(ctx)
	}
	if err := m.phase(func(g *gpu) error { return g.prepare(key, w) }); err != nil {
		return err
	}
	if m.wantsGraph() {
		if err := m.phase(func(g *gpu) error { return g.step.capture(ctx) }); err != nil {
			return err
		}
	}
	defer m.bound()()
	return m.phase(func(g *gpu) error {
		err := g.step.launch(ctx)
		for _, r := range g.ranks { // issued work runs, also after an error
			if e := r.settle(err != nil); err == nil {
				err = r.where(e)
			}
		}
		return err
	})
}

// prepare makes the programs of the step, and fills in their inputs.
func (g *gpu) prepare(key programKey, w *exec.Work) error {
	var err error
	if g.step.programs, err = g.programs(key); err != nil {
		return err
	}
	for _, p := range g.step.programs {
		if err := p.fill(w); err != nil {
			return p.rank.where(err)
		}
	}
	return nil
}

// wantsGraph reports whether the step is to be captured: on all GPUs, or on none.
func (m *machine) wantsGraph() bool {
	if m.device.NoGraphs {
		return false
	}
	for _, g := range m.gpus {
		if g.step.due() {
			return true
		}
	}
	return false
}

// Close frees all resources.
func (m *machine) Close() {
	// Resources of a lost context cannot be freed; its error has been returned.
	m.failed = nil
	close(m.closed)
	_ = m.each(func(g *gpu) error {
		var errs []error
		for _, r := range g.ranks {
			errs = append(errs, r.close()...)
		}
		return errors.Join(errs...)
	})
	for _, g := range m.gpus {
		_ = g.close()
	}
}

// Collectives counts calls and bytes by the batches that ran: each collective of the schedule runs
// once per batch.
func (m *machine) Collectives() []exec.CollectiveCount {
	var out []exec.CollectiveCount
	for _, st := range m.ranks[0].s.Steps {
		if st.Kind != lowering.Collective {
			continue
		}
		elems, bytes := graph.Payload(st.ArgTypes()...)
		c := exec.CollectiveCount{Name: st.Name, Kind: st.Op.Name}
		for z, n := range m.ran {
			c.Calls += n
			c.Elems += int64(n) * elems.At(z)
			c.Bytes += int64(n) * bytes.At(z)
		}
		out = append(out, c)
	}
	return out
}

// Transport says how collectives travel.
func (m *machine) Transport() string {
	switch {
	case m.peerBytes > 0:
		return fmt.Sprintf("all_reduce of up to %d KiB over the GPUs' memory, the rest by NCCL", m.peerBytes>>10)
	case m.nccl:
		return "collectives by NCCL"
	case len(m.ranks) > 1:
		return "collectives within one GPU"
	}
	return ""
}

// ResetCounts lets Collectives count from 0 again.
func (m *machine) ResetCounts() { clear(m.ran) }
