package ptx

import "math"

// allLanes makes the instruction one that all 32 lanes of a warp execute
// together.
func allLanes(o *opcode, in *instr) bool {
	in.kind, in.mask = instrSync, -1
	return o.take("sync") && o.take("aligned")
}

// registers32 decodes a vector of 32-bit registers.
func (b *builder) registers32(o operand, n int, t typ, write bool) ([]int32, error) {
	items, err := b.vectorItems(o, n)
	if err != nil {
		return nil, err
	}
	rows := make([]int32, n)
	for i, item := range items {
		if write {
			rows[i], err = b.dst(item, t)
		} else {
			rows[i], err = b.src(item, t)
		}
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// decodeLoadMatrix decodes ldmatrix.sync.aligned.m8n8.x4{.trans}.shared.b16.
func decodeLoadMatrix(b *builder, o *opcode) (instr, error) {
	in := instr{exec: loadMatrix}
	ok := allLanes(o, &in) && o.take("m8n8")
	n := map[string]int{"x1": 1, "x2": 2, "x4": 4}[o.oneOf("x1", "x2", "x4")]
	if o.take("trans") {
		in.imm = 1
	}
	s, inSpace := takeSpace(o)
	t, err := b.typeOf(o)
	if err != nil {
		return in, err
	}
	if !ok || n == 0 || t != tB16 || inSpace && s != spaceShared {
		return in, b.errorf("%s is not modelled", b.s.name)
	}
	if err := b.count(2, 2); err != nil {
		return in, err
	}
	if in.rows, err = b.registers32(b.s.args[0], n, tB32, true); err != nil {
		return in, err
	}
	in.mem = b.newMemOp(s, 16)
	return in, b.accessAddress(&in, b.s.args[1])
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
		for l := range 32 {
			v, ok := w.matrixPair(in, l, from[8*i:8*i+8], in.imm != 0)
			if !ok {
				return
			}
			w.regs[d][l] = v
		}
	}
}

// matrixPair reads what lane l receives of the matrix with these rows.
func (w *warp) matrixPair(in *instr, l int, rows []uint64, transposed bool) (uint64, bool) {
	r := w.x.shared
	if !transposed {
		off := rows[l/4] + uint64(l%4)*4
		if !w.noteRead(in, l, r, off, 4, false) {
			return 0, false
		}
		return get(r.data[off:], 4), true
	}
	var v uint64
	for j := range 2 {
		off := rows[l%4*2+j] + uint64(l/4)*2
		if !w.noteRead(in, l, r, off, 2, false) {
			return 0, false
		}
		v |= get(r.data[off:], 2) << (16 * j)
	}
	return v, true
}

// decodeMoveMatrix decodes movmatrix.sync.aligned.m8n8.trans.b16 d, a.
func decodeMoveMatrix(b *builder, o *opcode) (instr, error) {
	var sync instr
	ok := allLanes(o, &sync) && o.take("m8n8") && o.take("trans")
	t, err := b.typeOf(o)
	if err != nil {
		return sync, err
	}
	if !ok || t != tB16 {
		return sync, b.errorf("%s is not modelled", b.s.name)
	}
	in, err := b.rowsOf(tB32, tB32)
	in.kind, in.mask = sync.kind, sync.mask
	in.exec = func(w *warp, in *instr, m uint32) {
		a, d := w.regs[in.a], &w.regs[in.d]
		element := func(row, column int) uint64 { return a[row*4+column/2] >> (column % 2 * 16) & 0xffff }
		for l := range d {
			d[l] = element(l%4*2, l/4) | element(l%4*2+1, l/4)<<16
		}
	}
	return in, err
}

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
func decodeMMA(b *builder, o *opcode) (instr, error) {
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
		return in, b.errorf("%s is not modelled", b.s.name)
	}
	if err := b.count(4, 4); err != nil {
		return in, err
	}
	args, t, n := b.s.args, tF32, 4
	if d == tF16 {
		t, n = tB32, 2
	}
	var err error
	for _, r := range []struct {
		to    *[]int32
		arg   operand
		n     int
		t     typ
		write bool
	}{{&op.d, args[0], n, t, true}, {&op.a, args[1], op.matrixShape.a, tB32, false}, {&op.b, args[2], op.matrixShape.b, tB32, false}, {&op.c, args[3], n, t, false}} {
		if *r.to, err = b.registers32(r.arg, r.n, r.t, r.write); err != nil {
			return in, err
		}
	}
	in.exec = func(w *warp, in *instr, m uint32) {
		if w.x.tally != nil {
			w.x.tally.multiplied(op)
		}
		op.run(w)
	}
	return in, nil
}

// matrices are mma's operands; b's columns lie together.
type matrices struct {
	a [16][16]float64
	b [8][16]float64
	c [16][8]float64
}

// run multiplies. The products of one instruction are added in float64, to
// the accumulator last, and the sum is rounded once; a GPU's order and
// precision inside the instruction are not documented.
func (op *mmaOp) run(w *warp) {
	var x matrices
	op.gather(w, &x)
	for i := range x.c {
		for j := range x.c[i] {
			var sum float64
			for k, v := range x.a[i][:op.depth] {
				sum += v * x.b[j][k]
			}
			x.c[i][j] += sum
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
			op.unpack(w.regs[r][l], x.a[group+i%2*8][at:])
		}
		for i, r := range op.b {
			op.unpack(w.regs[r][l], x.b[group][column+i*4*op.packed:])
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

// unpack reads a register's elements. A tf32's lower bits are ignored.
func (op *mmaOp) unpack(v uint64, to []float64) {
	switch op.in {
	case tTF32:
		to[0] = float64(math.Float32frombits(uint32(v) &^ 0x1fff))
	case tF16:
		to[0], to[1] = float64(half16(v)), float64(half16(v>>16))
	default:
		to[0], to[1] = float64(bfloat(v&0xffff)), float64(bfloat(v>>16&0xffff))
	}
}
