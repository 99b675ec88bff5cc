package ptx

// A decodeFunc decodes the builder's current statement.
type decodeFunc func(b *builder, o *opcode) instr

// decoders has one row for every instruction but call and, in called
// functions, ret.
var decoders = map[string]decodeFunc{
	// integer.go, float.go, half.go: by type
	"add": decodeArith, "sub": decodeArith, "mul": decodeArith, "mad": decodeArith,
	"fma": decodeArith, "div": decodeArith, "rem": decodeArith, "min": decodeArith,
	"max": decodeArith, "abs": decodeArith, "neg": decodeArith, "sad": decodeArith,
	"and": decodeArith, "or": decodeArith, "xor": decodeArith, "not": decodeArith,
	"cnot": decodeArith, "sqrt": decodeArith, "rsqrt": decodeArith, "rcp": decodeArith,
	"ex2": decodeArith, "lg2": decodeArith, "sin": decodeArith, "cos": decodeArith,
	"tanh": decodeArith, "copysign": decodeArith,
	"addc": decodeCarry, "subc": decodeCarry,

	// bits.go
	"shl": decodeShift, "shr": decodeShift, "shf": decodeFunnel,
	"bfe": decodeBits, "bfi": decodeBits, "brev": decodeBits, "popc": decodeBits,
	"clz": decodeBits, "bfind": decodeBits, "prmt": decodePermute, "lop3": decodeLogic,
	"dp4a": decodeDot, "dp2a": decodeDot,

	// compare.go
	"setp": decodeSetp, "set": decodeSet, "selp": decodeSelect, "slct": decodeSlct,
	"testp": decodeTest,

	// move.go, convert.go
	"mov": decodeMove, "cvta": decodeAddressConversion, "isspacep": decodeIsSpace, "cvt": decodeConvert,

	// memory.go's users: load.go, async.go, atomic.go
	"ld": decodeLoad, "ldu": decodeLoad, "st": decodeStore, "prefetch": decodeNothing,
	"prefetchu": decodeNothing, "applypriority": decodeNothing, "discard": decodeNothing,
	"createpolicy": decodePolicy, "cp": decodeAsync, "atom": decodeAtomic, "red": decodeAtomic,
	"membar": decodeFence, "fence": decodeFence,

	// control.go
	"bra": decodeBranch, "brx": decodeTable, "exit": decodeExit, "ret": decodeExit,
	"trap": decodeTrap, "brkpt": decodeTrap, "bar": decodeBar, "barrier": decodeBar,
	"nanosleep": decodeNothing, "pmevent": decodeNothing, "griddepcontrol": decodeDependence,

	// lanes.go
	"shfl": decodeShuffle, "vote": decodeVote, "match": decodeMatch, "redux": decodeRedux,
	"activemask": decodeActiveMask, "elect": decodeElect,

	// matrix.go
	"ldmatrix": decodeLoadMatrix, "movmatrix": decodeMoveMatrix, "mma": decodeMMA,
}

// decodeArith decodes arithmetic by its type.
func decodeArith(b *builder, o *opcode) instr {
	t := b.typeOf(o)
	switch t.kind() {
	case kindPred:
		return decodePredLogic(b, o)
	case kindHalf:
		return decodeHalf(b, o, t)
	case kindFloat:
		return decodeFloat(b, o, t)
	}
	return decodeInt(b, o, t)
}

// rowsOf decodes a destination and operands of the types given, of which those
// at the end may be noType for none. The first three become a, b and c.
func (b *builder) rowsOf(d typ, src ...typ) (in instr) {
	for len(src) > 0 && src[len(src)-1] == noType {
		src = src[:len(src)-1]
	}
	b.count(1+len(src), 1+len(src))
	in.d = b.dst(b.s.args[0], d)
	for i, t := range src {
		r := b.src(b.s.args[i+1], t)
		switch i {
		case 0:
			in.a = r
		case 1:
			in.b = r
		case 2:
			in.c = r
		default:
			in.rows = append(in.rows, r)
		}
	}
	return in
}

// times returns t n times.
func times(t typ, n int) []typ {
	ts := make([]typ, n)
	for i := range ts {
		ts[i] = t
	}
	return ts
}
