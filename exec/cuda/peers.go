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

// PeerBytes is the most that an AllReduce carries which ranks with a GPU each do by kernels of ours, over each
// other's memory, if nothing else is said: above it NCCL is taken.
const PeerBytes = 512 << 10

// MaxPeerBytes is the most that may be said: kernels count the bytes of a box in 32 bits.
const MaxPeerBytes = 1 << 30

// OneShotBytes is how much of that a rank sends at most to all others together where each sends all to all others, if
// nothing else is said: else each sums a part. It is an assumption; no GPU was at hand.
const OneShotBytes = 256 << 10

// box is a rank's memory that the other ranks write into.
type box struct {
	kernels.Mailbox
	memory memory
	stop   driver.Stream // for the copy that ends what waits
	one    []byte        // pinned, what it copies
}

// peerBytes is up to which size ranks sum over each other's memory, 0 where they do not: they are in other
// processes, or not all GPUs reach each other.
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

// openBoxes gives each rank its box, and the addresses of all.
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

// addressBox writes what a box begins with, before anybody sends.
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

// stopWaiting ends what kernels of the rank wait for, now and from now on, from any goroutine. The copy overtakes them:
// it is in a stream of its own.
func (r *rank) stopWaiting() {
	if r.box.one == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends, and with it what is bound to it
		if r.gpu.ctx.Bind() == nil {
			_ = r.box.stop.CopyIn(r.box.memory.ptr+kernels.MailStop, r.box.one) // the error that led here is the one to tell
		}
	}()
	<-done
}

// overPeers is what a collective launches where it is done over the memory of the others: an AllReduce that
// fits into boxes.
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

// peerNorms maps each collective that the compiler marked to the step behind it that one launch may do as well: see
// [lowering.Schedule.Then].
func (r *rank) peerNorms() map[*call]*call {
	found := map[*call]*call{}
	for i, c := range r.calls {
		if k, ok := r.s.Then(i); ok && c.step.Kind == lowering.Collective {
			found[c] = r.calls[k]
		}
	}
	return found
}

// overPeersWithNorm is what an AllReduce over the memory of the others launches with the add_rmsnorm behind it, and that; nil where
// it does not. Where steps are timed each is by itself.
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
