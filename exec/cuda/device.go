// Package cuda runs schedules on NVIDIA GPUs, through a driver that may be the
// real one or a simulated one.
//
// Each GPU has one OS thread, which puts the work of its ranks into their
// streams: two per rank, one for kernels and one for collectives, ordered by the
// schedule's events. Ranks have a GPU each, joined by NCCL, and for what is small by kernels that
// write into each other's memory; or all share
// one, joined by events; then a kernel adds what they have. A batch with one
// token per sequence is captured once per number of sequences, and replayed as
// one launch.
package cuda

import (
	"cmp"
	"context"
	"fmt"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// Device is the GPUs of a driver, for [exec.Options].
type Device struct {
	Driver driver.Driver
	Math   kernels.Math // of products of many rows
	// NoGraphs launches every kernel by itself, also where a graph would do.
	NoGraphs bool
	// NoDependent lets every launch begin when the one before it has ended, also where the driver could begin it sooner.
	NoDependent bool
	// PeerBytes is the most that an AllReduce carries which ranks with a GPU each do over each other's memory, where
	// all of them reach each other's: above it NCCL is taken. 0: [PeerBytes]; below 0: always NCCL. At most [MaxPeerBytes].
	PeerBytes int
	// OneShotBytes is up to which size that is done in one shot; 0: [OneShotBytes].
	OneShotBytes int
	// NoGEMM leaves products to Krait's kernels, also where cuBLAS is there.
	NoGEMM bool
}

// String says what computes: processes that run a model together are to have the same.
func (d *Device) String() string { return fmt.Sprintf("%s, math %v", d.Driver.Name(), d.Math) }

// FewLaunches asks for graphs that are fused to save launches.
func (d *Device) FewLaunches() bool { return true }

// Open loads the weights of all ranks: on a GPU each if the machine has enough,
// otherwise all on one. Ranks in several processes have one each.
func (d *Device) Open(local []*lowering.Schedule, world comm.World, o exec.Setup) (exec.Machine, error) {
	var group *comm.Group
	if len(local) < world.Ranks() {
		var ok bool
		if group, ok = world.(*comm.Group); !ok {
			return nil, fmt.Errorf("%d of %d ranks are elsewhere; those of package exec/cuda are in one machine, or in processes (comm.Group)", world.Ranks()-len(local), world.Ranks())
		}
	}
	if d.PeerBytes > MaxPeerBytes {
		return nil, fmt.Errorf("an all_reduce of up to %d MiB over the memory of GPUs (--peer-bytes, or link.peers of --hw): at most %d MiB are possible; larger ones are NCCL's", d.PeerBytes>>20, MaxPeerBytes>>20)
	}
	if err := cmp.Or(refuseBlocks(local[0]), refuseOperations(local[0])); err != nil {
		return nil, err
	}
	devices, err := d.Driver.Devices()
	if err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, &driver.Error{Call: "open", Text: "there is no GPU", Kind: driver.ErrNoDriver}
	}
	m := newMachine(d, len(local[0].Outputs), &o)
	m.group = group
	m.nccl = group != nil || len(local) > 1 && len(devices) >= len(local)
	gpus, first := 1, 0
	switch {
	case group != nil: // each process takes another, unless it sees one alone
		first = o.Place % len(devices)
	case m.nccl:
		gpus = len(local)
		m.peerBytes = d.peerBytes(devices[:gpus])
	}
	for i := range gpus {
		g, err := openGPU(d, devices[first+i])
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("GPU %d (%s): %w", first+i, devices[first+i].Name, err)
		}
		m.gpus = append(m.gpus, g)
	}
	for i, s := range local {
		g := m.gpus[i%gpus]
		r := newRank(m, g, s)
		m.ranks, g.ranks = append(m.ranks, r), append(g.ranks, r)
	}
	if err := m.open(o); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Memory is nine tenths of what the GPU has that has least: the rest is for programs, scratch memory,
// and what collectives and cuBLAS keep.
func (d *Device) Memory(ranks int) (bytes int64, share int) {
	devices, err := d.Driver.Devices()
	if err != nil || len(devices) == 0 { // Open says so
		return 0, ranks
	}
	for _, x := range devices[:min(ranks, len(devices))] {
		if n := x.Memory / 10 * 9; bytes == 0 || n < bytes {
			bytes = n
		}
	}
	if len(devices) >= ranks {
		return bytes, 1
	}
	return bytes, ranks // all share the first
}

// refuseOperations: what others registered may be without a kernel for GPUs.
func refuseOperations(s *lowering.Schedule) error {
	for _, list := range [][]lowering.Step{s.Init, s.Steps} {
		for i := range list {
			if st := &list[i]; st.Kind == lowering.Launch {
				if _, ok := kernels.Kernels[st.Op.Name]; !ok {
					return fmt.Errorf("%s: operation %s has no kernel for GPUs, only for the CPU: register one with kernels/cuda.Register, or open the model on the CPU", st.Name, st.Op.Name)
				}
			}
		}
	}
	return nil
}

// refuseBlocks: no kernel reads weights in blocks.
func refuseBlocks(s *lowering.Schedule) error {
	for _, b := range s.Buffers {
		if b.Type.DType == graph.Q8 {
			return fmt.Errorf("parameter %s is in 8-bit blocks (q8), which run on the CPU only; run the checkpoint from which it was made, or make a folder with f32 of it (krait convert)", b.Name)
		}
	}
	return nil
}

// open loads weights and runs what is run once.
func (m *machine) open(o exec.Setup) error {
	if m.nccl {
		if err := m.join(); err != nil {
			return err
		}
		if err := m.openBoxes(); err != nil {
			return fmt.Errorf("memory for all_reduce of up to %d KiB between GPUs (--peer-bytes): %w", m.peerBytes>>10, err)
		}
	}
	progress := newProgress(m.ranks, o.Progress)
	err := m.each(func(g *gpu) error {
		l, err := newLoader(g, progress)
		if err != nil {
			return err
		}
		defer l.close()
		for _, r := range g.ranks {
			if err := r.load(l, o.Tensor); err != nil {
				return r.where(err)
			}
		}
		return l.wait()
	})
	if err != nil {
		return err
	}
	return m.run(context.Background(), programKey{once: true}, nil)
}
