package ptx

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// A memOp is how an instruction accesses memory.
type memOp struct {
	number  int32 // in the kernel
	space   space
	size    uint64 // of an element
	total   uint64 // of all elements of a vector
	signed  bool   // loads extend the sign
	word    bool   // loads of four bytes into one register, and no sign
	regBits []int  // widths of the registers
	narrow  bool   // the address is 32 bits wide
	fixed   bool   // loads of data that the launch does not write: .nc, ldu
	strong  bool   // not raced by other strong accesses: volatile, relaxed, acquire, release
	release bool   // has a fence of its own
	acquire bool   // loads what others have released
	system  bool   // strong towards other devices, too: .sys
	from    *memOp // the source of cp.async
	atomic  atomicFunc
}

// addr is the address that a lane accesses.
func (op *memOp) addr(base, offset uint64) uint64 {
	if op.narrow {
		return uint64(uint32(base + offset))
	}
	return base + offset
}

// thread is a lane's number in the block.
func (w *warp) thread(l int) int { return w.index*32 + l }

// find is locate for where the instruction was last time.
func (w *warp) find(op *memOp, addr, n uint64) (*region, uint64) {
	r := w.x.recent[op.number]
	if r == nil {
		return nil, 0
	}
	if off := addr - r.base; off < r.size && n <= r.size-off && off&(n-1) == 0 {
		return r, off
	}
	return nil, 0
}

// locate finds the bytes of an access and checks its bounds and alignment. It
// returns nil after a fault.
func (w *warp) locate(in *instr, l int, op *memOp, s space, addr, n uint64, verb string) (*region, uint64) {
	at := addr
	if s == spaceGeneric {
		s, at = generic(addr)
	}
	if at&(n-1) != 0 {
		w.fail(in, l, Misaligned, "%s %d bytes at %s, which is not a multiple of %d", verb, n, placeName(s, at), n)
		return nil, 0
	}
	var r *region
	off, limit := at, uint64(0)
	switch s {
	case spaceGlobal:
		if r = w.x.mem.lookup(at, n); r == nil {
			w.fail(in, l, OutOfBounds, "%s %d bytes at %#x, %s", verb, n, at, w.x.mem.where(at, n))
			return nil, 0
		}
		if !w.reaches(in, l, r, verb, n, at) {
			return nil, 0
		}
		w.x.recent[op.number] = r
		return r, at - r.base
	case spaceShared:
		r, limit = w.x.shared, w.x.shared.size
	case spaceConst:
		r, limit = w.x.module.consts, w.x.module.consts.size
	case spaceParam:
		r, limit = &w.x.params, w.x.params.size
	case spaceLocal:
		r, limit = &w.local, uint64(w.x.entry.local)
		off += uint64(l) * w.stride
	}
	if at >= limit || n > limit-at {
		w.fail(in, l, OutOfBounds, "%s %d bytes at %s, %s", verb, n, placeName(s, at), pastEnd(s, at, n, limit))
		return nil, 0
	}
	if s == op.space && s != spaceLocal {
		w.x.recent[op.number] = r
	}
	return r, off
}

func placeName(s space, addr uint64) string {
	if s == spaceGlobal {
		return fmt.Sprintf("%#x", addr)
	}
	return fmt.Sprintf("%s address %#x", s, addr)
}

func pastEnd(s space, addr, n, limit uint64) string {
	past := addr
	if addr < limit {
		past = addr + n
	}
	return fmt.Sprintf("%d bytes past the end of %d bytes of %s memory", past-limit, limit, s)
}

// readable checks that bytes are written.
func (w *warp) readable(in *instr, l int, r *region, off, n uint64, s space, addr uint64) bool {
	if r.written == nil || r.written.has(off, n) {
		return true
	}
	i := r.written.firstUnwritten(off, n)
	what := "has not been written"
	if w.x.inFlight(r, off+i) {
		what = "a cp.async in flight is writing"
	}
	if s == spaceGeneric {
		s, addr = generic(addr)
	}
	w.fail(in, l, Unwritten, "reads %d bytes at %s, of which byte %d %s", n, placeName(s, addr), i, what)
	return false
}

