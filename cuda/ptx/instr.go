package ptx

// A row is one register of a warp: lane i's value is in row[i]. A register of
// n bits holds them zero-extended.
type row [32]uint64

// fullMask is a mask of all lanes of a warp.
const fullMask = 1<<32 - 1

// instrKind says how the scheduler treats an instruction.
type instrKind uint8

const (
	instrRow    instrKind = iota // each lane by itself, never a fault: row
	instrExec                    // anything else that goes on to the next: exec
	instrSync                    // lanes of a warp together: exec, once all named lanes are there
	instrBranch                  // to target
	instrTable                   // brx.idx: to one of targets
	instrBar                     // a barrier of the block
	instrExit
)

// A rowFunc computes all 32 lanes; those that are not active are dropped.
type rowFunc func(d, a, b, c *row)

// A fewFunc computes the lanes in m.
type fewFunc func(d, a, b, c *row, m uint32)

// An execFunc runs an instruction for the lanes in m.
type execFunc func(w *warp, in *instr, m uint32)

// An instr is one decoded instruction. Registers, immediates and special
// registers alike are rows of the warp.
type instr struct {
	kind       instrKind
	d, a, b, c int32 // rows
	p, q       int32 // predicates that are written
	guard      int32 // predicate; 0 is always true
	flip       uint32
	row        rowFunc
	few        fewFunc // row for some lanes, of what is often done by few; nil: row does for all
	exec       execFunc
	target     int32
	line       int32
	operands
}

// operands are what only some instructions have.
type operands struct {
	offset uint64   // of an address
	mem    *memOp   // loads, stores and atomics
	rows   []int32  // more registers: of vectors and matrices
	imm    uint64   // modes
	mask   int32    // row of the lanes that must arrive; -1 for all 32
	bar    *barOp   // barriers
	label  *label   // of a branch, which becomes target
	table  []*label // of brx.idx
}

// A pred is a predicate operand that is read.
type pred struct {
	index int32
	flip  uint32
}

// lanes returns the predicate's value for every lane.
func (p pred) lanes(w *warp) uint32 { return w.preds[p.index] ^ p.flip }

// A fixedRow is a row that the kernel never writes.
type fixedRow struct {
	row   int32
	kind  fixedKind
	value uint64
	name  string // of a global variable
}

type fixedKind uint8

const (
	fixedValue fixedKind = iota
	fixedGlobal
	fixedDynamicShared
	fixedSpecial // value is a special
)

// special is a special register.
type special uint64

const (
	specialTidX special = iota
	specialTidY
	specialTidZ
	specialNtidX
	specialNtidY
	specialNtidZ
	specialCtaidX
	specialCtaidY
	specialCtaidZ
	specialNctaidX
	specialNctaidY
	specialNctaidZ
	specialLaneid
	specialWarpid
	specialNwarpid
	specialMaskEq
	specialMaskLe
	specialMaskLt
	specialMaskGe
	specialMaskGt
	specialDynamicShared
	specialTotalShared
)

var specials = map[string]special{
	"%tid.x": specialTidX, "%tid.y": specialTidY, "%tid.z": specialTidZ,
	"%ntid.x": specialNtidX, "%ntid.y": specialNtidY, "%ntid.z": specialNtidZ,
	"%ctaid.x": specialCtaidX, "%ctaid.y": specialCtaidY, "%ctaid.z": specialCtaidZ,
	"%nctaid.x": specialNctaidX, "%nctaid.y": specialNctaidY, "%nctaid.z": specialNctaidZ,
	"%laneid": specialLaneid, "%warpid": specialWarpid, "%nwarpid": specialNwarpid,
	"%lanemask_eq": specialMaskEq, "%lanemask_le": specialMaskLe, "%lanemask_lt": specialMaskLt,
	"%lanemask_ge": specialMaskGe, "%lanemask_gt": specialMaskGt,
	"%dynamic_smem_size": specialDynamicShared, "%total_smem_size": specialTotalShared,
}

// clocks are special registers that change as the kernel runs; only mov reads
// them. They count the warp's instructions.
var clocks = map[string]int{"%clock": 32, "%clock_hi": 0, "%clock64": 64, "%globaltimer": 64}

// fillSpecial computes a special register for the lanes of a warp.
func (x *execution) fillSpecial(s special, warp int, d *row) {
	block, grid := x.l.Block, x.l.Grid
	for l := range d {
		t := warp*32 + l
		switch s {
		case specialTidX:
			d[l] = uint64(t % block[0])
		case specialTidY:
			d[l] = uint64(t / block[0] % block[1])
		case specialTidZ:
			d[l] = uint64(t / (block[0] * block[1]))
		case specialNtidX, specialNtidY, specialNtidZ:
			d[l] = uint64(block[s-specialNtidX])
		case specialCtaidX, specialCtaidY, specialCtaidZ:
			d[l] = uint64(x.ctaid[s-specialCtaidX])
		case specialNctaidX, specialNctaidY, specialNctaidZ:
			d[l] = uint64(grid[s-specialNctaidX])
		case specialLaneid:
			d[l] = uint64(l)
		case specialWarpid:
			d[l] = uint64(warp)
		case specialNwarpid:
			d[l] = uint64(len(x.warps))
		case specialMaskEq:
			d[l] = 1 << l
		case specialMaskLe:
			d[l] = 2<<l - 1
		case specialMaskLt:
			d[l] = 1<<l - 1
		case specialMaskGe:
			d[l] = fullMask &^ (1<<l - 1)
		case specialMaskGt:
			d[l] = fullMask &^ (2<<l - 1)
		case specialDynamicShared:
			d[l] = uint64(x.l.Shared)
		case specialTotalShared:
			d[l] = x.shared.size
		default:
			panic("BUG: unknown special register")
		}
	}
}
