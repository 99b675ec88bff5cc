package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/goldens"
)

var errJoin = errors.New("this rank's join failed")

// failsToJoin is a driver with which one rank cannot join, and all learn of their
// joins at the same time.
type failsToJoin struct {
	driver.Driver
	rank int
	all  *sync.WaitGroup
}

func (d failsToJoin) Join(ctx context.Context, c driver.Context, id driver.UniqueID, ranks, rank int) (driver.Collectives, error) {
	x, err := d.Driver.Join(ctx, c, id, ranks, rank)
	d.all.Done()
	d.all.Wait()
	if rank == d.rank {
		_ = x.Close()
		return nil, errJoin
	}
	return x, err
}

// TestLateDevice: no GPU begins with collectives while another, whichever it is,
// still allocates, frees, loads or captures: it would wait for them, and they for it.
func TestLateDevice(t *testing.T) {
	goldens.CI(t)
	t.Parallel()
	m := openShallow(t, "mamba-a", 1, 2, "channel")
	one := m.engine(t, &cuda.Device{Driver: sim.New(sim.Options{Devices: 2})})
	defer one.Close()
	want := run(t, one)
	for late := 1; late <= 2; late++ {
		e := m.engine(t, &cuda.Device{Driver: sim.New(sim.Options{Devices: 2, Late: late})})
		compare(t, "with a late device", run(t, e), want, 0)
		e.Close()
	}
}

// TestFailedJoin: whichever rank cannot join, its error is returned, and no rank
// that could hides it. The race detector sees what the joins share.
func TestFailedJoin(t *testing.T) {
	const ranks = 3
	m := open(t, "mamba-a", ranks, "channel")
	for try := range 10 * ranks {
		all := &sync.WaitGroup{}
		all.Add(ranks)
		d := failsToJoin{sim.New(sim.Options{Devices: ranks}), try % ranks, all}
		e, err := exec.New(m.schedules, m.Tensor, exec.Options{Device: &cuda.Device{Driver: d}})
		if err == nil {
			e.Close()
		}
		want := fmt.Sprint("rank ", d.rank, ":")
		if !errors.Is(err, errJoin) || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v", d.rank, err)
		}
	}
}
