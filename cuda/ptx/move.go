package ptx

import "math/bits"

func copyRow(d, a, _, _ *row) { *d = *a }

// decodeMove decodes mov: of a register, a number, an address or a predicate,
// and between one register and several narrower ones.
func decodeMove(b *builder, o *opcode) instr {
	t := b.typeOf(o)
	b.count(2, 2)
	dst, src := b.s.args[0], b.s.args[1]
	if n, ok := clocks[src.name]; ok && src.kind == operandName {
		return moveClock(b, t, n)
	}
	switch {
	case t == tPred:
		return movePred(b, dst, src)
	case src.kind == operandVector:
		return movePack(b, t, dst, src.items)
	case dst.kind == operandVector:
		return moveUnpack(b, t, dst.items, src)
	}
	in := b.rowsOf(t, t)
	in.row = copyRow
	return in
}

func moveClock(b *builder, t typ, n int) instr {
	in := instr{kind: instrExec}
	in.d = b.dst(b.s.args[0], t)
	in.exec = func(w *warp, in *instr, m uint32) {
		v := uint64(w.steps)
		if n < 64 {
			v = v & (1<<n - 1)
		}
		w.each(in, m, func(int, uint64, uint64, uint64) uint64 { return v })
	}
	return in
}

func movePred(b *builder, dst, src operand) instr {
	in := instr{kind: instrExec}
	in.p = b.predDst(dst)
	p := b.pred(src)
	in.exec = func(w *warp, in *instr, m uint32) { w.setPred(in.p, m, p.lanes(w)) }
	return in
}

// part returns the type of one of n pieces.
func (b *builder) piece(t typ, n int) typ {
	if n > 0 && t.bits()%n == 0 {
		switch t.bits() / n {
		case 8:
			return tB8
		case 16:
			return tB16
		case 32:
			return tB32
		}
	}
	panic(b.errorf("%d pieces of type %s", n, t))
}

// movePack decodes mov.b64 d, {a, b}: the first piece is the lowest.
func movePack(b *builder, t typ, dst operand, items []operand) instr {
	in := instr{kind: instrExec}
	p := b.piece(t, len(items))
	in.d = b.dst(dst, t)
	for _, item := range items {
		in.rows = append(in.rows, b.src(item, p))
	}
	size := p.bits()
	in.exec = func(w *warp, in *instr, m uint32) {
		w.each(in, m, func(l int, _, _, _ uint64) uint64 {
			var v uint64
			for i, r := range in.rows {
				v |= w.regs[r][l] << (i * size)
			}
			return v
		})
	}
	return in
}

func moveUnpack(b *builder, t typ, items []operand, src operand) instr {
	in := instr{kind: instrExec}
	p := b.piece(t, len(items))
	for _, item := range items {
		in.rows = append(in.rows, b.dst(item, p))
	}
	in.a = b.src(src, t)
	size := p.bits()
	mask := uint64(1)<<size - 1
	in.exec = func(w *warp, in *instr, m uint32) {
		a := w.regs[in.a] // a copy: it may be among the pieces
		for i, r := range in.rows {
			d := &w.regs[r]
			for n := m; n != 0; n &= n - 1 {
				l := bits.TrailingZeros32(n) & 31
				d[l] = a[l] >> (i * size) & mask
			}
		}
	}
	return in
}

// decodeAddressConversion decodes cvta and cvta.to: between a space's
// addresses and generic ones.
func decodeAddressConversion(b *builder, o *opcode) instr {
	to := o.take("to")
	s, ok := takeSpace(o)
	t := b.typeOf(o)
	if !ok || t != tU64 {
		panic(b.errorf("cvta has no such form"))
	}
	if s == spaceParam && len(b.stack) > 1 {
		s = spaceLocal // parameters of calls
	}
	in := b.rowsOf(t, t)
	window := windows[s]
	if to {
		window = -window
	}
	in.row = func(d, a, _, _ *row) {
		for l := range d {
			d[l] = a[l] + window
		}
	}
	return in
}

// decodeIsSpace decodes isspacep p, a.
func decodeIsSpace(b *builder, o *opcode) instr {
	in := instr{kind: instrExec}
	s, ok := takeSpace(o)
	if !ok {
		panic(b.errorf("isspacep has no such form"))
	}
	b.count(2, 2)
	in.p = b.predDst(b.s.args[0])
	in.a = b.src(b.s.args[1], tB64)
	in.exec = func(w *warp, in *instr, m uint32) {
		var r uint32
		for l, addr := range w.regs[in.a] {
			if at, _ := generic(addr); at == s {
				r |= 1 << l
			}
		}
		w.setPred(in.p, m, r)
	}
	return in
}

// takeSpace takes the first modifier that names a space.
func takeSpace(o *opcode) (space, bool) {
	for i, m := range o.mods {
		if s, ok := spaceByName[m]; ok {
			o.mods = append(o.mods[:i:i], o.mods[i+1:]...)
			return s, true
		}
	}
	return spaceGeneric, false
}
