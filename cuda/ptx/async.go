package ptx

import "math/bits"

// An asyncCopy is a cp.async that has been issued. Its bytes have been read;
// they appear in shared memory when its thread waits for them, and until then
// shared memory there is unwritten.
type asyncCopy struct {
	to    uint64
	group int
	data  [16]byte
	size  uint8
}

// asyncState is a thread's copies, oldest first, and how many groups it has
// committed. A copy's group is the number of those before it.
type asyncState struct {
	copies []asyncCopy
	groups int
}

// decodeAsync decodes cp.async and the waits for it.
func decodeAsync(b *builder, o *opcode) instr {
	in := instr{kind: instrExec}
	if !o.take("async") || hasSpace(o, "bulk") || hasSpace(o, "mbarrier") {
		panic(b.errorf("%s is not modelled", b.s.name))
	}
	switch o.oneOf("commit_group", "wait_group", "wait_all") {
	case "commit_group":
		in.exec = commitCopies
		b.count(0, 0)
		return in
	case "wait_group":
		b.count(1, 1)
		if in.imm = b.s.args[0].bits; b.s.args[0].kind != operandInt || in.imm > 1<<16 {
			panic(b.errorf("wait_group needs a number of groups"))
		}
		in.exec = waitCopies
		return in
	case "wait_all":
		in.exec = func(w *warp, in *instr, m uint32) {
			commitCopies(w, in, m)
			waitCopies(w, in, m)
		}
		b.count(0, 0)
		return in
	}
	return decodeCopy(b, o, in)
}

// decodeCopy decodes cp.async.ca.shared.global [a], [b], size{, source size}.
func decodeCopy(b *builder, o *opcode, in instr) instr {
	cache := o.oneOf("ca", "cg")
	to, ok := takeSpace(o)
	from, ok2 := takeSpace(o)
	policy := takeHints(o)
	if !ok || !ok2 || cache == "" || to != spaceShared || from != spaceGlobal {
		panic(b.errorf("cp.async has no such form"))
	}
	args := b.s.args
	if policy && len(args) > 3 {
		args = args[:len(args)-1]
	}
	if len(args) != 3 && len(args) != 4 {
		panic(b.errorf("%d operands", len(args)))
	}
	size := args[2].bits
	if args[2].kind != operandInt || size != 16 && (cache != "ca" || size != 4 && size != 8) {
		panic(b.errorf("cp.async.%s of %d bytes", cache, size))
	}
	source := instr{operands: operands{mem: b.newMemOp(spaceGlobal, size)}}
	b.accessAddress(&source, args[1])
	source.mem.early = cache == "cg"
	in.mem = b.newMemOp(spaceShared, size)
	b.accessAddress(&in, args[0])
	in.mem.from, in.b, in.imm, in.exec = source.mem, source.a, source.offset, startCopies
	in.c = b.value(size)
	if len(args) == 4 {
		in.c = b.src(args[3], tU32)
		return in
	}
	return in
}

// startCopies reads the source, and takes the destination's bytes away until
// the copy is waited for.
func startCopies(w *warp, in *instr, m uint32) {
	to, from, sizes := &w.regs[in.a], &w.regs[in.b], &w.regs[in.c]
	n := in.mem.total
	if w.x.l.Dependent && !w.awaited(in, m, in.mem.from) {
		return
	}
	if w.x.tally != nil {
		w.x.tally.copies(w, in, m)
	}
	for lanes := m; lanes != 0; lanes &= lanes - 1 {
		l := bits.TrailingZeros32(lanes) & 31
		if sizes[l] > n {
			w.fail(in, l, Undefined, "copies %d bytes of %d", sizes[l], n)
			return
		}
		c := asyncCopy{size: uint8(n), group: w.async[l].groups}
		if !w.readSource(in, l, in.mem.from.addr(from[l], in.imm), sizes[l], c.data[:]) {
			return
		}
		r, off := w.locate(in, l, in.mem, spaceShared, in.mem.addr(to[l], in.offset), n, "writes")
		if r == nil {
			return
		}
		if w.at[l] = off; !w.noteWrites(in, r, 1<<l, 0, n) {
			return
		}
		r.written.clear(off, n)
		c.to = off
		w.async[l].copies = append(w.async[l].copies, c)
	}
}

// readSource reads the n bytes of a copy's source that are asked for.
func (w *warp) readSource(in *instr, l int, addr, n uint64, data []byte) bool {
	if n == 0 {
		return true // the address need not be one
	}
	if addr&(in.mem.total-1) != 0 {
		w.fail(in, l, Misaligned, "reads %d bytes at %#x, which is not a multiple of %d", n, addr, in.mem.total)
		return false
	}
	for n > 0 {
		part := uint64(1) << (bits.Len64(n) - 1)
		r, off := w.locate(in, l, in.mem.from, spaceGlobal, addr, part, "reads")
		if r == nil || !w.readable(in, l, r, off, part, spaceGlobal, addr) {
			return false
		}
		if w.early>>l&1 != 0 && r.stored.Load() {
			w.fail(in, l, NotAwaited, "copies what a launch has written before griddepcontrol.wait, and its launch overlaps with the one before")
			return false
		}
		if w.at[l] = off; !w.noteReads(in, r, 1<<l, part) {
			return false
		}
		copy(data, r.data[off:off+part])
		data, addr, n = data[part:], addr+part, n-part
	}
	return true
}

func commitCopies(w *warp, _ *instr, m uint32) {
	for ; m != 0; m &= m - 1 {
		w.async[bits.TrailingZeros32(m)&31].groups++
	}
}

// waitCopies completes all groups but the latest in.imm.
func waitCopies(w *warp, in *instr, m uint32) {
	r := w.x.shared
	for ; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		s := &w.async[l]
		done := 0
		for done < len(s.copies) && s.copies[done].group+int(in.imm) < s.groups {
			c := &s.copies[done]
			data := c.data[:c.size]
			if w.at[l] = c.to; !w.noteWrites(in, r, 1<<l, 0, uint64(c.size)) {
				return
			}
			copy(r.data[c.to:], data)
			r.written.set(c.to, uint64(c.size))
			done++
		}
		s.copies = append(s.copies[:0], s.copies[done:]...)
	}
}

// inFlight reports whether a copy to the byte has been issued and not waited
// for.
func (x *execution) inFlight(r *region, off uint64) bool {
	if r != x.shared {
		return false
	}
	for i := range x.warps {
		for l := range x.warps[i].async {
			for _, c := range x.warps[i].async[l].copies {
				if off-c.to < uint64(c.size) {
					return true
				}
			}
		}
	}
	return false
}
