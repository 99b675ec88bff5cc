package ptx

// typ is a PTX fundamental type, as it is written after the dot.
type typ uint8

const (
	noType typ = iota
	tPred
	tB8
	tB16
	tB32
	tB64
	tU8
	tU16
	tU32
	tU64
	tS8
	tS16
	tS32
	tS64
	tF16
	tBF16
	tF16x2
	tBF16x2
	tTF32
	tF32
	tF64
)

// A kind of type says which instructions may take it.
type typeKind uint8

const (
	kindPred  typeKind = iota
	kindBits           // .b: only its size counts
	kindUint           // .u
	kindInt            // .s
	kindHalf           // f16 and bf16, one or two to a register
	kindFloat          // f32, f64
	kindTF32
)

var typeTable = [...]struct {
	name string
	bits int
	kind typeKind
}{
	noType:  {"(none)", 0, kindBits},
	tPred:   {"pred", 1, kindPred},
	tB8:     {"b8", 8, kindBits},
	tB16:    {"b16", 16, kindBits},
	tB32:    {"b32", 32, kindBits},
	tB64:    {"b64", 64, kindBits},
	tU8:     {"u8", 8, kindUint},
	tU16:    {"u16", 16, kindUint},
	tU32:    {"u32", 32, kindUint},
	tU64:    {"u64", 64, kindUint},
	tS8:     {"s8", 8, kindInt},
	tS16:    {"s16", 16, kindInt},
	tS32:    {"s32", 32, kindInt},
	tS64:    {"s64", 64, kindInt},
	tF16:    {"f16", 16, kindHalf},
	tBF16:   {"bf16", 16, kindHalf},
	tF16x2:  {"f16x2", 32, kindHalf},
	tBF16x2: {"bf16x2", 32, kindHalf},
	tTF32:   {"tf32", 32, kindTF32},
	tF32:    {"f32", 32, kindFloat},
	tF64:    {"f64", 64, kindFloat},
}

var typesByName = func() map[string]typ {
	names := make(map[string]typ, len(typeTable))
	for t, row := range typeTable {
		if typ(t) != noType {
			names[row.name] = typ(t)
		}
	}
	return names
}()

func (t typ) String() string { return typeTable[t].name }
func (t typ) bits() int      { return typeTable[t].bits }
func (t typ) bytes() int     { return typeTable[t].bits / 8 }
func (t typ) kind() typeKind { return typeTable[t].kind }
func (t typ) signed() bool   { return t.kind() == kindInt }
func (t typ) integer() bool  { return t.kind() == kindUint || t.kind() == kindInt }

// oneOf reports whether t is among ts.
func (t typ) oneOf(ts ...typ) bool {
	for _, u := range ts {
		if t == u {
			return true
		}
	}
	return false
}

// space is a PTX state space.
type space uint8

const (
	spaceGeneric space = iota
	spaceGlobal
	spaceShared
	spaceLocal
	spaceConst
	spaceParam
)

var spaceNames = [...]string{"generic", "global", "shared", "local", "const", "param"}

func (s space) String() string { return spaceNames[s] }

// spaceByName knows the space modifiers of instructions and declarations. A
// block is its own cluster here, so shared::cta is shared.
var spaceByName = map[string]space{
	"global": spaceGlobal, "shared": spaceShared, "shared::cta": spaceShared,
	"local": spaceLocal, "const": spaceConst, "param": spaceParam,
	"param::entry": spaceParam, "param::func": spaceParam,
}

// The generic address space: each space but global has a window in it, and
// global addresses are generic addresses as they are. Windows are far apart so
// that no overrun leads from one to another.
const (
	sharedWindow = 1 << 40
	localWindow  = 2 << 40
	constWindow  = 3 << 40
	paramWindow  = 4 << 40
	windowBytes  = 1 << 32
	globalBase   = 0x7f00_0000_0000
)

var windows = [...]uint64{
	spaceGeneric: 0, spaceGlobal: 0, spaceShared: sharedWindow,
	spaceLocal: localWindow, spaceConst: constWindow, spaceParam: paramWindow,
}

// generic resolves a generic address to its space and the address in it.
func generic(addr uint64) (space, uint64) {
	for _, s := range [...]space{spaceShared, spaceLocal, spaceConst, spaceParam} {
		if addr-windows[s] < windowBytes {
			return s, addr - windows[s]
		}
	}
	return spaceGlobal, addr
}

// alignUp rounds n up to a multiple of align, a power of two.
func alignUp(n, align int) int { return (n + align - 1) &^ (align - 1) }
