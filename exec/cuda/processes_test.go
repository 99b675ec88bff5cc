package cuda_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/comm/tcp"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/group"
	"github.com/krait-ml/krait/internal/goldens"
)

// spread are the engines of a model in processes, which are one here and share a driver: that of
// rank 0, and what Follow gave the others.
type spread struct {
	*exec.Engine
	list     []*comm.Processes
	followed []error
	all      sync.WaitGroup
}

// inProcesses opens a model in n processes.
func (m *model) inProcesses(t *testing.T, n int, device func(rank int) exec.Device) *spread {
	t.Helper()
	id := "file:" + filepath.Join(t.TempDir(), "rank0")
	s := &spread{list: make([]*comm.Processes, n), followed: make([]error, n)}
	open := func(r int) (*exec.Engine, error) {
		link, err := tcp.Join(t.Context(), tcp.Options{Rank: r, World: n, ID: id})
		if err != nil {
			return nil, err
		}
		s.list[r] = comm.Connect(link, comm.Options{Timeout: time.Minute})
		g := s.list[r].NewGroup()
		return exec.New(m.schedules, m.Tensor, exec.Options{Device: &group.Device{Device: device(r), Group: g}, Slots: 3, World: g})
	}
	for r := 1; r < n; r++ {
		s.all.Go(func() {
			e, err := open(r)
			if err == nil {
				err = e.Follow(context.Background())
				e.Close()
			}
			s.followed[r] = err
			s.list[r].Close(nil)
		})
	}
	var err error
	if s.Engine, err = open(0); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *spread) close(t *testing.T) {
	t.Helper()
	s.Engine.Close()
	s.list[0].Close(nil)
	s.all.Wait()
}

// TestProcesses: ranks in processes of their own, joined by NCCL whose id rank 0 hands round, give
// the bits of ranks in one, with graphs and without, and leave nothing behind.
func TestProcesses(t *testing.T) {
	goldens.CI(t)
	for _, c := range []struct {
		model, strategy string
		layers, ranks   int
		graphs          bool
	}{{"mamba-a", "channel", 1, 2, true}, {"mamba2-g4", "naive", 1, 3, true}, {"jamba", "sequence", 3, 2, false}} {
		t.Run(c.model, func(t *testing.T) {
			t.Parallel()
			m := openShallow(t, c.model, c.layers, c.ranks, c.strategy)
			one := m.engine(t, &cuda.Device{Driver: sim.New(sim.Options{Devices: c.ranks}), NoGraphs: !c.graphs})
			want := feed(t, one, few)
			one.Close()
			d := sim.New(sim.Options{Devices: c.ranks})
			s := m.inProcesses(t, c.ranks, func(int) exec.Device { return &cuda.Device{Driver: d, NoGraphs: !c.graphs} })
			compare(t, "in processes", feed(t, s.Engine, few), want, 0)
			if _, err := s.Snapshot(1); err != nil {
				t.Error(err)
			}
			s.close(t)
			for r, err := range s.followed {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			if l := d.Leaks(); len(l) > 0 {
				t.Errorf("left behind: %q", l)
			}
		})
	}
}

// TestProcessFails: where a rank cannot allocate, or its GPU is lost while others wait for it in a
// collective, all end with its error.
func TestProcessFails(t *testing.T) {
	for _, how := range []string{"alloc", "lost"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := open(t, "mamba-a", 3, "channel")
			o := sim.Options{Devices: 3}
			if how == "lost" {
				o.LoseDevice = 300
			}
			d := sim.New(o)
			var fails atomic.Bool
			s := m.inProcesses(t, 3, func(r int) exec.Device {
				if r < 2 {
					return &cuda.Device{Driver: d}
				}
				return &cuda.Device{Driver: failsToAlloc{d, &fails}}
			})
			for range 3 {
				if _, err := s.Alloc(); err != nil {
					t.Fatal(err)
				}
			}
			want, err := "rank 2: activations: planted", error(nil)
			if how == "lost" {
				want = "was lost, as asked" // which one, depends on the order
			}
			for i := 0; err == nil; i++ {
				tokens := 1
				if how == "alloc" && i == 2 {
					tokens = 101
				}
				fails.Store(tokens > 1)
				_, err = s.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: 0, Tokens: make([]int, tokens)}}})
			}
			s.close(t)
			for r, e := range append([]error{err}, s.followed[1:]...) {
				if e == nil || e.Error() != err.Error() || !strings.Contains(e.Error(), want) || strings.Count(e.Error(), "rank ") != 1 {
					t.Errorf("rank %d: %v, want %q, and what rank 0 says: %v", r, e, want, err)
				}
			}
		})
	}
}

// failsToAlloc is a driver that has no memory at times.
type failsToAlloc struct {
	driver.Driver
	fails *atomic.Bool
}

func (d failsToAlloc) Open(device int) (driver.Context, error) {
	c, err := d.Driver.Open(device)
	return failingContext{c, d.fails}, err
}

func (d failsToAlloc) Join(ctx context.Context, c driver.Context, id driver.UniqueID, ranks, rank int) (driver.Collectives, error) {
	return d.Driver.Join(ctx, c.(failingContext).Context, id, ranks, rank)
}

type failingContext struct {
	driver.Context
	fails *atomic.Bool
}

func (c failingContext) Alloc(bytes int64) (driver.Ptr, error) {
	if c.fails.Load() {
		return 0, errors.New("planted")
	}
	return c.Context.Alloc(bytes)
}

// TestElsewhere: ranks that are elsewhere, and in no processes that are known, are refused, not
// waited for.
func TestElsewhere(t *testing.T) {
	m := open(t, "mamba-a", 2, "channel")
	_, err := (&cuda.Device{Driver: sim.New(sim.Options{})}).Open(m.schedules[:1], comm.Local(2), exec.Setup{Tensor: m.Tensor, Slots: 1})
	if err == nil || !strings.Contains(err.Error(), "1 of 2 ranks are elsewhere") {
		t.Error(err)
	}
}
