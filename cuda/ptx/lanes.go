package ptx

import "math/bits"

func lowest(m uint32) int { return bits.TrailingZeros32(m) & 31 }

// syncWarp is bar.warp.sync, the only instruction that orders the memory accesses
// of a warp's lanes.
func syncWarp(w *warp, _ *instr, m uint32) {
	w.x.advance()
	if m == w.all {
		w.met = w.x.now
		return
	}
	if w.pairs == nil {
		w.pairs = new([32][32]stamp)
	}
	for i := m; i != 0; i &= i - 1 {
		for j := m; j != 0; j &= j - 1 {
			w.pairs[lowest(i)][lowest(j)] = w.x.now
		}
	}
}

// syncInstr decodes what comes last in a warp-wide instruction: the mask.
func (b *builder) syncMask(in *instr, o operand) {
	in.kind = instrSync
	in.mask = b.src(o, tB32)
}

// pairDst decodes d or d|p.
func (b *builder) pairDst(in *instr, o operand, t typ) {
	in.p = -1
	if o.kind == operandPair {
		in.p = b.predDst(o.items[1])
		o = o.items[0]
	}
	in.d = b.dst(o, t)
}

// decodeShuffle decodes shfl.sync.mode.b32 d|p, a, b, c, mask.
func decodeShuffle(b *builder, o *opcode) instr {
	var in instr
	sync, mode := o.take("sync"), o.oneOf("up", "down", "bfly", "idx")
	t := b.typeOf(o)
	if !sync || mode == "" || t != tB32 {
		panic(b.errorf("%s is not modelled", b.s.name))
	}
	b.count(5, 5)
	args := b.s.args
	b.pairDst(&in, args[0], t)
	for i, to := range []*int32{&in.a, &in.b, &in.c} {
		*to = b.src(args[i+1], tB32)
	}
	from := shuffles[mode]
	in.exec = func(w *warp, in *instr, m uint32) { shuffle(w, in, m, from) }
	b.syncMask(&in, args[4])
	return in
}

func shuffle(w *warp, in *instr, m uint32, source shuffleMode) {
	a, b, c := w.regs[in.a], &w.regs[in.b], &w.regs[in.c]
	d := &w.regs[in.d]
	var inRange uint32
	for n := m; n != 0; n &= n - 1 {
		l := lowest(n)
		from, ok := source.lane(l, int(b[l]), int(c[l]))
		if m>>from&1 == 0 {
			why := "is not in the mask"
			if w.live>>from&1 == 0 {
				why = "has exited or never was"
			}
			w.fail(in, l, Undefined, "shuffles from lane %d, which %s", from, why)
			return
		}
		if ok {
			inRange |= 1 << l
		}
		d[l] = a[from]
	}
	w.setPred(in.p, m, inRange)
}

type shuffleMode uint8

const (
	shuffleUp shuffleMode = iota
	shuffleDown
	shuffleFly
	shuffleIndex
)

var shuffles = map[string]shuffleMode{"up": shuffleUp, "down": shuffleDown, "bfly": shuffleFly, "idx": shuffleIndex}

// lane is the lane that lane l reads from, and whether it is within bounds; where it is
// not, it is l itself.
func (mode shuffleMode) lane(l, b, c int) (int, bool) {
	segment, clamp := c>>8&31, c&31
	b &= 31
	low := l & segment
	high := low | clamp&^segment
	from, ok := 0, false
	switch mode {
	case shuffleUp:
		from = l - b
		ok = from >= high
	case shuffleDown:
		from = l + b
		ok = from <= high
	case shuffleFly:
		from = l ^ b
		ok = from <= high
	default:
		from = low | b&^segment
		ok = from <= high
	}
	if !ok {
		return l, false
	}
	return from, true
}

