package cpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// machine interprets the assembly of this package, as its generator wrote it, also where the
// processor lacks the instructions: registers, flags, tiles, and memory that it was allowed.
// Instructions that are written as numbers are decoded from these.
type machine struct {
	functions map[string][]asmLine
	gp        [16]uint64
	v         [32][64]byte
	k         [8]uint64
	zero      bool // flags
	less      bool // of signed numbers: SF != OF
	regions   []region
	frame     uint64
	globals   map[string][]byte
	tiles     *[8]tileRegister // nil: not configured
}

// region is memory that functions may use.
type region struct{ at, size uint64 }

// tileRegister is a register of AMX.
type tileRegister struct {
	rows, bytes int // of a row
	data        [16][64]byte
}

// asmLine is an instruction, or a label.
type asmLine struct {
	label, name string // without .Z
	zeroes      bool
	ops         []opd
	code        []byte // of one that is written as numbers
}

// opd is an operand.
type opd struct {
	kind         byte // r, v, k: registers, $: a constant, m: memory, l: a label
	number, size int  // of a register
	value        uint64
	base, index  int // registers, or -1
	scale        uint64
	symbol       string
}

// newMachine reads a file of assembly.
func newMachine(t *testing.T, file string) *machine {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{functions: map[string][]asmLine{}, globals: map[string][]byte{}}
	name := ""
	for l := range strings.Lines(string(text)) {
		l = strings.TrimSpace(l)
		word, rest, _ := strings.Cut(l, " ")
		rest = strings.TrimSpace(rest)
		switch {
		case word == "TEXT":
			name = strings.TrimPrefix(rest[:strings.Index(rest, "(")], "·")
		case word == "DATA":
			symbol, value, _ := strings.Cut(rest, "/8, $")
			symbol = symbol[:strings.Index(symbol, "<>")]
			x, _ := strconv.ParseUint(value, 0, 64)
			m.globals[symbol] = binary.LittleEndian.AppendUint64(m.globals[symbol], x)
		case strings.HasSuffix(word, ":"):
			m.functions[name] = append(m.functions[name], asmLine{label: word[:len(word)-1]})
		case word == "" || word[0] == '#' || word == "GLOBL":
		case word == "//":
			m.functions[name] = append(m.functions[name], asmLine{label: "//"}) // ends what is written as numbers
		default:
			m.add(name, word, rest)
		}
	}
	for _, g := range m.globals {
		allow(m, g)
	}
	return m
}

// add adds an instruction to a function.
func (m *machine) add(function, name, operands string) {
	list := m.functions[function]
	if size := map[string]int{"LONG": 4, "WORD": 2, "BYTE": 1}[name]; size > 0 {
		x, err := strconv.ParseUint(operands[1:], 0, 64)
		if err != nil {
			panic(err)
		}
		code := binary.LittleEndian.AppendUint64(nil, x)[:size]
		if n := len(list); n > 0 && list[n-1].code != nil {
			list[n-1].code = append(list[n-1].code, code...)
			return
		}
		m.functions[function] = append(list, asmLine{code: code})
		return
	}
	l := asmLine{}
	l.name, l.zeroes = strings.CutSuffix(name, ".Z")
	if operands != "" {
		for o := range strings.SplitSeq(operands, ", ") {
			l.ops = append(l.ops, operandOf(strings.TrimSpace(o)))
		}
	}
	m.functions[function] = append(list, l)
}

var generalRegisters = strings.Fields("AX CX DX BX SP BP SI DI R8 R9 R10 R11 R12 R13 R14 R15")

func generalRegister(name string) int {
	for i, r := range generalRegisters {
		if r == name {
			return i
		}
	}
	return -1
}

func operandOf(s string) opd {
	o := opd{base: -1, index: -1}
	if s[0] == '$' {
		o.kind = '$'
		if x, err := strconv.ParseInt(s[1:], 0, 64); err == nil {
			o.value = uint64(x)
		} else if o.value, err = strconv.ParseUint(s[1:], 0, 64); err != nil {
			panic(err)
		}
		return o
	}
	if n := generalRegister(s); n >= 0 {
		o.kind, o.number = 'r', n
		return o
	}
	if n, err := strconv.Atoi(s[1:]); err == nil && strings.Contains("XYZK", s[:1]) {
		o.kind, o.number, o.size = 'v', n, map[byte]int{'X': 16, 'Y': 32, 'Z': 64}[s[0]]
		if s[0] == 'K' {
			o.kind = 'k'
		}
		return o
	}
	before, rest, ok := strings.Cut(s, "(")
	if !ok {
		o.kind, o.symbol = 'l', s
		return o
	}
	o.kind = 'm'
	base, rest, _ := strings.Cut(rest, ")")
	if base == "FP" || base == "SB" {
		symbol, at, _ := strings.Cut(before, "+")
		o.symbol, before = strings.TrimSuffix(symbol, "<>"), at
		if base == "FP" {
			o.symbol = base
		}
	} else {
		o.base = generalRegister(base)
	}
	if before != "" {
		x, err := strconv.ParseInt(before, 0, 64)
		if err != nil {
			panic(s)
		}
		o.value = uint64(x)
	}
	if rest != "" {
		index, scale, _ := strings.Cut(strings.Trim(rest, "()"), "*")
		o.index, o.scale = generalRegister(index), uint64(scale[0]-'0')
	}
	return o
}

