package ptx

// allLanes makes the instruction one that all 32 lanes of a warp execute
// together.
func allLanes(o *opcode, in *instr) bool {
	in.kind, in.mask = instrSync, -1
	return o.take("sync") && o.take("aligned")
}

// registers32 decodes a vector of 32-bit registers.
func (b *builder) registers32(o operand, n int, t typ, write bool) []int32 {
	items := b.vectorItems(o, n)
	rows := make([]int32, n)
	for i, item := range items {
		if write {
			rows[i] = b.dst(item, t)
		} else {
			rows[i] = b.src(item, t)
		}
	}
	return rows
}

// decodeLoadMatrix decodes ldmatrix.sync.aligned.m8n8.x4{.trans}.shared.b16.
func decodeLoadMatrix(b *builder, o *opcode) instr {
	in := instr{exec: loadMatrix}
	ok := allLanes(o, &in) && o.take("m8n8")
	n := map[string]int{"x1": 1, "x2": 2, "x4": 4}[o.oneOf("x1", "x2", "x4")]
	if o.take("trans") {
		in.imm = 1
	}
	s, inSpace := takeSpace(o)
	t := b.typeOf(o)
	if !ok || n == 0 || t != tB16 || inSpace && s != spaceShared {
		panic(b.errorf("%s is not modelled", b.s.name))
	}
	b.count(2, 2)
	in.rows = b.registers32(b.s.args[0], n, tB32, true)
	in.mem = b.newMemOp(s, 16)
	b.accessAddress(&in, b.s.args[1])
	return in
}

// loadMatrix runs ldmatrix. Lane 8i+r has the address of row r of matrix i;
// lane l receives two neighbours of row l/4, or of column l/4 if transposed.
// The race detector sees the lane that receives as the one that reads.
func loadMatrix(w *warp, in *instr, m uint32) {
	var from [32]uint64
	base := &w.regs[in.a]
	r := w.x.shared
	if w.x.tally != nil {
		w.x.tally.access(w, in.mem, base, in.offset, uint32(1<<(8*len(in.rows))-1), 16, false)
	}
	for l := range 8 * len(in.rows) {
		addr := in.mem.addr(base[l], in.offset)
		at, off := w.locate(in, l, in.mem, in.mem.space, addr, 16, "reads")
		switch {
		case at == nil:
			return
		case at != r:
			w.fail(in, l, OutOfBounds, "reads a matrix at %#x, which is not in shared memory", addr)
			return
		case !w.readable(in, l, r, off, 16, spaceShared, off):
			return
		}
		from[l] = off
	}
	for i, d := range in.rows {
		if rows := from[8*i:]; in.imm != 0 {
			w.loadColumns(in, rows, d)
		} else {
			w.loadRows(in, rows, d)
		}
		if w.x.fault != nil {
			return
		}
	}
}

// loadRows gives each lane two neighbours of row l/4 of the matrix with these rows.
func (w *warp) loadRows(in *instr, rows []uint64, d int32) {
	r := w.x.shared
	for l := range w.at {
		w.at[l] = rows[l/4] + uint64(l%4)*4
	}
	if w.noteReads(in, r, fullMask, 4) {
		for l, off := range w.at {
			w.regs[d][l] = get(r.data[off:], 4)
		}
	}
}

// loadColumns gives each lane two neighbours of column l/4 of the matrix with these rows.
func (w *warp) loadColumns(in *instr, rows []uint64, d int32) {
	r := w.x.shared
	w.regs[d] = row{}
	for j := range 2 {
		for l := range w.at {
			w.at[l] = rows[l%4*2+j] + uint64(l/4)*2
		}
		if !w.noteReads(in, r, fullMask, 2) {
			return
		}
		for l, off := range w.at {
			w.regs[d][l] |= get(r.data[off:], 2) << (16 * j)
		}
	}
}

// decodeMoveMatrix decodes movmatrix.sync.aligned.m8n8.trans.b16 d, a.
func decodeMoveMatrix(b *builder, o *opcode) instr {
	var sync instr
	ok := allLanes(o, &sync) && o.take("m8n8") && o.take("trans")
	t := b.typeOf(o)
	if !ok || t != tB16 {
		panic(b.errorf("%s is not modelled", b.s.name))
	}
	in := b.rowsOf(tB32, tB32)
	in.kind, in.mask = sync.kind, sync.mask
	in.exec = func(w *warp, in *instr, m uint32) {
		a, d := w.regs[in.a], &w.regs[in.d]
		element := func(row, column int) uint64 { return a[row*4+column/2] >> (column % 2 * 16) & 0xffff }
		for l := range d {
			d[l] = element(l%4*2, l/4) | element(l%4*2+1, l/4)<<16
		}
	}
	return in
}
