package ptx

import (
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
	regBits []int  // widths of the registers
	narrow  bool   // the address is 32 bits wide
	fixed   bool   // loads of data that the launch does not write: .nc, ldu
	early   bool   // loads that need not wait for the launch before, of data that no launch writes
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
	if r.written == nil {
		return
	}
	if r.missing -= r.written.set(off, n); r.missing == 0 {
		r.written = nil
	}
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
	if op.system && !w.polls(in, m, op) {
		return
	}
	if w.x.tally != nil && !op.system {
		w.x.tally.access(w, op, &w.regs[in.a], in.offset, m, op.total, false)
	}
	for m != 0 {
		r, lanes := w.reach(in, m, op.strong, "reads")
		if r == nil || w.x.l.Dependent && !w.constant(in, lanes, r) || !w.allReadable(in, r, lanes) || !w.noteLoad(in, r, lanes) {
			return
		}
		w.fetch(in, r, lanes)
		m &^= lanes
	}
}

// reach locates the accesses of the lanes in m, all if they lie in one region, or of the first
// alone. It sets w.at to the offsets in the region that it returns, nil after a fault.
func (w *warp) reach(in *instr, m uint32, alone bool, verb string) (r *region, lanes uint32) {
	op, base := in.mem, &w.regs[in.a]
	if !alone {
		if r = w.together(op, base, in.offset, m); r != nil {
			return r, m
		}
	}
	l := lowest(m)
	r, w.at[l] = w.locate(in, l, op, op.space, op.addr(base[l], in.offset), op.total, verb)
	return r, 1 << l
}

// together finds the region that the instruction accessed last, if all lanes in m now access it,
// aligned.
func (w *warp) together(op *memOp, base *row, offset uint64, m uint32) *region {
	r := w.x.recent[op.number]
	if r == nil || r.size < op.total {
		return nil
	}
	last, all := r.size-op.total, uint64(0)
	for l := lowest(m); l < bits.Len32(m); l++ {
		if m>>l&1 == 0 {
			continue
		}
		off := op.addr(base[l], offset) - r.base
		if off > last {
			return nil
		}
		w.at[l] = off
		all |= off
	}
	if all&(op.total-1) != 0 {
		return nil
	}
	return r
}

// allReadable checks that the bytes at w.at are written.
func (w *warp) allReadable(in *instr, r *region, m uint32) bool {
	op := in.mem
	for l := lowest(m); l < bits.Len32(m) && r.written != nil; l++ {
		if m>>l&1 != 0 && !w.readable(in, l, r, w.at[l], op.total, op.space, op.addr(w.regs[in.a][l], in.offset)) {
			return false
		}
	}
	return true
}

// fetch reads the registers of a load from w.at.
func (w *warp) fetch(in *instr, r *region, m uint32) {
	op := in.mem
	for i, d := range in.rows {
		to, data := &w.regs[d], r.data[uint64(i)*op.size:]
		for l := lowest(m); l < bits.Len32(m); l++ {
			if m>>l&1 == 0 {
				continue
			}
			switch p := data[w.at[l]:]; {
			case op.size == 4 && !op.signed: // as most often
				to[l] = uint64(binary.LittleEndian.Uint32(p))
			case op.signed:
				to[l] = signExtend(get(p, op.size), int(op.size)*8, op.regBits[i])
			default:
				to[l] = get(p, op.size)
			}
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
	if op.system {
		w.signals(in, m, op)
	}
	if w.x.tally != nil && !op.system {
		w.x.tally.access(w, op, &w.regs[in.a], in.offset, m, op.total, true)
	}
	for rest := m; rest != 0; {
		r, lanes := w.reach(in, rest, op.strong || w.x.entry.polls, "writes")
		l := lowest(lanes)
		if r == nil || !w.writable(in, l, r, w.at[l], op.total) || !w.noteStore(in, r, lanes, m) {
			return
		}
		w.x.remember(r, w.at[l], op.total)
		if w.x.tally != nil && op.system && op.release { // another launch may wait for it: no block is left out
			w.x.tally.keep(r, w.at[l], get(r.data[w.at[l]:], op.size), op.size)
		}
		w.put(in, r, lanes)
		rest &^= lanes
	}
}

// put writes the registers of a store to w.at.
func (w *warp) put(in *instr, r *region, m uint32) {
	op := in.mem
	for i, s := range in.rows {
		from, data := &w.regs[s], r.data[uint64(i)*op.size:]
		for l := lowest(m); l < bits.Len32(m); l++ {
			if m>>l&1 != 0 {
				put(data[w.at[l]:], op.size, from[l])
			}
		}
	}
	for l := lowest(m); l < bits.Len32(m) && r.written != nil; l++ {
		if m>>l&1 != 0 {
			r.mark(w.at[l], op.total)
		}
	}
}