// address is that of a slice's memory.
func addressOf[E any](s []E) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s)))) }

// allow lets functions use a slice, and returns its address.
func allow[E any](m *machine, s []E) uint64 {
	var e E
	m.regions = append(m.regions, region{addressOf(s), uint64(len(s)) * uint64(unsafe.Sizeof(e))})
	return addressOf(s)
}

// memory is n bytes from an address on.
func (m *machine) memory(at uint64, n int) []byte {
	for _, r := range m.regions {
		if at >= r.at && at-r.at+uint64(n) <= r.size {
			return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
		}
	}
	panic(fmt.Sprintf("%d bytes at %#x are nobody's", n, at))
}

// call runs a function with slices, numbers and float32s, and returns the last 8 bytes of its
// frame. Other memory than the slices is what the machine was allowed before.
func (m *machine) call(name string, args ...any) (result uint64) {
	var frame []byte
	regions := len(m.regions)
	for _, a := range args {
		var x uint64
		switch a := a.(type) {
		case float32:
			x = uint64(math.Float32bits(a))
		case int:
			x = uint64(a)
		case uintptr:
			x = uint64(a)
		case []float32:
			x = allow(m, a)
		case []float64:
			x = allow(m, a)
		case []uint16:
			x = allow(m, a)
		case []byte:
			x = allow(m, a)
		case []int:
			x = allow(m, a)
		default:
			panic(fmt.Sprintf("an argument of type %T", a))
		}
		frame = binary.LittleEndian.AppendUint64(frame, x)
	}
	frame = append(frame, make([]byte, 8)...)
	m.frame = allow(m, frame)
	m.run(name)
	m.regions = m.regions[:regions]
	return binary.LittleEndian.Uint64(frame[len(frame)-8:])
}

// run runs a function to its end, with a stack.
func (m *machine) run(name string) {
	regions := len(m.regions)
	m.gp[generalRegister("SP")] = allow(m, make([]byte, 4096))
	defer func() { m.regions = m.regions[:regions] }()
	lines := m.functions[name]
	labels := map[string]int{}
	for i, l := range lines {
		labels[l.label] = i
	}
	at := 0
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("%s: %s %+v: %v", name, lines[at].name, lines[at].ops, p))
		}
	}()
	for ; lines[at].name != "RET"; at++ {
		switch l := &lines[at]; {
		case l.label != "":
		case l.code != nil:
			m.decode(l.code)
		default:
			if next := m.do(l); next != "" {
				at = labels[next]
			}
		}
	}
	if m.tiles != nil {
		panic("it returns with tiles")
	}
}

// address is that of an operand in memory.
func (m *machine) address(x opd) uint64 {
	at := x.value
	switch {
	case x.symbol == "FP":
		return at + m.frame
	case x.symbol != "":
		return at + addressOf(m.globals[x.symbol])
	}
	at += m.gp[x.base]
	if x.index >= 0 {
		at += m.gp[x.index] * x.scale
	}
	return at
}

// read is an operand of n bytes.
func (m *machine) read(o opd, n int) uint64 {
	var x uint64
	switch o.kind {
	case '$':
		x = o.value
	case 'm':
		var b [8]byte
		copy(b[:], m.memory(m.address(o), n))
		x = binary.LittleEndian.Uint64(b[:])
	case 'r':
		x = m.gp[o.number]
	case 'k':
		x = m.k[o.number]
	case 'v':
		x = binary.LittleEndian.Uint64(m.v[o.number][:])
	}
	if n < 8 {
		x &= 1<<(8*n) - 1
	}
	return x
}

// write sets an operand of n bytes; of 4, a register's others become 0.
func (m *machine) write(o opd, x uint64, n int) {
	if n < 8 {
		x &= 1<<(8*n) - 1
	}
	switch o.kind {
	case 'm':
		copy(m.memory(m.address(o), n), binary.LittleEndian.AppendUint64(nil, x))
	case 'r':
		m.gp[o.number] = x
	case 'k':
		m.k[o.number] = x
	case 'v':
		m.vector(o, binary.LittleEndian.AppendUint64(nil, x))
	}
}

