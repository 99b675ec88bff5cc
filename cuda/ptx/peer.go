package ptx

import (
	"math/bits"
	"slices"
)

// Peers is how a launch and other devices order themselves: by st.release.sys and ld.acquire.sys of
// memory that both reach. Launches run one after the other here, so one that waits for such a store
// of another device cannot go on before it has ended: where a warp loads the same by strong loads
// of scope .sys again and again, Run takes back what the launch has written, and ends with a Fault
// of kind Waits; it can be run again later. So a launch that others wait for in the middle, while
// it waits for them, never ends.
//
// Strong accesses of scope .sys are in no Meter's Bytes.
type Peers struct {
	// Reaches says why the device may not touch the allocation at an address, or nothing; nil: it
	// may touch all.
	Reaches func(at uint64) string

	Released, Acquired []uint64 // the addresses of st.release.sys, and of ld.acquire.sys
}

func (p *Peers) begin() {
	if p != nil {
		p.Released, p.Acquired = p.Released[:0], p.Acquired[:0]
	}
}

// Signals reports whether the launch released something to other devices, or acquired it.
func (p *Peers) Signals() bool { return p != nil && len(p.Released)+len(p.Acquired) > 0 }

// polled is what a warp loaded last by a strong load of scope .sys.
type polled struct {
	op    *memOp
	lanes uint32
	first uint64 // address
	times int
}

// patience is how often a warp loads the same before it is said to wait.
const patience = 4

// polls notes a strong load of scope .sys, and reports false where it waits.
func (w *warp) polls(in *instr, m uint32, op *memOp) bool {
	base := &w.regs[in.a]
	l := bits.TrailingZeros32(m) & 31
	p := polled{op: op, lanes: m, first: op.addr(base[l], in.offset)}
	at := &w.polled[0]
	if at.op != op { // a loop may look at two places in turn
		w.polled[0], w.polled[1] = w.polled[1], w.polled[0]
	}
	if p.times = at.times; *at != p {
		*at = p
		at.times = 0
	}
	if at.times++; at.times >= patience {
		w.fail(in, l, Waits, "waits for another device at %#x", at.first)
		return false
	}
	if peers := w.x.l.Peers; peers != nil && op.acquire {
		for ; m != 0; m &= m - 1 {
			peers.Acquired = append(peers.Acquired, op.addr(base[bits.TrailingZeros32(m)&31], in.offset))
		}
	}
	return true
}

// signals notes a strong store of scope .sys.
func (w *warp) signals(in *instr, m uint32, op *memOp) {
	peers, base := w.x.l.Peers, &w.regs[in.a]
	if peers == nil || !op.release {
		return
	}
	for ; m != 0; m &= m - 1 {
		peers.Released = append(peers.Released, op.addr(base[bits.TrailingZeros32(m)&31], in.offset))
	}
}

// reaches reports whether the device may touch an allocation, and fails where it may not.
func (w *warp) reaches(in *instr, l int, r *region, verb string, n, at uint64) bool {
	p := w.x.l.Peers
	if p == nil || p.Reaches == nil || r.name != "" {
		return true
	}
	why := p.Reaches(r.base)
	if why != "" {
		w.fail(in, l, OutOfBounds, "%s %d bytes at %#x, %s", verb, n, at, why)
	}
	return why == ""
}

// before is what was at some bytes of global memory.
type before struct {
	r       *region
	off     uint64
	data    [16]byte
	n       uint8
	written uint16 // a bit for each byte
}

// remember notes that a launch writes, and keeps what one that may have to be taken back writes
// over.
func (x *execution) remember(r *region, off, n uint64) {
	if !r.stored.Load() {
		r.stored.Store(true)
	}
	if !x.entry.polls || r.base == 0 { // shared and local memory
		return
	}
	b := before{r: r, off: off, n: uint8(n)}
	copy(b.data[:], r.data[off:off+n])
	for i := range n {
		if r.written == nil || r.written.has(off+i, 1) {
			b.written |= 1 << i
		}
	}
	x.before = append(x.before, b)
}

// takeBack makes memory what it was before the launch.
func (x *execution) takeBack() {
	for _, b := range slices.Backward(x.before) {
		copy(b.r.data[b.off:], b.data[:b.n])
		for i := range uint64(b.n) {
			if b.written>>i&1 == 0 {
				b.r.unmarkRange(b.off+i, 1)
			}
		}
	}
}
