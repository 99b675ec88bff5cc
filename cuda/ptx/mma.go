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

// factor is an operand of a product, with its binary exponent.
type factor struct {
	v   float64
	exp int
}

// noExponent is the exponent of 0, below that of every product.
const noExponent = -1 << 12

func factorOf(v float64) factor {
	if v == 0 {
		return factor{v, noExponent}
	}
	return factor{v, int(math.Float64bits(v)>>52&0x7ff) - 1023}
}

// sum returns c plus the products of a and b, as one step of the tensor core gives it. All factors
// are finite.
func (t tensorCore) sum(c float64, a, b []factor) float64 {
	if c-c != 0 { // the products before have overflowed
		return c
	}
	top := factorOf(c).exp
	b = b[:len(a)]
	for i := range a {
		top = max(top, a[i].exp+b[i].exp)
	}
	if top <= noExponent/2 {
		return c
	}
	last := top - 23 - t.extra // the exponent of the last bit that is kept
	scale := math.Float64frombits(uint64(1023-last) << 52)
	sum := int64(c * scale)
	for i := range a {
		sum += int64(a[i].v * b[i].v * scale)
	}
	return truncated32(float64(sum) * math.Float64frombits(uint64(1023+last)<<52))
}

// truncated32 returns v cut off to f32, toward zero; beyond the largest f32 it returns infinity.
func truncated32(v float64) float64 {
	b := math.Float64bits(v)
	if exp := b >> 52 & 0x7ff; exp-(1023-126) < 254 { // of a normal f32
		return math.Float64frombits(b &^ (1<<29 - 1))
	}
	if math.Abs(v) > math.MaxFloat32 {
		return math.Inf(int(b>>63)*-2 + 1)
	}
	return float64(math.Float32frombits(uint32(formats[tF32].round(v, roundZero))))
}

// matrices are mma's operands; b's columns lie together.
type matrices struct {
	a       [16][16]factor
	b       [8][16]factor
	c       [16][8]float64
	special bool // an element of a or b is infinite or NaN
}

// run multiplies as the tensor cores of the launch's GPU do.
func (op *mmaOp) run(w *warp) {
	var x matrices
	op.gather(w, &x)
	t := tensorCoreOf(w.x.l.Capability)
	terms := min(op.depth, t.terms*op.packed/2)
	for i := range x.c {
		for j, c := range x.c[i] {
			if plain := c; x.special || c-c != 0 {
				for k, f := range x.a[i][:op.depth] {
					plain += f.v * x.b[j][k].v
				}
				if plain-plain != 0 {
					x.c[i][j] = plain
					continue
				}
			}
			for k := 0; k < op.depth; k += terms {
				c = t.sum(c, x.a[i][k:k+terms], x.b[j][k:k+terms])
			}
			x.c[i][j] = c
		}
	}
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
	for l := range 32 {
		group, column := l/4, l%4*op.packed
		for i, r := range op.a {
			at := column + i/2*4*op.packed
			op.unpack(w.regs[r][l], x.a[group+i%2*8][at:], x)
		}
		for i, r := range op.b {
			op.unpack(w.regs[r][l], x.b[group][column+i*4*op.packed:], x)
		}
		for half := range 2 {
			to := x.c[group+8*half][l%4*2:]
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

// unpack reads a register's elements into a row of x. A tf32's lower bits are ignored.
func (op *mmaOp) unpack(v uint64, to []factor, x *matrices) {
	elements := [2]float32{}
	switch op.in {
	case tTF32:
		elements[0] = math.Float32frombits(uint32(v) &^ 0x1fff)
	case tF16:
		elements = [2]float32{half16(v), half16(v >> 16)}
	default:
		elements = [2]float32{bfloat(v & 0xffff), bfloat(v >> 16 & 0xffff)}
	}
	for i, e := range elements[:op.packed] {
		to[i] = factorOf(float64(e))
		x.special = x.special || e-e != 0
	}
}