// vector sets a vector register, whose other bytes become 0.
func (m *machine) vector(o opd, data []byte) {
	r := &m.v[o.number]
	*r = [64]byte{}
	copy(r[:], data)
}

// bytes are n bytes of a vector or of memory.
func (m *machine) bytes(o opd, n int) []byte {
	if o.kind == 'm' {
		return m.memory(m.address(o), n)
	}
	return append([]byte(nil), m.v[o.number][:n]...)
}

// flags compares the result of n bytes with 0; less is that of a comparison.
func (m *machine) flags(x uint64, n int, less bool) {
	m.zero, m.less = x<<(64-8*n) == 0, less
}

// jumps say when those with conditions jump.
func (m *machine) condition(name string) bool {
	switch name {
	case "MP":
		return true
	case "Z", "E":
		return m.zero
	case "NZ", "NE":
		return !m.zero
	case "LT", "L":
		return m.less
	case "GE":
		return !m.less
	case "GT":
		return !m.less && !m.zero
	case "LE":
		return m.less || m.zero
	}
	panic("a condition of " + name)
}

// do runs an instruction, and returns the label to go on at, if it jumps.
func (m *machine) do(l *asmLine) (next string) {
	ops, name := l.ops, l.name
	if name[0] == 'J' {
		if m.condition(name[1:]) {
			return ops[0].symbol
		}
		return ""
	}
	if m.general(name, ops) {
		return ""
	}
	mask, masked := uint64(0), false
	if n := len(ops); n > 2 && ops[n-2].kind == 'k' {
		mask, masked = m.k[ops[n-2].number], true
		ops = append(append([]opd(nil), ops[:n-2]...), ops[n-1])
	}
	m.simd(name, ops, mask, masked, l.zeroes)
	return ""
}

// general runs an instruction without vectors, if it is one.
func (m *machine) general(name string, ops []opd) bool {
	n := 8
	if strings.HasSuffix(name, "L") {
		n = 4
	}
	last := func() opd { return ops[len(ops)-1] }
	value := func(i int) uint64 { return m.read(ops[i], n) }
	signed := func(x uint64) int64 { return int64(x<<(64-8*n)) >> (64 - 8*n) }
	set := func(x uint64) {
		m.write(last(), x, n)
		m.flags(x, n, signed(x) < 0)
	}
	switch name {
	case "VZEROUPPER":
		for i := range 16 {
			clear(m.v[i][16:])
		}
	case "PREFETCHT0", "PREFETCHT1":
		m.address(ops[0])
	case "MOVQ", "MOVL":
		m.write(ops[1], value(0), n)
	case "LEAQ":
		m.write(ops[1], m.address(ops[0]), 8)
	case "ADDQ", "ADDL":
		set(value(1) + value(0))
	case "SUBQ", "SUBL":
		a, b := value(1), value(0)
		m.write(ops[1], a-b, n)
		m.flags(a-b, n, signed(a) < signed(b))
	case "CMPQ", "CMPL":
		a, b := value(0), value(1)
		m.flags(a-b, n, signed(a) < signed(b))
	case "INCQ":
		set(value(0) + 1)
	case "DECQ":
		a := value(0)
		m.write(ops[0], a-1, n)
		m.flags(a-1, n, signed(a) < 1)
	case "NEGQ":
		set(-value(0))
	case "ANDQ", "ANDL":
		set(value(1) & value(0))
	case "ORQ", "ORL":
		set(value(1) | value(0))
	case "XORQ", "XORL":
		set(value(1) ^ value(0))
	case "TESTQ", "TESTL":
		x := value(0) & value(1)
		m.flags(x, n, signed(x) < 0)
	case "IMUL3Q":
		m.write(ops[2], value(1)*value(0), n)
	case "SHLQ", "SHLL":
		set(value(1) << value(0))
	case "SHRQ", "SHRL":
		set(value(1) >> value(0))
	case "BZHIQ", "BZHIL":
		x := value(1)
		if count := value(0) & 0xff; count < uint64(8*n) {
			x &= 1<<count - 1
		}
		set(x)
	case "CMOVQLT":
		if m.less {
			m.write(ops[1], value(0), 8)
		}
	case "KMOVW":
		m.write(ops[1], m.read(ops[0], 2), 8)
	case "KMOVD":
		m.write(ops[1], m.read(ops[0], 4), 8)
	default:
		return false
	}
	return true
}

