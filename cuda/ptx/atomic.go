package ptx

import (
	"math"
	"math/bits"
)

// An atomicFunc computes a location's new value from its old one.
type atomicFunc func(old, b, c uint64) uint64

// atomicBits are operations that are the same for all types of a size.
var atomicBits = map[string]atomicFunc{
	"and":  func(old, b, _ uint64) uint64 { return old & b },
	"or":   func(old, b, _ uint64) uint64 { return old | b },
	"xor":  func(old, b, _ uint64) uint64 { return old ^ b },
	"exch": func(_, b, _ uint64) uint64 { return b },
	"cas": func(old, b, c uint64) uint64 {
		if old == b {
			return c
		}
		return old
	},
	"inc": func(old, b, _ uint64) uint64 {
		if old >= b {
			return 0
		}
		return old + 1
	},
	"dec": func(old, b, _ uint64) uint64 {
		if old == 0 || old > b {
			return b
		}
		return old - 1
	},
}

// decodeAtomic decodes atom and red.
func decodeAtomic(b *builder, o *opcode) instr {
	in := instr{kind: instrExec, exec: runAtomic}
	op := b.newMemOp(spaceGeneric, 0)
	op.strong = true
	in.mem = op
	sem := o.oneOf("relaxed", "acquire", "release", "acq_rel")
	scope := takeScope(o)
	op.release = (sem == "release" || sem == "acq_rel") && scope != "cta"
	op.space, _ = takeSpace(o)
	policy := takeHints(o)
	name := o.oneOf("and", "or", "xor", "exch", "cas", "inc", "dec", "add", "min", "max")
	o.take("noftz")
	t := b.typeOf(o)
	op.size = uint64(t.bytes())
	op.total = op.size
	if op.space > spaceShared {
		panic(b.errorf("an atomic in %s memory", op.space))
	}
	f := atomicOf(name, t, op.space)
	if f == nil {
		panic(b.errorf("%s.%s has no type %s", o.name, name, t))
	}
	args := b.s.args
	n := 2
	if name == "cas" {
		n = 3
	}
	if o.name == "atom" {
		b.policyOperand(policy, n+1)
		in.d = b.dst(args[0], t)
		args = args[1:]
	} else {
		b.policyOperand(policy, n)
	}
	b.accessAddress(&in, args[0])
	in.b = b.src(args[1], t)
	if name == "cas" {
		in.c = b.src(args[2], t)
	}
	op.atomic = f
	return in
}

// atomicOf returns the operation on a type, or nil.
func atomicOf(name string, t typ, s space) atomicFunc {
	switch name {
	case "and", "or", "xor":
		if t.oneOf(tB32, tB64) {
			return atomicBits[name]
		}
	case "exch", "cas":
		if t.oneOf(tB32, tB64) || name == "cas" && t == tB16 {
			return atomicBits[name]
		}
	case "inc", "dec":
		if t == tU32 {
			return atomicBits[name]
		}
	case "add":
		return atomicAdd(t, s)
	case "min", "max":
		if t.integer() && t.bits() >= 32 {
			return atomicInt(intOps[name], t)
		}
	}
	return nil
}

func atomicInt(op intOp, t typ) atomicFunc {
	shift := 64 - t.bits()
	if t.signed() {
		return func(old, b, _ uint64) uint64 {
			return uint64(op.s(int64(old<<shift)>>shift, int64(b<<shift)>>shift, 0)) & (^uint64(0) >> shift)
		}
	}
	return func(old, b, _ uint64) uint64 { return op.u(old, b, 0) & (^uint64(0) >> shift) }
}

// atomicAdd adds; in f32, PTX flushes subnormals in global memory only.
func atomicAdd(t typ, s space) atomicFunc {
	switch t {
	case tU32, tS32, tU64:
		return atomicInt(intOp{u: intOps["add"].u, s: func(a, b, _ int64) int64 { return a + b }}, t)
	case tF32:
		if s == spaceShared {
			return func(old, b, _ uint64) uint64 { return bits32(float32of(old) + float32of(b)) }
		}
		return func(old, b, _ uint64) uint64 {
			return bits32(flush(flush(float32of(old)) + flush(float32of(b))))
		}
	case tF64:
		return func(old, b, _ uint64) uint64 {
			return bits64(math.Float64frombits(old) + math.Float64frombits(b))
		}
	case tF16, tBF16, tF16x2, tBF16x2:
		read, f := halfReader(t), formats[t]
		one := func(a, b uint64) uint64 { return f.round(float64(read(a))+float64(read(b)), roundEven) }
		if t.bits() == 16 {
			return func(old, b, _ uint64) uint64 { return one(old, b) }
		}
		return func(old, b, _ uint64) uint64 { return one(old, b) | one(old>>16, b>>16)<<16 }
	}
	return nil
}

// runAtomic runs atom and red, lane by lane.
func runAtomic(w *warp, in *instr, m uint32) {
	op := in.mem
	if w.x.l.Dependent && !w.awaited(in, m, op) {
		return
	}
	d, base, b, c := &w.regs[in.d], &w.regs[in.a], &w.regs[in.b], &w.regs[in.c]
	if w.x.tally != nil {
		w.x.tally.access(w, op, base, in.offset, m, op.size, false)
		w.x.tally.access(w, op, base, in.offset, m, op.size, true)
	}
	for ; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		addr := op.addr(base[l], in.offset)
		r, off := w.locate(in, l, op, op.space, addr, op.size, "updates")
		if r == nil || !w.writable(in, l, r, off, op.size) || !w.readable(in, l, r, off, op.size, op.space, addr) ||
			!w.noteSync(in, l, r, off, op.size, true, true) {
			return
		}
		p := r.data[off : off+op.size]
		old := get(p, op.size)
		if w.x.tally != nil && r != w.x.shared {
			w.x.tally.keep(r, off, old, op.size)
		}
		w.x.remember(r, off, op.size)
		put(p, op.size, op.atomic(old, b[l], c[l]))
		d[l] = old
	}
}

// decodeFence decodes membar and fence.
func decodeFence(b *builder, o *opcode) instr {
	in := instr{kind: instrExec, exec: func(*warp, *instr, uint32) {}}
	o.oneOf("sc", "acq_rel")
	scope := o.oneOf("cta", "cluster", "gpu", "gl", "sys")
	if scope == "" {
		panic(b.errorf("a fence without a scope"))
	}
	if scope == "gpu" || scope == "gl" || scope == "sys" {
		in.exec = func(w *warp, in *instr, m uint32) {
			w.x.advance()
			for ; m != 0; m &= m - 1 {
				w.x.fence(w.thread(bits.TrailingZeros32(m)))
			}
		}
	}
	b.count(0, 0)
	return in
}
