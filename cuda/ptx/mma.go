package ptx

import "math"

// A matrixShape is a shape of mma.sync with 16 rows and 8 columns: how deep it
// is, how many registers a and b take, and how many elements each holds.
type matrixShape struct {
	depth, a, b, packed int
	types               []typ
}

var matrixShapes = map[string][]matrixShape{
	"m16n8k16": {{16, 4, 2, 2, []typ{tF16, tBF16}}},
	"m16n8k8":  {{8, 2, 1, 2, []typ{tF16, tBF16}}, {8, 4, 2, 1, []typ{tTF32}}},
	"m16n8k4":  {{4, 2, 1, 1, []typ{tTF32}}},
}

// An mmaOp is a decoded mma.sync.
type mmaOp struct {
	matrixShape
	in, acc    typ
	d, a, b, c []int32
}

// decodeMMA decodes mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype.
func decodeMMA(b *builder, o *opcode) instr {
	var in instr
	ok := allLanes(o, &in)
	shapes := matrixShapes[o.oneOf("m16n8k16", "m16n8k8", "m16n8k4")]
	ok = ok && o.take("row") && o.take("col")
	d, ok1 := o.typ()
	x, ok2 := o.typ()
	y, ok3 := o.typ()
	c, ok4 := o.typ()
	op := &mmaOp{in: x, acc: d}
	for _, s := range shapes {
		if x.oneOf(s.types...) {
			op.matrixShape = s
		}
	}
	if !ok || !ok1 || !ok2 || !ok3 || !ok4 || x != y || c != d || op.depth == 0 || d != tF32 && (d != tF16 || x != tF16) {
		panic(b.errorf("%s is not modelled", b.s.name))
	}
	b.count(4, 4)
	args, t, n := b.s.args, tF32, 4
	if d == tF16 {
		t, n = tB32, 2
	}
	for _, r := range []struct {
		to    *[]int32
		arg   operand
		n     int
		t     typ
		write bool
	}{{&op.d, args[0], n, t, true}, {&op.a, args[1], op.matrixShape.a, tB32, false}, {&op.b, args[2], op.matrixShape.b, tB32, false}, {&op.c, args[3], n, t, false}} {
		*r.to = b.registers32(r.arg, r.n, r.t, r.write)
	}
	in.exec = func(w *warp, in *instr, m uint32) {
		if w.x.tally != nil {
			w.x.tally.multiplied(op)
		}
		op.run(w)
	}
	return in
}

// tensorCore says how a GPU's tensor cores sum the products of an mma: up to terms of them at a
// time (half as many of tf32), and the accumulator, are aligned to the largest exponent and cut off
// extra bits below the 24 of an f32. Their sum is exact and truncated to f32, toward zero.
//
// The structure is measured in PeerJ CS 330 and arXiv 2510.15884, models of V100 to B200 are in
// arXiv 2512.07004. The widths here are a first model of these GPUs.
type tensorCore struct{ terms, extra int }

// tensorCoreOf returns the model of a compute capability.
func tensorCoreOf(capability [2]int) tensorCore {
	if capability[0] >= 9 {
		return tensorCore{terms: 16, extra: 2}
	}
	return tensorCore{terms: 8, extra: 1}
}

// factor is an operand of a product. Its binary exponent counts from -bias, so that 0, which has
// none, is the zero factor, and every product with it is below all others.
type factor struct {
	v   float64
	exp int
}

const bias = 1 << 12

// quad is four factors that lie side by side along k.
type quad [4]factor

func factorOf(v float64) factor {
	if v == 0 {
		return factor{}
	}
	return factor{v, int(math.Float64bits(v)>>52&0x7ff) - 1023 + bias}
}

// sum returns c plus the products of a and b, as one step of the tensor core gives it. All factors
// are finite.
func (t tensorCore) sum(c float64, a, b []quad) float64 {
	if c-c != 0 { // the products before have overflowed
		return c
	}
	top := factorOf(c).exp + bias
	b = b[:len(a)]
	for i := range a {
		x, y := &a[i], &b[i]
		top = max(top, max(x[0].exp+y[0].exp, x[1].exp+y[1].exp), max(x[2].exp+y[2].exp, x[3].exp+y[3].exp))
	}
	if top -= 2 * bias; top < -bias/2 { // of zeros alone
		return c
	}
	last := top - 23 - t.extra // the exponent of the last bit that is kept
	scale := math.Float64frombits(uint64(1023-last) << 52)
	sum := int64(c * scale)
	for i := range a {
		x, y := &a[i], &b[i]
		sum += int64(x[0].v*y[0].v*scale) + int64(x[1].v*y[1].v*scale)
		sum += int64(x[2].v*y[2].v*scale) + int64(x[3].v*y[3].v*scale)
	}
	return truncated32(float64(sum) * math.Float64frombits(uint64(1023+last)<<52))
}