func f32of(x uint32) float32 { return math.Float32frombits(x) }

// ofFloats is a function of lanes in f32.
func ofFloats(f func(dst, a, b float32) float32) func(imm, dst, a, b uint32) uint32 {
	return func(_, dst, a, b uint32) uint32 { return math.Float32bits(f(f32of(dst), f32of(a), f32of(b))) }
}

// byLane are the instructions on lanes of 32 bits, with the sources a before b as Intel's manual
// has them: of one source, both are it.
var byLane = map[string]func(imm, dst, a, b uint32) uint32{
	"VADDPS": ofFloats(func(_, a, b float32) float32 { return a + b }),
	"VSUBPS": ofFloats(func(_, a, b float32) float32 { return a - b }),
	"VMULPS": ofFloats(func(_, a, b float32) float32 { return a * b }),
	"VMAXPS": ofFloats(func(_, a, b float32) float32 {
		if a > b {
			return a
		}
		return b // also where one is a NaN
	}),
	"VMINPS": ofFloats(func(_, a, b float32) float32 {
		if a < b {
			return a
		}
		return b
	}),
	"VSCALEFPS": ofFloats(func(_, a, b float32) float32 {
		return float32(math.Ldexp(float64(a), int(math.Floor(float64(b)))))
	}),
	"VFMADD231PS": ofFloats(func(dst, a, b float32) float32 { return fma32(a, b, dst) }),
	"VFMADD213PS": ofFloats(func(dst, a, b float32) float32 { return fma32(a, dst, b) }),
	"VFMADD132PS": ofFloats(func(dst, a, b float32) float32 { return fma32(dst, b, a) }),
	"VCVTDQ2PS":   func(_, _, a, _ uint32) uint32 { return math.Float32bits(float32(int32(a))) },
	"VPADDD":      func(_, _, a, b uint32) uint32 { return a + b },
	"VPANDD":      and, "VPAND": and,
	"VPXORD": xor, "VPXORQ": xor, "VPXOR": xor, "VXORPS": xor,
	"VPORD": or, "VPOR": or,
	"VPMAXUD":  func(_, _, a, b uint32) uint32 { return max(a, b) },
	"VPMINUD":  func(_, _, a, b uint32) uint32 { return min(a, b) },
	"VPSLLD":   func(imm, _, a, _ uint32) uint32 { return a << imm },
	"VPSRLD":   func(imm, _, a, _ uint32) uint32 { return a >> imm },
	"VPSRAD":   func(imm, _, a, _ uint32) uint32 { return uint32(int32(a) >> imm) },
	"VPSLLW":   func(imm, _, a, _ uint32) uint32 { return a>>16<<imm<<16 | a<<imm&0xffff },
	"VPSRLW":   func(imm, _, a, _ uint32) uint32 { return a>>16>>imm<<16 | a&0xffff>>imm },
	"VPSUBD":   func(_, _, a, b uint32) uint32 { return a - b },
	"VPMULLD":  func(_, _, a, b uint32) uint32 { return a * b },
	"VPMADDWD": func(_, _, a, b uint32) uint32 { return wordProducts(a, b) },
	"VPDPWSSD": func(_, dst, a, b uint32) uint32 { return dst + wordProducts(a, b) },
	"VPDPBUSD": func(_, dst, a, b uint32) uint32 {
		for i := 0; i < 32; i += 8 {
			dst += a >> i & 0xff * uint32(int8(b>>i)) // a has no sign
		}
		return dst
	},
	"VPTERNLOGD": func(imm, dst, a, b uint32) (x uint32) {
		for bit := range 32 {
			x |= imm >> (dst>>bit&1<<2 | a>>bit&1<<1 | b>>bit&1) & 1 << bit
		}
		return x
	},
}

func and(_, _, a, b uint32) uint32 { return a & b }
func or(_, _, a, b uint32) uint32  { return a | b }
func xor(_, _, a, b uint32) uint32 { return a ^ b }

// wordProducts is the sum of the products of two words with a sign.
func wordProducts(a, b uint32) uint32 {
	return uint32(int32(int16(a))*int32(int16(b)) + int32(int16(a>>16))*int32(int16(b>>16)))
}

// widenings are those of 16 bits to 32.
var widenings = map[string]func(x uint16) uint32{
	"VPMOVZXWD": func(x uint16) uint32 { return uint32(x) },
	"VCVTPH2PS": func(x uint16) uint32 { return math.Float32bits(ofHalf(x)) },
}

