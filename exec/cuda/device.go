// Package cuda runs schedules on NVIDIA GPUs, through a driver that may be the real one or a
// simulated one.
//
// Each GPU has one OS thread, which puts the work of its ranks into their streams: two per rank,
// one for kernels and one for collectives, ordered by the schedule's events. Ranks have a GPU each,
// joined by NCCL, and for small payloads by kernels that write into each other's memory; or all
// share one, joined by events, and a kernel adds their summands. A batch with one token per
// sequence is captured once per number of sequences, and replayed as one launch.
package cuda

import (
	"context"
	"errors"
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
	// NoGraphs turns CUDA graphs off: every kernel is launched by itself.
	NoGraphs bool
	// NoDependent turns programmatic dependent launch (PDL) off.
	NoDependent bool
	// PeerBytes is the largest payload of an all-reduce, in bytes, that goes over peer memory where
	// all GPUs reach each other's; larger ones go by NCCL. 0: [PeerBytes]; below 0: always NCCL. At
	// most [MaxPeerBytes].
	PeerBytes int
	// OneShotBytes is the largest payload of such an all-reduce that is done in one shot, in bytes
	// sent per rank; 0: [OneShotBytes].
	OneShotBytes int
	// NoGEMM turns cuBLAS off: Krait's kernels compute all products.
	NoGEMM bool
	// BatchInvariant lets a sequence's bits depend on no other sequence and not on how many rows a
	// step has: kernels are chosen by shape alone, cuBLAS is off, and sums over ranks are in their
	// order whatever their size.
	BatchInvariant bool
}

// String names the driver and the math. Processes that run a model together must have the same.
func (d *Device) String() string {
	text := fmt.Sprintf("%s, math %v", d.Driver.Name(), d.Math)
	if d.BatchInvariant {
		text += ", batch-invariant"
	}
	return text
}

// FewLaunches reports that graphs should be fused to save launches.
func (d *Device) FewLaunches() bool { return true }

// Open loads the weights of all ranks: on a GPU each if the machine has enough,
// otherwise all on one. Ranks in several processes have one each.
func (d *Device) Open(local []*lowering.Schedule, world comm.World, o exec.Setup) (exec.Machine, error) {
	var group *comm.Group
	if len(local) < world.Ranks() {
		var ok bool
		if group, ok = world.(*comm.Group); !ok {
			return nil, fmt.Errorf("%d of %d ranks are elsewhere; on GPUs all ranks must be in this process, or in processes of one machine (comm.Group)", world.Ranks()-len(local), world.Ranks())
		}
	}
	if d.PeerBytes > MaxPeerBytes {
		return nil, fmt.Errorf("peer memory for payloads of %d MiB (--peer-bytes, or link.peers of --hw); it must be at most %d MiB, and NCCL carries larger ones", d.PeerBytes>>20, MaxPeerBytes>>20)
	}
	if local[0].Across() {
		return nil, fmt.Errorf("GPUs have no meshes of two axes (mesh %s); give --tp, or the CPU", local[0].Mesh)
	}
	if d.BatchInvariant && local[0].RowPlace() == graph.InParts { // single tokens would run the kernels of prompts beside them
		return nil, errors.New("ranks that have tokens in parts (strategy context) are not batch-invariant on GPUs; leave out --batch-invariant, or use another strategy")
	}
	if err := refuseTrials(local[0], o.Trials); err != nil {
		return nil, err
	}
	devices, err := d.Driver.Devices()
	if err != nil {
		return nil, err
	}
	if err := refuseOperations(local[0], len(devices) > 0 && devices[0].HostReaches); err != nil {
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
	case group != nil: // each process takes another GPU, unless it sees only one
		first = o.LocalRank % len(devices)
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

// Memory returns nine tenths of the memory of the smallest GPU, and how many ranks share it. The
// rest is for programs, scratch memory, NCCL and cuBLAS.
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

// refuseOperations is an error for registered operations without a kernel for GPUs, where the host
// cannot run them either.
func refuseOperations(s *lowering.Schedule, simulated bool) error {
	for _, list := range [][]lowering.Step{s.Init, s.Steps} {
		for i := range list {
			st := &list[i]
			if st.Kind != lowering.Launch || hasKernel(st) {
				continue
			}
			if !simulated {
				return fmt.Errorf("%s: operation %s has no kernel for GPUs, only for the CPU: register one with kernels/cuda.Register, or open the model on the CPU", st.Name, st.Op.Name)
			}
			if err := hostable(s, st); err != nil {
				return fmt.Errorf("%s: operation %s has no kernel for GPUs, and %w", st.Name, st.Op.Name, err)
			}
		}
	}
	return nil
}

// open loads the weights and runs the schedule's init steps.
func (m *machine) open(o exec.Setup) error {
	if m.nccl {
		if err := m.join(); err != nil {
			return err
		}
		if err := m.openBoxes(); err != nil {
			return fmt.Errorf("peer memory for payloads of up to %d KiB (lower --peer-bytes): %w", m.peerBytes>>10, err)
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