// truncated32 returns v cut off to f32, toward zero; beyond the largest f32 it returns infinity.
func truncated32(v float64) float64 {
	b := math.Float64bits(v)
	if exp := b >> 52 & 0x7ff; exp-(1023-126) < 254 { // of a normal f32
		return math.Float64frombits(b &^ (1<<29 - 1))
	}
	return truncatedOutside(v)
}

// truncatedOutside is truncated32 for what is not a normal f32.
func truncatedOutside(v float64) float64 {
	if math.Abs(v) > math.MaxFloat32 {
		return math.Copysign(math.Inf(1), v)
	}
	return float64(math.Float32frombits(uint32(formats[tF32].round(v, roundZero))))
}

// matrices are mma's operands; b's columns lie together.
type matrices struct {
	a        [16][4]quad
	b        [8][4]quad
	c        [16][8]float64
	aUse     uint32 // rows of a with an element that is not 0
	bUse     uint32 // and columns of b
	infinite bool   // an element of a or b is infinite or NaN
}

// run multiplies as the tensor cores of the launch's GPU do.
func (op *mmaOp) run(w *warp) {
	var x matrices
	op.gather(w, &x)
	if x.infinite {
		x.spread()
	}
	t := tensorCoreOf(w.x.l.Capability)
	depth := op.depth / 4
	step := min(depth, t.terms*op.packed/8)
	for i := range x.c {
		if x.aUse>>i&1 == 0 {
			continue // only zeros are added
		}
		c := &x.c[i]
		for k := 0; k < depth; k += step {
			a := x.a[i][k : k+step]
			for j := range c {
				if x.bUse>>j&1 != 0 {
					c[j] = t.sum(c[j], a, x.b[j][k:k+step])
				}
			}
		}
	}
	op.scatter(w, &x)
}

// spread makes those elements of c infinite or NaN that become so.
func (x *matrices) spread() {
	for i := range x.c {
		for j := range x.c[i] {
			c := x.c[i][j]
			for k := range 16 {
				c += x.a[i][k/4][k%4].v * x.b[j][k/4][k%4].v
			}
			if c-c != 0 {
				x.c[i][j] = c
			}
		}
	}
}

// scatter writes the result's fragments.
func (op *mmaOp) scatter(w *warp, x *matrices) {
	for l := range 32 {
		row, column := l/4, l%4*2
		for half := range 2 {
			v := x.c[row+8*half][column : column+2]
			if op.acc == tF16 {
				f := formats[tF16]
				w.regs[op.d[half]][l] = f.round(v[0], roundEven) | f.round(v[1], roundEven)<<16
				continue
			}
			w.regs[op.d[2*half]][l] = bits32(float32(v[0]))
			w.regs[op.d[2*half+1]][l] = bits32(float32(v[1]))
		}
	}
}

// gather reads the fragments. Register i of a holds row l/4, or l/4+8 if i is
// odd; each register holds op.packed neighbours of l%4, and every second
// register of a, every one of b, the next four lanes' worth in depth.
func (op *mmaOp) gather(w *warp, x *matrices) {
	for i, r := range op.a {
		half := i % 2 * 8
		x.aUse |= op.unpack(x, &w.regs[r], x.a[half:], i/2*4*op.packed) << half
	}
	for i, r := range op.b {
		x.bUse |= op.unpack(x, &w.regs[r], x.b[:], i*4*op.packed)
	}
	for l := range 32 {
		for half := range 2 {
			to := x.c[l/4+8*half][l%4*2:]
			if op.acc == tF16 {
				v := w.regs[op.c[half]][l]
				to[0], to[1] = float64(half16(v)), float64(half16(v>>16))
				continue
			}
			to[0] = float64(float32of(w.regs[op.c[2*half]][l]))
			to[1] = float64(float32of(w.regs[op.c[2*half+1]][l]))
		}
	}
}

// unpack reads the lanes' elements of a register into eight rows, from a column on, and returns a
// bit for each row to which it gave one that is not 0.
func (op *mmaOp) unpack(x *matrices, from *row, to [][4]quad, column int) (use uint32) {
	for l, v := range from {
		if v == 0 {
			continue
		}
		low, high := op.elements(v)
		k := column + l%4*op.packed
		q := &to[l/4][k/4&3]
		q[k&3] = factorOf(low)
		if op.packed == 2 {
			q[k&3|1] = factorOf(high)
		}
		if low != 0 || high != 0 {
			use |= 1 << (l / 4)
		}
		x.infinite = x.infinite || low-low+(high-high) != 0
	}
	return use
}

// elements are those of a register. A tf32's lower bits are ignored.
func (op *mmaOp) elements(v uint64) (low, high float64) {
	switch op.in {
	case tTF32:
		return float64(math.Float32frombits(uint32(v) &^ 0x1fff)), 0
	case tF16:
		return float64(half16(v)), float64(half16(v >> 16))
	}
	return float64(bfloat(v & 0xffff)), float64(bfloat(v >> 16 & 0xffff))
}