// decodeVote decodes vote.sync.mode p, a, mask.
func decodeVote(b *builder, o *opcode) instr {
	in := instr{p: -1}
	sync, mode := o.take("sync"), o.oneOf("all", "any", "uni", "ballot")
	t := b.typeOf(o)
	if !sync || mode == "" || (mode == "ballot") != (t == tB32) || t != tB32 && t != tPred {
		panic(b.errorf("%s is not modelled", b.s.name))
	}
	b.count(3, 3)
	args := b.s.args
	if mode == "ballot" {
		in.d = b.dst(args[0], t)
	} else {
		in.p = b.predDst(args[0])
	}
	p := b.pred(args[1])
	in.exec = func(w *warp, in *instr, m uint32) {
		v := p.lanes(w) & m
		if mode == "ballot" {
			w.each(in, m, func(int, uint64, uint64, uint64) uint64 { return uint64(v) })
			return
		}
		yes := mode == "all" && v == m || mode == "any" && v != 0 || mode == "uni" && (v == 0 || v == m)
		w.setPred(in.p, m, everyLane(yes))
	}
	b.syncMask(&in, args[2])
	return in
}

func everyLane(yes bool) uint32 {
	if yes {
		return fullMask
	}
	return 0
}

// decodeMatch decodes match.any.sync and match.all.sync.
func decodeMatch(b *builder, o *opcode) instr {
	var in instr
	sync, mode := o.take("sync"), o.oneOf("any", "all")
	t := b.typeOf(o)
	if !sync || mode == "" || !t.oneOf(tB32, tB64) {
		panic(b.errorf("%s is not modelled", b.s.name))
	}
	b.count(3, 3)
	args := b.s.args
	b.pairDst(&in, args[0], tB32)
	in.a = b.src(args[1], t)
	in.exec = func(w *warp, in *instr, m uint32) {
		a := w.regs[in.a]
		all := uint32(0)
		w.each(in, m, func(l int, _, _, _ uint64) uint64 {
			var equal uint32
			for n := m; n != 0; n &= n - 1 {
				if a[lowest(n)] == a[l] {
					equal |= 1 << lowest(n)
				}
			}
			if mode == "any" {
				return uint64(equal)
			}
			if all = everyLane(equal == m); all == 0 {
				return 0
			}
			return uint64(m)
		})
		w.setPred(in.p, m, all)
	}
	b.syncMask(&in, args[2])
	return in
}

// decodeRedux decodes redux.sync.op.type d, a, mask.
func decodeRedux(b *builder, o *opcode) instr {
	var in instr
	sync, name := o.take("sync"), o.oneOf("add", "min", "max", "and", "or", "xor")
	t := b.typeOf(o)
	op := intOps[name]
	if !sync || name == "" || t.bits() != 32 || op.bits != (t == tB32) || t.kind() > kindInt {
		panic(b.errorf("%s is not modelled", b.s.name))
	}
	b.count(3, 3)
	args := b.s.args
	in.d = b.dst(args[0], t)
	in.a = b.src(args[1], t)
	combine := op.row(t)
	in.exec = func(w *warp, in *instr, m uint32) {
		var sum, next row
		a := &w.regs[in.a]
		for n, first := m, true; n != 0; n, first = n&(n-1), false {
			next[0] = a[lowest(n)]
			if first {
				sum[0] = next[0]
			} else {
				combine(&sum, &sum, &next, &next)
			}
		}
		w.each(in, m, func(int, uint64, uint64, uint64) uint64 { return sum[0] })
	}
	b.syncMask(&in, args[2])
	return in
}

// decodeActiveMask decodes activemask: the lanes that happen to run together.
func decodeActiveMask(b *builder, o *opcode) instr {
	t := b.typeOf(o)
	in := b.rowsOf(t)
	in.kind = instrExec
	in.exec = func(w *warp, in *instr, m uint32) {
		w.each(in, m, func(int, uint64, uint64, uint64) uint64 { return uint64(m) })
	}
	return in
}

// decodeElect decodes elect.sync d|p, mask: the lowest lane leads.
func decodeElect(b *builder, o *opcode) instr {
	var in instr
	if !o.take("sync") {
		panic(b.errorf("%s is not modelled", b.s.name))
	}
	b.count(2, 2)
	b.pairDst(&in, b.s.args[0], tB32)
	in.exec = func(w *warp, in *instr, m uint32) {
		leader := lowest(m)
		w.each(in, m, func(int, uint64, uint64, uint64) uint64 { return uint64(leader) })
		w.setPred(in.p, m, 1<<leader)
	}
	b.syncMask(&in, b.s.args[1])
	return in
}
