package ptx

import (
	"fmt"
	"math/bits"
)

// raceOn reports a race of a lane's access with another.
func (w *warp) raceOn(in *instr, l int, r *region, off, n uint64, verb string, other stamp, how touch) bool {
	x := w.x
	kind, place := GlobalRace, fmt.Sprintf("%#x", r.base+off)
	if r == x.shared {
		kind, place = SharedRace, placeName(spaceShared, off)
	}
	done := [...]string{touchRead: "read", touchWrite: "written", touchSync: "updated atomically", touchFixed: "read by ld.nc"}[how]
	who := "another block has " + done + " in this launch"
	switch {
	case other >= x.block:
		who = fmt.Sprintf("thread %s has %s with no barrier since", triple(x.threadID(threadOf(other))), done)
	case other >= x.launch:
		b := x.blocks[x.blockOf(other)]
		who = fmt.Sprintf("thread %s of block %s has %s in this launch", triple(x.threadID(threadOf(other))), triple(b.id), done)
	}
	w.fail(in, l, kind, "%s %d bytes at %s, which %s", verb, n, place, who)
	return false
}

func triple(v [3]int) string { return fmt.Sprintf("(%d,%d,%d)", v[0], v[1], v[2]) }

// since is when what the race detector has on a region begins to count.
func (x *execution) since(r *region) stamp {
	if r == x.shared {
		return x.block
	}
	return x.launch
}

// noteLoad enters the reads at w.at of a load by the lanes in m.
func (w *warp) noteLoad(in *instr, r *region, m uint32) bool {
	switch op := in.mem; {
	case r.chunks == nil:
		return true
	case op.strong:
		return w.noteSyncRead(in, lowest(m), r, w.at[lowest(m)], op.total)
	case op.fixed:
		return w.noteFixed(in, r, m, op.total)
	default:
		return w.noteReads(in, r, m, op.total)
	}
}

// noteReads enters the plain reads of n bytes at w.at by the lanes in m in the race detector.
func (w *warp) noteReads(in *instr, r *region, m uint32, n uint64) bool {
	if r.chunks == nil {
		return true
	}
	o, since := &w.x.order, w.x.since(r)
	for l := lowest(m); l < bits.Len32(m); l++ {
		if m>>l&1 == 0 {
			continue
		}
		cells := r.cells(w.at[l], n, since)
		for i := range cells {
			if other, how := o.read(&cells[i], w.thread(l), since); how != noTouch {
				return w.raceOn(in, l, r, w.at[l], n, "reads", other, how)
			}
		}
	}
	return true
}

// noteSyncRead enters a lane's strong read.
func (w *warp) noteSyncRead(in *instr, l int, r *region, off, n uint64) bool {
	thread, since := w.thread(l), w.x.since(r)
	cells := r.cells(off, n, since)
	for i := range cells {
		if other, how := w.x.order.syncRead(&cells[i], thread, since); how != noTouch {
			return w.raceOn(in, l, r, off, n, "reads", other, how)
		}
	}
	if r != w.x.shared {
		w.x.acquire(r.base+off, thread)
	}
	return true
}

// noteFixed enters the reads at w.at of bytes that are said to stay the same, which no thread may
// write in the launch, before or after.
func (w *warp) noteFixed(in *instr, r *region, m uint32, n uint64) bool {
	since := w.x.since(r)
	for l := lowest(m); l < bits.Len32(m); l++ {
		if m>>l&1 == 0 {
			continue
		}
		cells := r.cells(w.at[l], n, since)
		for i := range cells {
			c := &cells[i]
			if c.write < since && c.sync < since {
				c.fixed = w.x.now | stamp(w.thread(l))<<1
				continue
			}
			if other, how := w.x.order.read(c, w.thread(l), since); how != noTouch {
				return w.raceOn(in, l, r, w.at[l], n, "reads", other, how)
			}
			w.fail(in, l, ReadOnly, "reads %d bytes at %#x as data that stays the same (.nc), of which this launch has written some", n, r.base+w.at[l])
			return false
		}
	}
	return true
}

// noteStore enters the writes at w.at of a store by the lanes in m, of all that execute it.
func (w *warp) noteStore(in *instr, r *region, m, all uint32) bool {
	if in.mem.strong {
		return w.noteSync(in, lowest(m), r, w.at[lowest(m)], in.mem.total, false, true)
	}
	return w.noteWrites(in, r, m, all, in.mem.total)
}

// noteWrites enters the plain writes of n bytes at w.at by the lanes in m in the race detector. Of
// the lanes in all, which execute the same store, several may write a value to one address.
func (w *warp) noteWrites(in *instr, r *region, m, all uint32, n uint64) bool {
	if r.chunks == nil {
		return true
	}
	o, since := &w.x.order, w.x.since(r)
	for l := lowest(m); l < bits.Len32(m); l++ {
		if m>>l&1 == 0 {
			continue
		}
		cells := r.cells(w.at[l], n, since)
		for i := range cells {
			other, how := o.write(&cells[i], w.thread(l), since)
			if how == touchWrite && w.sameValue(in, all, l, other) {
				other, how = o.overwrite(&cells[i], w.thread(l), since)
			}
			if how != noTouch {
				return w.raceOn(in, l, r, w.at[l], n, "writes", other, how)
			}
		}
	}
	return true
}

// sameValue reports whether the write other was made by another of the lanes in m in this very
// store, and with the same value.
func (w *warp) sameValue(in *instr, m uint32, l int, other stamp) bool {
	lane := threadOf(other) - w.index*32
	if other>>stampShift != w.x.now>>stampShift || lane < 0 || lane >= l || m>>lane&1 == 0 {
		return false
	}
	op, base := in.mem, &w.regs[in.a]
	if op.addr(base[l], in.offset) != op.addr(base[lane], in.offset) {
		return false
	}
	for _, s := range in.rows {
		if differ := w.regs[s][l] ^ w.regs[s][lane]; differ<<(64-8*op.size) != 0 {
			return false
		}
	}
	return true
}

// noteSync enters an atomic or a strong write in the race detector.
func (w *warp) noteSync(in *instr, l int, r *region, off, n uint64, reads, writes bool) bool {
	if r.chunks == nil {
		return true
	}
	thread := w.thread(l)
	since := w.x.since(r)
	cells := r.cells(off, n, since)
	for i := range cells {
		if other, how := w.x.syncWrite(&cells[i], thread, since); how != noTouch {
			return w.raceOn(in, l, r, off, n, "updates", other, how)
		}
	}
	if r == w.x.shared {
		return true
	}
	if in.mem.release {
		w.x.advance()
		w.x.fence(thread)
	}
	if reads {
		w.x.acquire(r.base+off, thread)
	}
	if writes {
		w.x.release(r.base+off, thread)
	}
	return true
}