// writable refuses what a generic address can reach but nothing may write.
func (w *warp) writable(in *instr, l int, r *region, off, n uint64) bool {
	s := spaceConst
	switch r {
	case w.x.module.consts:
	case &w.x.params:
		s = spaceParam
	default:
		return true
	}
	w.fail(in, l, OutOfBounds, "writes %d bytes at %s, which cannot be written", n, placeName(s, off))
	return false
}

// mark marks n aligned bytes written.
func (r *region) mark(off, n uint64) {
	if r.written == nil || r.written.has(off, n) {
		return
	}
	r.markRange(off, n)
}

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

// noteRead enters a read in the race detector.
func (w *warp) noteRead(in *instr, l int, r *region, off, n uint64, strong bool) bool {
	if r.chunks == nil {
		return true
	}
	thread := w.thread(l)
	since := w.x.since(r)
	if c := r.chunks[off/chunkBytes]; !strong && c != nil && c.since == since && n == 1<<c.shift { // as most often
		other, how := w.x.order.read(&c.cells[off%chunkBytes>>c.shift], thread, since)
		return how == noTouch || w.raceOn(in, l, r, off, n, "reads", other, how)
	}
	cells := r.cells(off, n, since)
	for i := range cells {
		var other stamp
		var how touch
		if strong {
			other, how = w.x.order.syncRead(&cells[i], thread, since)
		} else {
			other, how = w.x.order.read(&cells[i], thread, since)
		}
		if how != noTouch {
			return w.raceOn(in, l, r, off, n, "reads", other, how)
		}
	}
	if strong && r != w.x.shared {
		w.x.acquire(r.base+off, thread)
	}
	return true
}

// noteFixed enters a read of bytes that are said to stay the same, which no thread may
// write in the launch, before or after.
func (w *warp) noteFixed(in *instr, l int, r *region, off, n uint64) bool {
	if r.chunks == nil {
		return true
	}
	since := w.x.since(r)
	if c := r.chunks[off/chunkBytes]; c != nil && c.since == since && n == 1<<c.shift { // as most often
		if at := &c.cells[off%chunkBytes>>c.shift]; at.write < since && at.sync < since {
			at.fixed = w.x.now | stamp(w.thread(l))<<1
			return true
		}
	}
	cells := r.cells(off, n, since)
	for i := range cells {
		c := &cells[i]
		if c.write < since && c.sync < since {
			c.fixed = w.x.now | stamp(w.thread(l))<<1
			continue
		}
		if other, how := w.x.order.read(c, w.thread(l), since); how != noTouch {
			return w.raceOn(in, l, r, off, n, "reads", other, how)
		}
		w.fail(in, l, ReadOnly, "reads %d bytes at %#x as data that stays the same (.nc), of which this launch has written some", n, r.base+off)
		return false
	}
	return true
}

// noteWrite enters a plain write of data in the race detector. m has the lanes
// of the instruction.
func (w *warp) noteWrite(in *instr, m uint32, l int, r *region, off uint64, data []byte) bool {
	if r.chunks == nil {
		return true
	}
	n := uint64(len(data))
	thread := w.thread(l)
	since := w.x.since(r)
	cells := r.cells(off, n, since)
	for i := range cells {
		other, how := w.x.order.write(&cells[i], thread, since)
		if how == touchWrite && w.sameValue(in, m, l, r, off, data, other) {
			other, how = w.x.order.overwrite(&cells[i], thread, since)
		}
		if how != noTouch {
			return w.raceOn(in, l, r, off, n, "writes", other, how)
		}
	}
	return true
}

// sameValue reports whether the write other was made by another lane in this
// very instruction, and with the same value.
func (w *warp) sameValue(in *instr, m uint32, l int, r *region, off uint64, data []byte, other stamp) bool {
	lane := threadOf(other) - w.index*32
	if other>>stampShift != w.x.now>>stampShift || lane < 0 || lane >= l || m>>lane&1 == 0 {
		return false
	}
	base := &w.regs[in.a]
	mine, its := in.mem.addr(base[l], in.offset), in.mem.addr(base[lane], in.offset)
	return mine == its && bytes.Equal(r.data[off:off+uint64(len(data))], data)
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

// get reads an element.
func get(p []byte, size uint64) uint64 {
	switch size {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(p))
	case 4:
		return uint64(binary.LittleEndian.Uint32(p))
	}
	return binary.LittleEndian.Uint64(p)
}