func lane(b []byte, i int) uint32       { return binary.LittleEndian.Uint32(b[4*i:]) }
func setLane(b []byte, i int, x uint32) { binary.LittleEndian.PutUint32(b[4*i:], x) }

// unpacks are how many bytes an element has, and whether they take the upper halves.
var unpacks = map[string]struct {
	size  int
	upper bool
}{
	"VUNPCKLPS": {4, false}, "VUNPCKHPS": {4, true}, "VUNPCKLPD": {8, false}, "VUNPCKHPD": {8, true},
	"VPUNPCKLWD": {2, false}, "VPUNPCKHWD": {2, true}, "VPUNPCKLDQ": {4, false}, "VPUNPCKHDQ": {4, true},
	"VPUNPCKLQDQ": {8, false}, "VPUNPCKHQDQ": {8, true},
}

// simd runs an instruction on vectors.
func (m *machine) simd(name string, ops []opd, mask uint64, masked, zeroes bool) {
	dst := ops[len(ops)-1]
	imm := func() int { return int(ops[0].value) }
	if f := byLane[name]; f != nil {
		n, from, value := dst.size, ops, uint32(0)
		if ops[0].kind == '$' {
			from, value = ops[1:], uint32(imm())
		}
		b, a, out := m.bytes(from[0], n), m.bytes(from[len(from)-2], n), m.bytes(dst, n)
		for i := range n / 4 {
			if !masked || mask>>i&1 == 1 {
				setLane(out, i, f(value, lane(out, i), lane(a, i), lane(b, i)))
			}
		}
		m.vector(dst, out)
		return
	}
	if f := widenings[name]; f != nil {
		from, out := m.bytes(ops[0], dst.size/2), make([]byte, dst.size)
		for i := range len(out) / 4 {
			setLane(out, i, f(binary.LittleEndian.Uint16(from[2*i:])))
		}
		m.vector(dst, out)
		return
	}
	if u, ok := unpacks[name]; ok {
		n := dst.size
		b, a, out := m.bytes(ops[0], n), m.bytes(ops[1], n), make([]byte, 0, n)
		for block := 0; block < n; block += 16 {
			from := block
			if u.upper {
				from += 8
			}
			for i := from; i < from+8; i += u.size {
				out = append(append(out, a[i:i+u.size]...), b[i:i+u.size]...)
			}
		}
		m.vector(dst, out)
		return
	}
	switch name {
	case "VCVTPS2PD", "VCVTPD2PS", "VCVTPD2PSY", "VBROADCASTSD", "VADDPD", "VFMADD231PD":
		m.doubles(name, ops, dst)
	case "VMOVUPS", "VMOVUPD", "VMOVDQU32", "VMOVDQU16", "VMASKMOVPS", "VMOVDQU":
		m.move(name, ops, mask, masked, zeroes)
	case "VEXTRACTPS":
		m.write(dst, uint64(lane(m.bytes(ops[1], 16), imm())), 4)
	case "VMOVD", "VMOVSS", "MOVSS":
		m.write(dst, m.read(ops[0], 4), 4)
	case "VMOVQ":
		m.write(dst, m.read(ops[0], 8), 8)
	case "VMOVHPS":
		m.vector(dst, append(m.bytes(ops[1], 8), m.bytes(ops[0], 8)...))
	case "VADDSS":
		out := m.bytes(ops[1], 16)
		setLane(out, 0, math.Float32bits(f32of(lane(out, 0))+f32of(uint32(m.read(ops[0], 4)))))
		m.vector(dst, out)
	case "VBROADCASTSS", "VPBROADCASTD":
		out := make([]byte, dst.size)
		for i := range len(out) / 4 {
			setLane(out, i, uint32(m.read(ops[0], 4)))
		}
		m.vector(dst, out)
	case "VBROADCASTI64X4":
		m.vector(dst, bytes.Repeat(m.bytes(ops[0], 32), 2))
	case "VBROADCASTI32X4":
		m.vector(dst, bytes.Repeat(m.bytes(ops[0], 16), dst.size/16))
	case "VPTESTMB":
		b, a, set := m.bytes(ops[0], 64), m.bytes(ops[1], 64), uint64(0)
		for i := range a {
			if a[i]&b[i] != 0 {
				set |= 1 << i
			}
		}
		m.k[dst.number] = set
	case "VPCMPUD":
		n, set := ops[2].size, uint64(0)
		b, a := m.bytes(ops[1], n), m.bytes(ops[2], n)
		for i := range n / 4 {
			x, y := lane(a, i), lane(b, i)
			if [8]bool{x == y, x < y, x <= y, false, x != y, x >= y, x > y, true}[imm()] {
				set |= 1 << i
			}
		}
		m.k[dst.number] = set
	case "VPMOVDW":
		from := m.bytes(ops[0], ops[0].size)
		out := make([]byte, 0, 32)
		for i := range len(from) / 4 {
			out = append(out, from[4*i:4*i+2]...)
		}
		if dst.kind == 'v' {
			m.vector(dst, out)
		} else {
			copy(m.memory(m.address(dst), len(out)), out)
		}
	default:
		m.shuffle(name, imm, ops, mask, masked)
	}
}

