package cuda

import (
	"cmp"
	"encoding/binary"
	"runtime"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// PeerBytes is by default the largest payload of an all-reduce, in bytes, that kernels of Krait sum
// over peer memory; larger ones go by NCCL.
const PeerBytes = 512 << 10

// MaxPeerBytes is the upper bound of [Device.PeerBytes]: kernels count the bytes of a mailbox in 32
// bits.
const MaxPeerBytes = 1 << 30

// OneShotBytes is by default the most bytes that a rank sends to all others together in one shot,
// where each sends its whole payload to all. In two shots each sums a part. The value is an
// assumption: it was not measured on GPUs.
const OneShotBytes = 256 << 10

// box is a rank's mailbox: memory that the other ranks write into.
type box struct {
	kernels.Mailbox
	memory memory
	stop   driver.Stream // for the copy that ends waiting kernels
	one    []byte        // pinned, what it copies
}

// peerBytes is the largest payload that ranks sum over peer memory, in bytes; 0 if they are in
// other processes, or if not all GPUs reach each other.
func (d *Device) peerBytes(devices []driver.DeviceInfo) int {
	most := cmp.Or(d.PeerBytes, PeerBytes)
	if most < 0 || len(devices) > kernels.MaxPeers {
		return 0
	}
	for i := range devices {
		for j := range devices {
			if l, ok := devices[i].LinkTo(devices[j].Index); i != j && !(ok && l.Access) {
				return 0
			}
		}
	}
	return (most + 4095) / 4096 * 4096
}

// openBoxes allocates the mailbox of each rank and writes the addresses of all into it.
func (m *machine) openBoxes() error {
	if m.peerBytes == 0 {
		return nil
	}
	if err := m.eachRank((*rank).openBox); err != nil {
		return err
	}
	return m.eachRank((*rank).addressBox)
}

func (r *rank) openBox() error {
	for _, other := range r.machine.gpus {
		if other == r.gpu {
			continue
		}
		if err := r.gpu.ctx.EnablePeer(other.ctx); err != nil {
			return err
		}
	}
	b := &r.box
	b.Mailbox = kernels.Mailbox{Ranks: r.s.Ranks, Rank: r.s.Rank, Bytes: r.machine.peerBytes, OneShot: cmp.Or(r.machine.device.OneShotBytes, OneShotBytes)}
	if _, err := b.memory.reserve(r.gpu, b.Size()); err != nil {
		return err
	}
	b.Box = uint64(b.memory.ptr)
	var err error
	if b.stop, err = r.gpu.ctx.Stream(); err != nil {
		return err
	}
	if b.one, err = r.gpu.ctx.AllocHost(4); err != nil {
		return err
	}
	b.one[0] = 1
	return nil
}

// addressBox writes the head of a mailbox, before any rank sends.
func (r *rank) addressBox() error {
	var table []byte
	for _, other := range r.machine.ranks {
		table = binary.LittleEndian.AppendUint64(table, other.box.Box)
	}
	b := &r.box
	if err := b.stop.Fill(b.memory.ptr, 0, b.Head()); err != nil {
		return err
	}
	if err := b.stop.CopyIn(b.memory.ptr+kernels.MailTable, table); err != nil {
		return err
	}
	return b.stop.Synchronize()
}

func (r *rank) closeBox() []error {
	b := &r.box
	errs := []error{b.memory.release(r.gpu)}
	if b.stop != nil {
		errs = append(errs, b.stop.Close())
	}
	if b.one != nil {
		errs = append(errs, r.gpu.ctx.ReleaseHost(b.one))
	}
	return errs
}

// stopWaiting ends all waiting of the rank's kernels, now and later; any goroutine may call it. The
// copy overtakes the kernels, since it is in a stream of its own.
func (r *rank) stopWaiting() {
	if r.box.one == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends, and its binding with it
		if r.gpu.ctx.Bind() == nil {
			_ = r.box.stop.CopyIn(r.box.memory.ptr+kernels.MailStop, r.box.one) // the caller has an error already
		}
	}()
	<-done
}

// overPeers returns the launches of a collective over peer memory: an all-reduce that fits into
// mailboxes. It reports false for others.
func (r *rank) overPeers(c *call) (list []kernels.Launch, ours bool, err error) {
	if !r.sumsOverPeers(c) {
		return nil, false, nil
	}
	b := &r.box
	list, err = b.AllReduce(c.on.Results, c.on.Args, c.step.Attrs.Text("acc") == "f32")
	return list, true, err
}

func (r *rank) sumsOverPeers(c *call) bool {
	op := c.step.Op
	return r.machine.peerBytes > 0 && op.From == graph.Partial && op.To == graph.Replicated && r.box.Fits(c.on.Args, c.on.Results)
}

// peerNorms maps each collective that the compiler marked to the step behind it that one launch may
// do as well: see [lowering.Schedule.Then].
func (r *rank) peerNorms() map[*call]*call {
	found := map[*call]*call{}
	for i, c := range r.calls {
		if k, ok := r.s.Then(i); ok && c.step.Kind == lowering.Collective {
			found[c] = r.calls[k]
		}
	}
	return found
}

// overPeersWithNorm returns the launches of an all-reduce over peer memory that does the
// add_rmsnorm behind it as well, and that norm; nil if they are apart. While steps are timed, each
// is by itself.
func (r *rank) overPeersWithNorm(c *call) ([]kernels.Launch, *call) {
	norm := r.norms[c]
	if norm == nil || r.record != nil || !r.sumsOverPeers(c) {
		return nil, nil
	}
	var t [5]kernels.Tensor
	for i := range norm.args {
		t[i] = r.tensor(&norm.args[i], c.batch, nil)
	}
	for i := range norm.results {
		t[3+i] = r.tensor(&norm.results[i], c.batch, nil)
	}
	other := t[0]
	if norm.step.Args[0].Name == c.step.Results[0].Name {
		other = t[1]
	}
	list, ok := r.box.AllReduceNorm(t[3], t[4], other, c.on.Args[0], t[2], norm.step.Attrs.Float("eps"))
	if !ok {
		return nil, nil
	}
	return list, norm
}