// put writes an element.
func put(p []byte, size, v uint64) {
	switch size {
	case 1:
		p[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(p, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(p, uint32(v))
	default:
		binary.LittleEndian.PutUint64(p, v)
	}
}

// load runs ld.
func load(w *warp, in *instr, m uint32) {
	op := in.mem
	if w.x.l.Dependent && !w.awaited(in, m, op) {
		return
	}
	base, to := &w.regs[in.a], &w.regs[in.rows[0]]
	if op.system && !w.polls(in, m, op) {
		return
	}
	if w.x.tally != nil && !op.system {
		w.x.tally.access(w, op, base, in.offset, m, op.total, false)
	}
	for ; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		addr := op.addr(base[l], in.offset)
		r, off := w.find(op, addr, op.total)
		if r == nil {
			if r, off = w.locate(in, l, op, op.space, addr, op.total, "reads"); r == nil {
				return
			}
		}
		if r.written != nil && !w.readable(in, l, r, off, op.total, op.space, addr) {
			return
		}
		if op.fixed && !w.noteFixed(in, l, r, off, op.total) || !op.fixed && !w.noteRead(in, l, r, off, op.total, op.strong) {
			return
		}
		p := r.data[off : off+op.total]
		if op.word { // as most often
			to[l] = uint64(binary.LittleEndian.Uint32(p))
			continue
		}
		for i, d := range in.rows {
			v := get(p, op.size)
			if op.signed {
				v = signExtend(v, int(op.size)*8, op.regBits[i])
			}
			w.regs[d][l] = v
			p = p[op.size:]
		}
	}
}

// signExtend widens a signed value from one width to another.
func signExtend(v uint64, from, to int) uint64 {
	return uint64(int64(v<<(64-from))>>(64-from)) & (^uint64(0) >> (64 - to))
}

// loadParam runs ld.param of a fixed address, which is the same for all lanes.
func loadParam(w *warp, in *instr, m uint32) {
	op := in.mem
	p := w.x.params.data[in.offset:]
	for i, d := range in.rows {
		v := get(p[uint64(i)*op.size:], op.size)
		if op.signed {
			v = signExtend(v, int(op.size)*8, op.regBits[i])
		}
		to := &w.regs[d]
		for l := range to {
			if m>>l&1 != 0 {
				to[l] = v
			}
		}
	}
}

// store runs st.
func store(w *warp, in *instr, m uint32) {
	op := in.mem
	if w.x.l.Dependent && !w.awaited(in, m, op) {
		return
	}
	base := &w.regs[in.a]
	buf := w.buf[:op.total]
	if op.system {
		w.signals(in, m, op)
	}
	if w.x.tally != nil && !op.system {
		w.x.tally.access(w, op, base, in.offset, m, op.total, true)
	}
	for n := m; n != 0; n &= n - 1 {
		l := bits.TrailingZeros32(n) & 31
		addr := op.addr(base[l], in.offset)
		r, off := w.find(op, addr, op.total)
		if r == nil {
			if r, off = w.locate(in, l, op, op.space, addr, op.total, "writes"); r == nil || !w.writable(in, l, r, off, op.total) {
				return
			}
		}
		for i, s := range in.rows {
			put(buf[uint64(i)*op.size:], op.size, w.regs[s][l])
		}
		switch {
		case op.strong:
			if !w.noteSync(in, l, r, off, op.total, false, true) {
				return
			}
		case !w.noteWrite(in, m, l, r, off, buf):
			return
		}
		w.x.remember(r, off, op.total)
		r.mark(off, op.total)
		if w.x.tally != nil && op.system && op.release { // another launch may wait for it: no block is left out
			w.x.tally.keep(r, off, get(r.data[off:], op.size), op.size)
		}
		copy(r.data[off:off+op.total], buf)
	}
}
