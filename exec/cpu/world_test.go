package cpu

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/kernels"
)

// TestRanksOfTwoMachines: ranks that two machines share, as two processes would, give
// what they give on one; an error on one stops the other, which goes on afterwards.
func TestRanksOfTwoMachines(t *testing.T) {
	for _, name := range []string{"block", "mlp"} {
		whole, batch := failEngine(t, name, 3)
		want, err := failStep(t, whole, context.Background(), batch)
		if err != nil {
			t.Fatal(err)
		}
		work := whole.work
		world := comm.Local(3)
		var machines [2]exec.Machine
		both(func(i int) {
			m, err := (&Device{Workers: 1}).Open(whole.Schedules()[i:2*i+1], world, exec.Setup{Tensor: blockParams(whole.graph), Slots: 1})
			if err != nil {
				t.Error(err)
			}
			machines[i] = m
		})
		defer machines[0].Close()
		defer machines[1].Close()
		for try := range 4 {
			var got [2][]kernels.Tensor
			var errs [2]error
			stop := try == 1
			both(func(i int) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if stop && i == 1 {
					cancel()
				}
				if err := machines[i].ClearSlot(0); err != nil {
					t.Error(err)
				}
				got[i], errs[i] = machines[i].Step(ctx, work)
			})
			for i := range machines {
				switch {
				case stop && (!errors.Is(errs[i], context.Canceled) || !strings.HasPrefix(errs[i].Error(), "stopped before ")):
					t.Errorf("%s: machine %d was not stopped: %v", name, i, errs[i])
				case stop:
				case errs[i] != nil:
					t.Errorf("%s, step %d: machine %d: %v", name, try, i, errs[i])
				default:
					if y := got[i][0]; !slices.Equal(y.F32[:y.Rows()*y.Cols], want) {
						t.Errorf("%s, step %d: machine %d gives %v, want %v", name, try, i, y.F32, want)
					}
				}
			}
		}
	}
}

// both runs f(0) and f(1) at the same time.
func both(f func(i int)) {
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
