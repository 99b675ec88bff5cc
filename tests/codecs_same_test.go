package tests

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// TestCodecsSameOnRanks: after sums, and what is gathered, in each codec all of 2, 3 and 8 ranks
// have the same bits.
func TestCodecsSameOnRanks(t *testing.T) {
	goldens.CI(t)
	for _, kind := range graph.CodecKinds() {
		for _, ranks := range []int{2, 3, 8} {
			for _, of := range []struct{ strategy, quantize string }{{"", "out_proj=%s"}, {"sequence", "out_proj.rs=%[1]s,in_proj.ag=%[1]s"}} {
				c := graph.Codec{Kind: kind, Block: 16}
				t.Run(fmt.Sprintf("%s/tp=%d/%s", c, ranks, of.strategy), func(t *testing.T) {
					d := &eachAlone{}
					var keep []string
					for _, n := range openModel(t, "../testdata/golden/mamba-a", krait.Options{}).Graph().Nodes {
						switch {
						case of.strategy == "" && strings.HasSuffix(n.Name(), "out_proj"):
							keep = append(keep, n.Name())
						case of.strategy != "" && strings.HasSuffix(n.Name(), "in_proj"):
							keep = append(keep, n.Args[0].Name) // which is gathered
						}
					}
					m := openModel(t, "../testdata/golden/mamba-a", krait.Options{Slots: 1, Keep: keep, Device: d,
						Sharding: krait.Sharding{Ranks: ranks, Strategy: of.strategy, Payload: fmt.Sprintf(of.quantize, c)}})
					keptOf(t, m, 11, append(keep, "logits"))
					if d.compared == 0 {
						t.Error("nothing was compared")
					}
				})
			}
		}
	}
}

// eachAlone is a device that has a machine for each rank, whose outputs it compares.
type eachAlone struct{ compared int }

type eachMachine struct {
	exec.Machine // of rank 0
	all          []exec.Machine
	device       *eachAlone
}

func (d *eachAlone) Open(local []*lowering.Schedule, _ comm.World, o exec.Setup) (exec.Machine, error) {
	m := &eachMachine{all: make([]exec.Machine, len(local)), device: d}
	world := comm.Local(len(local))
	err := m.each(func(i int) (err error) {
		m.all[i], err = (&cpu.Device{Workers: 1}).Open(local[i:i+1], world, o)
		return err
	})
	m.Machine = m.all[0]
	return m, err
}

// each runs f for all ranks at the same time.
func (m *eachMachine) each(f func(i int) error) error {
	errs := make([]error, len(m.all))
	var all sync.WaitGroup
	for i := range m.all {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (m *eachMachine) ClearSlot(slot int) error {
	return m.each(func(i int) error { return m.all[i].ClearSlot(slot) })
}

func (m *eachMachine) Close() {
	m.each(func(i int) error { m.all[i].Close(); return nil })
}

func (m *eachMachine) Step(ctx context.Context, w *exec.Work) ([]kernels.Tensor, error) {
	outputs := make([][]kernels.Tensor, len(m.all))
	err := m.each(func(i int) (err error) {
		outputs[i], err = m.all[i].Step(ctx, w)
		return err
	})
	if err != nil {
		return nil, err
	}
	for rank, list := range outputs[1:] {
		for k := range list {
			for row := range list[k].Rows() {
				if !slices.EqualFunc(list[k].Row(row), outputs[0][k].Row(row), sameFloats) {
					return nil, fmt.Errorf("row %d of output %d has other bits on rank %d than on rank 0", row, k, rank+1)
				}
				m.device.compared++
			}
		}
	}
	return outputs[0], nil
}

func sameFloats(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