// move moves a vector, of which a mask may leave elements out: their memory is not touched.
func (m *machine) move(name string, ops []opd, mask uint64, masked, zeroes bool) {
	from, dst := ops[0], ops[len(ops)-1]
	stores := dst.kind == 'm'
	n, size := 0, 4
	if n = 64; stores {
		n = from.size
	} else {
		n = dst.size
	}
	if name == "VMOVDQU16" {
		size = 2
	}
	if name == "VMASKMOVPS" {
		for i, b := 0, m.bytes(ops[1], n); i < n/4; i++ {
			mask |= uint64(lane(b, i)>>31) << i
		}
		masked, zeroes = true, true
	}
	if !masked {
		mask = math.MaxUint64
	} else if !stores && !zeroes {
		panic("a mask without .Z")
	}
	out := make([]byte, n)
	for i := range n / size {
		if mask>>i&1 == 0 {
			continue
		}
		part := func(o opd) []byte {
			if o.kind == 'm' {
				return m.memory(m.address(o)+uint64(i*size), size)
			}
			return m.v[o.number][i*size:][:size]
		}
		if stores {
			copy(part(dst), part(from))
		} else {
			copy(out[i*size:], part(from))
		}
	}
	if !stores {
		m.vector(dst, out)
	}
}

// shuffle moves parts of vectors.
func (m *machine) shuffle(name string, imm func() int, ops []opd, mask uint64, masked bool) {
	dst := ops[len(ops)-1]
	quarter := func(b []byte, i, size int) []byte { return b[i*size:][:size] }
	var out []byte
	switch name {
	case "VSHUFPS":
		n := dst.size
		b, a := m.bytes(ops[1], n), m.bytes(ops[2], n)
		for block := 0; block < n; block += 16 {
			for i, from := range [][]byte{a, a, b, b} {
				out = append(out, quarter(from[block:], imm()>>(2*i)&3, 4)...)
			}
		}
	case "VPSHUFD":
		n := dst.size
		a := m.bytes(ops[1], n)
		for block := 0; block < n; block += 16 {
			for i := range 4 {
				out = append(out, quarter(a[block:], imm()>>(2*i)&3, 4)...)
			}
		}
	case "VSHUFF32X4", "VSHUFF64X2":
		b, a := m.bytes(ops[1], dst.size), m.bytes(ops[2], dst.size)
		blocks := dst.size / 16 // each is chosen by as many bits as its number has
		for i := range blocks {
			from := a
			if i >= blocks/2 {
				from = b
			}
			out = append(out, quarter(from, imm()>>(blocks/2*i)&(blocks-1), 16)...)
		}
	case "VPERM2F128":
		b, a := m.bytes(ops[1], 32), m.bytes(ops[2], 32)
		for i := range 2 {
			from := append(append([]byte(nil), a...), b...)
			out = append(out, quarter(from, imm()>>(4*i)&3, 16)...)
		}
	case "VINSERTPS":
		from := 0
		if ops[1].kind == 'v' {
			from = imm() >> 6
		}
		out = m.bytes(ops[2], 16)
		copy(quarter(out, imm()>>4&3, 4), quarter(m.bytes(ops[1], 4*from+4), from, 4))
		for i := range 4 {
			if imm()>>i&1 == 1 {
				clear(quarter(out, i, 4))
			}
		}
	case "VEXTRACTF32X4", "VEXTRACTF128", "VEXTRACTI128":
		out = quarter(m.bytes(ops[1], ops[1].size), imm(), 16)
	case "VEXTRACTI64X4", "VEXTRACTF64X4":
		out = quarter(m.bytes(ops[1], 64), imm(), 32)
	case "VINSERTF32X4", "VINSERTI32X4", "VINSERTF128", "VINSERTI128":
		out = m.bytes(ops[2], dst.size)
		copy(quarter(out, imm(), 16), m.bytes(ops[1], 16))
	case "VINSERTI64X4":
		out = m.bytes(ops[2], 64)
		copy(quarter(out, imm(), 32), m.bytes(ops[1], 32))
	case "VPINSRW", "VPINSRD":
		n := map[string]int{"VPINSRW": 2, "VPINSRD": 4}[name]
		out = m.bytes(ops[2], 16)
		copy(quarter(out, imm(), n), m.bytes(ops[1], n))
	case "VPSHUFB":
		index, a := m.bytes(ops[0], dst.size), m.bytes(ops[1], dst.size)
		out = make([]byte, dst.size)
		for i, x := range index {
			if x < 0x80 {
				out[i] = a[i&^15|int(x&15)]
			}
		}
	case "VPADDB":
		b, a := m.bytes(ops[0], 64), m.bytes(ops[1], 64)
		out = m.bytes(dst, 64)
		for i := range out {
			if !masked || mask>>i&1 == 1 {
				out[i] = a[i] + b[i]
			}
		}
	case "VPERMW":
		if !masked {
			panic("without a mask")
		}
		a, index := m.bytes(ops[0], 64), m.bytes(ops[1], 64)
		out = make([]byte, 64)
		for i := range 32 {
			if mask>>i&1 == 1 {
				copy(out[2*i:], quarter(a, int(index[2*i]&31), 2))
			}
		}
	default:
		panic("not interpreted")
	}
	m.vector(dst, out)
}

