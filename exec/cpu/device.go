// Package cpu runs schedules in this process: each rank is a goroutine, and its
// kernels are shared by workers.
package cpu

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/memory"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lowering"
)

// Device is this process, for [exec.Options]. The zero value is a good start.
type Device struct {
	Kernels kernels.Set // nil: those of package kernels/cpu for $KRAIT_CPU, or the plain ones
	// Math is f32, also for an empty one; bf16: products of weights in bf16 round activations to
	// bf16, which AMX and AVX512_BF16 multiply faster in prompts, and other instruction sets no
	// faster than f32; or int8: products of weights in blocks round activations to 8 bits (see
	// [cpu.ForMath]).
	Math    string
	Workers int // goroutines that run kernels, over the ranks of this process; 0: GOMAXPROCS, shared with the world's processes on this host
	// GatherStates gathers the states of tokens in parts (strategy context), as GPUs do, instead of
	// passing them from rank to rank.
	GatherStates bool
}

// String names the kernels: processes that run a model together must have the same.
func (d *Device) String() string {
	if d.Kernels != nil {
		return "cpu with kernels of its own"
	}
	isa, err := cpu.ChosenISA()
	if err != nil {
		return err.Error()
	}
	if d.Math != "" && d.Math != "f32" {
		isa += ", " + d.Math
	}
	return "cpu with " + isa
}

// Warnings says where Math has no effect on a schedule.
func (d *Device) Warnings(s *lowering.Schedule) []string {
	why := map[string]string{
		"bf16": fmt.Sprintf("no matmul of %d terms or more has a weight in bf16", kernels.ShortDepth),
		"int8": "no weight is in GGUF's blocks of 4 to 8 bits",
	}[d.Math]
	if why == "" || slices.ContainsFunc(s.Steps, func(st lowering.Step) bool { return d.rounds(s, &st) }) {
		return nil
	}
	return []string{fmt.Sprintf("math %s rounds nothing in this model: %s", d.Math, why)}
}

// rounds reports whether a step has products whose activations Math rounds.
func (d *Device) rounds(s *lowering.Schedule, st *lowering.Step) bool {
	if st.Kind != lowering.Launch || !d.multiplies(st.Op) {
		return false
	}
	return slices.ContainsFunc(st.Args, func(a lowering.Ref) bool {
		last := len(a.Type.Dims) - 1
		if d.Math == "int8" {
			return a.Type.DType.HasCodes()
		}
		return a.Type.DType == graph.BF16 && last > 0 && s.Local(a.Type).Dims[last].Len() >= kernels.ShortDepth
	})
}

// multiplies reports whether an operation is or has a product whose activations Math rounds.
func (d *Device) multiplies(op *graph.Op) bool {
	if op.Launches {
		return slices.ContainsFunc(op.Apart().Steps, func(s graph.ApartStep) bool { return d.multiplies(s.Op) })
	}
	return op.Name == "matmul" || op.Name == "experts" || op.Name == "ungated_experts"
}

// Chains says that recurrences pass states from rank to rank, unless GatherStates is set.
func (d *Device) Chains() bool { return !d.GatherStates }

// Pipelines says that ranks may be in stages and replicas.
func (d *Device) Pipelines() {}

// Memory is nine tenths of the host's, or of what the process may take of it, for all ranks: the
// rest is for scratch memory of kernels, requests and the system.
func (d *Device) Memory(ranks int) (bytes int64, share int) { return memory.Limit() / 10 * 9, ranks }

// maxWorkers bounds the number of workers.
const maxWorkers = 1 << 12

// Open makes the ranks. It copies no weights: they stay mapped.
func (d *Device) Open(local []*lowering.Schedule, world comm.World, o exec.Setup) (exec.Machine, error) {
	set, workers := d.Kernels, d.Workers
	switch {
	case set != nil && d.Math != "" && d.Math != "f32":
		return nil, fmt.Errorf("math is %q, and the reference kernels or those of a program have their own; leave out one of the two", d.Math)
	case set == nil:
		var err error
		if set, err = cpu.ForMath(d.Math); err != nil {
			return nil, err
		}
	}
	if workers < 0 || workers > maxWorkers {
		return nil, fmt.Errorf("%d workers; the number must be from 1 to %d, or 0 for one per processor", workers, maxWorkers)
	}
	if workers == 0 {
		workers = max(1, runtime.GOMAXPROCS(0)/max(1, o.LocalRanks))
	}
	m := &machine{beside: max(1, o.LocalRanks), recording: recording{to: o.Record, asked: o.Recording, origin: time.Now()}}
	for i, s := range local {
		r, err := newRank(s, set, &o)
		if err != nil {
			return nil, err
		}
		if r.comm, err = world.Join(s.World()); err != nil {
			return nil, err
		}
		if len(local) > 1 { // of which each has copied the columns that are its own
			files.Release(r.weights())
		}
		r.gives, r.origin = i == 0 && !o.Follower || s.Rank == 0, m.origin
		m.ranks = append(m.ranks, r)
	}
	if err := m.load(workers, o.Progress); err != nil {
		return nil, err
	}
	m.start(workers)
	if err := m.run(work{ctx: context.Background()}); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}