// doubles runs an instruction with lanes in float64.
func (m *machine) doubles(name string, ops []opd, dst opd) {
	double := func(b []byte, i int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])) }
	var out []byte
	put := func(x float64) { out = binary.LittleEndian.AppendUint64(out, math.Float64bits(x)) }
	switch name {
	case "VCVTPS2PD":
		from := m.bytes(ops[0], dst.size/2)
		for i := range dst.size / 8 {
			put(float64(f32of(lane(from, i))))
		}
	case "VCVTPD2PS", "VCVTPD2PSY":
		from := m.bytes(ops[0], 2*dst.size)
		for i := range dst.size / 4 {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(double(from, i))))
		}
	case "VBROADCASTSD":
		for range dst.size / 8 {
			put(math.Float64frombits(m.read(ops[0], 8)))
		}
	case "VADDPD":
		a, b := m.bytes(ops[0], dst.size), m.bytes(ops[1], dst.size)
		for i := range dst.size / 8 {
			put(double(a, i) + double(b, i))
		}
	case "VFMADD231PD":
		a, b, sum := m.bytes(ops[0], dst.size), m.bytes(ops[1], dst.size), m.bytes(dst, dst.size)
		for i := range dst.size / 8 {
			put(math.FMA(double(a, i), double(b, i), double(sum, i)))
		}
	}
	m.vector(dst, out)
}

// decode runs an instruction that is written as numbers.
func (m *machine) decode(code []byte) {
	if code[0] == 0x62 {
		m.decodeEVEX(code)
		return
	}
	if code[0] == 0x0F && code[1] == 0x0D && code[2]>>3 == 1<<3|1 && len(code) == 4 { // PREFETCHW
		return
	}
	if code[0] != 0xC4 || code[1]&31 != 2 || code[2]>>7 != 0 || code[2]&4 != 0 {
		panic(fmt.Sprintf("% x is no instruction of tiles", code))
	}
	not := func(b byte, bit int) int { return int(^b >> bit & 1) }
	// Intel's manual, volume 2, chapter 2.3: a prefix of 2 is F3, of 3 F2.
	prefix, second := code[2]&3, int(^code[2]>>3&15)
	op, mod := code[3], code[4]
	register, rm := int(mod>>3&7)|not(code[1], 7)<<3, int(mod&7)
	used := 5
	var at, stride uint64
	if mod>>6 != 3 {
		base := rm | not(code[1], 5)<<3
		if rm == 4 {
			sib := code[5]
			used = 6
			base = int(sib&7) | not(code[1], 5)<<3
			stride = m.gp[int(sib>>3&7)|not(code[1], 6)<<3] << (sib >> 6)
		}
		at = m.gp[base]
		if mod>>6 == 2 {
			at += uint64(int64(int32(binary.LittleEndian.Uint32(code[used:]))))
			used += 4
		} else if mod>>6 != 0 || rm == 5 {
			panic("another form of address")
		}
	}
	if used != len(code) {
		panic(fmt.Sprintf("% x has %d bytes too many", code, len(code)-used))
	}
	register &= 7
	switch {
	case op == 0x49 && prefix == 0 && mod == 0xC0:
		m.tiles = nil
	case op == 0x49 && prefix == 0:
		m.configure(m.memory(at, 64))
	case op == 0x49 && prefix == 3:
		m.tiles[register].data = [16][64]byte{}
	case op == 0x4B && prefix == 3:
		t := &m.tiles[register]
		t.data = [16][64]byte{}
		for r := range t.rows {
			copy(t.data[r][:], m.memory(at+uint64(r)*stride, t.bytes))
		}
	case op == 0x4B && prefix == 2:
		t := &m.tiles[register]
		for r := range t.rows {
			copy(m.memory(at+uint64(r)*stride, t.bytes), t.data[r][:])
		}
	case op == 0x5C && prefix == 2:
		m.tileDot(&m.tiles[register], &m.tiles[rm], &m.tiles[second])
	default:
		panic(fmt.Sprintf("% x is not interpreted", code))
	}
}

func (m *machine) configure(c []byte) {
	if c[0] != 1 || c[1] != 0 {
		panic("another palette")
	}
	m.tiles = new([8]tileRegister)
	for i := range m.tiles {
		t := &m.tiles[i]
		t.rows, t.bytes = int(c[48+i]), int(binary.LittleEndian.Uint16(c[16+2*i:]))
		if t.rows < 1 || t.rows > 16 || t.bytes < 1 || t.bytes > 64 || t.bytes%4 != 0 {
			panic(fmt.Sprintf("tile %d of %d rows of %d bytes", i, t.rows, t.bytes))
		}
	}
}

// tileDot is TDPBF16PS: of each pair of rows the even and the odd products are summed by
// themselves, from 0, and then added, and that to the sum. Numbers below 2^-126 are 0.
func (m *machine) tileDot(sum, a, b *tileRegister) {
	if sum.rows != a.rows || sum.bytes != b.bytes || a.bytes/4 != b.rows {
		panic("tiles of sizes that do not go together")
	}
	half := func(row *[64]byte, i int) float32 {
		return f32of(uint32(binary.LittleEndian.Uint16(row[2*i:])) << 16)
	}
	for i := range sum.rows {
		for j := range sum.bytes / 4 {
			var even, odd float32
			for k := range b.rows {
				even = flushedFMA(half(&a.data[i], 2*k), half(&b.data[k], 2*j), even)
				odd = flushedFMA(half(&a.data[i], 2*k+1), half(&b.data[k], 2*j+1), odd)
			}
			s := sum.data[i][:]
			setLane(s, j, math.Float32bits(flushedFMA(1, flushedFMA(1, even, odd), f32of(lane(s, j)))))
		}
	}
}

// decodeEVEX runs VDPBF16PS of registers.
func (m *machine) decodeEVEX(code []byte) {
	not := func(b byte, bit int) int { return int(^b >> bit & 1) }
	w, x, sum := 0, 0, 0
	switch p := code[1:4]; {
	case len(code) != 6 || p[0]&15 != 2 || p[1]&0x87 != 1<<2|2 || p[2]&^8 != 2<<5 || code[4] != 0x52 || code[5]>>6 != 3:
		panic(fmt.Sprintf("% x is not VDPBF16PS of registers", code))
	default:
		sum = int(code[5]>>3&7) | not(p[0], 7)<<3 | not(p[0], 4)<<4
		w = int(code[5]&7) | not(p[0], 5)<<3 | not(p[0], 6)<<4
		x = int(^p[1]>>3&15) | not(p[2], 3)<<4
	}
	for i := range 16 {
		s := m.v[sum][:]
		setLane(s, i, math.Float32bits(dotPairs(lane(m.v[x][:], i), lane(m.v[w][:], i), f32of(lane(s, i)))))
	}
}

// fma32 rounds a b + c once.
func fma32(a, b, c float32) float32 {
	sum, _ := oddFMA(a, b, c)
	return float32(sum)
}

// oddFMA is a b + c rounded to odd where it is not exact, so that one rounding follows.
func oddFMA(a, b, c float32) (sum float64, finite bool) {
	p, z := float64(a)*float64(b), float64(c)
	if sum = p + z; math.IsInf(sum, 0) || math.IsNaN(sum) {
		return sum, false
	}
	if rest := (p - (sum - (sum - p))) + (z - (sum - p)); rest != 0 && math.Float64bits(sum)&1 == 0 {
		sum = math.Nextafter(sum, math.Copysign(math.Inf(1), rest))
	}
	return sum, true
}

// ofHalf is a number in f16.
func ofHalf(x uint16) float32 {
	sign := float32(1 - int(x>>15)*2)
	switch e, f := int(x>>10&31), float64(x&1023); {
	case e == 31 && f > 0:
		return float32(math.NaN())
	case e == 31:
		return sign * float32(math.Inf(1))
	case e == 0:
		return sign * float32(math.Ldexp(f, -24))
	default:
		return sign * float32(math.Ldexp(1024+f, e-25))
	}
}
