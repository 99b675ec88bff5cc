package ptx

import "math/bits"

// A warp is up to 32 threads. Each has its own place in the code; those at the
// same place form a group and run together. Of several groups the one that is
// furthest behind runs, so that they converge again where paths join.
type warp struct {
	x       *execution
	index   int
	all     uint32 // lanes that exist
	live    uint32 // lanes that have not exited
	early   uint32 // lanes that have not waited for the launch before, with which this one overlaps
	regs    []row
	preds   []uint32 // a bit for every lane
	carry   uint32
	groups  []group
	steps   int64
	choices uint32
	met     stamp // when all lanes last met in bar.warp.sync
	pairs   *[32][32]stamp
	local   region
	written written // local's, or more
	stride  uint64  // of the lanes' local memory
	async   [32]asyncState
	at      [32]uint64 // where in a region each lane accesses it
	polled  [2]polled
	scratch row
}

// A group is the lanes at one place.
type group struct {
	pc   int32
	wait waitKind
	bar  uint8 // that they wait for
	mask uint32
}

type waitKind uint8

const (
	waitNot  waitKind = iota
	waitSync          // for other lanes of the warp
	waitBar           // for the block
)

const (
	// slice is how many instructions a warp runs before another runs.
	slice = 1 << 16
	// Of every choiceCycle choices between groups, the last otherChoices go to the
	// group that is furthest ahead, so that none waits forever for one that
	// spins.
	choiceCycle, otherChoices = 1 << 14, 1 << 10
	// fewLanes are computed one by one, where an instruction can.
	fewLanes = 16
)

// start puts all lanes at the kernel's beginning. Registers hold all ones,
// which is NaN in every floating-point type.
func (w *warp) start() {
	w.live, w.early, w.polled = w.all, 0, [2]polled{}
	if w.x.l.Dependent {
		w.early = w.all
	}
	w.groups = append(w.groups[:0], group{mask: w.all})
	w.steps, w.choices, w.carry = 0, 0, 0
	from := int32(0)
	for _, f := range w.x.entry.fixed {
		fillOnes(w.regs[from:f.row])
		from = f.row + 1
	}
	fillOnes(w.regs[from:])
	w.fillFixed(true)
	clear(w.preds[1:])
	clear(w.local.written)
	for l := range w.async {
		s := &w.async[l]
		s.copies, s.groups = s.copies[:0], 0
	}
}

// allOnes are rows as a kernel finds them.
var allOnes = func() (rows [64]row) {
	for i := range rows {
		for l := range rows[i] {
			rows[i][l] = ^uint64(0)
		}
	}
	return rows
}()

func fillOnes(rows []row) {
	for len(rows) > 0 {
		rows = rows[copy(rows, allOnes[:]):]
	}
}

func (w *warp) runnable() bool {
	for _, g := range w.groups {
		if g.wait == waitNot {
			return true
		}
	}
	return false
}

// choose merges groups that have met, moves the one that runs next to the
// front, and returns where it joins another. It returns false if all wait.
func (w *warp) choose() (join int32, ok bool) {
	w.merge()
	w.choices++
	ahead := w.choices%choiceCycle >= choiceCycle-otherChoices
	best := -1
	for i, g := range w.groups {
		if g.wait == waitNot && (best < 0 || (g.pc < w.groups[best].pc) != ahead) {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	gs := w.groups
	gs[0], gs[best] = gs[best], gs[0]
	join = 1<<31 - 1
	for _, g := range gs[1:] {
		if g.pc > gs[0].pc {
			join = min(join, g.pc)
		}
	}
	return join, true
}

// merge joins groups at the same place. One that waits for lanes of its warp
// goes on when more arrive; those at a barrier have been counted there.
func (w *warp) merge() {
	gs := w.groups
	for i := 0; i < len(gs); i++ {
		for j := i + 1; j < len(gs); {
			if gs[i].pc != gs[j].pc || (gs[i].wait == waitBar) != (gs[j].wait == waitBar) {
				j++
				continue
			}
			gs[i].mask |= gs[j].mask
			if gs[i].wait == waitSync {
				gs[i].wait = waitNot
			}
			gs[j] = gs[len(gs)-1]
			gs = gs[:len(gs)-1]
		}
	}
	w.groups = gs
}

// drop removes the group at the front if no lane is left in it.
func (w *warp) drop() {
	if w.groups[0].mask == 0 {
		last := len(w.groups) - 1
		w.groups[0] = w.groups[last]
		w.groups = w.groups[:last]
	}
}

// run runs groups until all wait or have exited, for a slice at most.
func (w *warp) run() {
	end := min(w.steps+slice, w.x.limit+1)
	for w.steps < end {
		if len(w.groups) == 0 {
			return
		}
		join := int32(1<<31 - 1)
		if len(w.groups) > 1 || w.groups[0].wait != waitNot {
			var ok bool
			if join, ok = w.choose(); !ok {
				return
			}
		}
		w.runGroup(join, end)
		if w.x.fault != nil {
			return
		}
		if w.steps > w.x.limit && len(w.groups) > 0 {
			g := w.groups[0]
			w.fail(&w.x.entry.code[g.pc], lowest(g.mask), TooLong, "its warp has executed %d instructions, the limit", w.x.limit)
			return
		}
	}
}

// runGroup runs the group at the front until it joins another, waits, has
// split or has exited.
func (w *warp) runGroup(join int32, end int64) {
	g := &w.groups[0]
	code := w.x.entry.code
	pc, active := g.pc, g.mask
	lanes := int64(bits.OnesCount32(active))
	first := w.steps
	defer func() {
		w.x.warpInstrs += w.steps - first
		w.x.threadInstrs += (w.steps - first) * lanes
	}()
	for {
		in := &code[pc]
		w.steps++
		m := active & (w.preds[in.guard] ^ in.flip)
		switch in.kind {
		case instrRow:
			if m == fullMask {
				in.row(&w.regs[in.d], &w.regs[in.a], &w.regs[in.b], &w.regs[in.c])
			} else if in.few != nil && bits.OnesCount32(m) <= fewLanes {
				in.few(&w.regs[in.d], &w.regs[in.a], &w.regs[in.b], &w.regs[in.c], m)
			} else if m != 0 {
				w.apply(in.row, in, m)
			}
			pc++
		case instrExec:
			if m != 0 {
				in.exec(w, in, m)
				if w.x.fault != nil {
					return
				}
			}
			pc++
		case instrBranch:
			switch m {
			case active:
				pc = in.target
			case 0:
				pc++
			default:
				g.pc, g.mask = pc+1, active&^m
				w.groups = append(w.groups, group{pc: in.target, mask: m})
				return
			}
			if len(w.groups) > 1 {
				g.pc = pc
				return
			}
		default:
			g.pc = pc
			w.leave(in, m)
			return
		}
		if pc == join || w.steps >= end {
			g.pc = pc
			return
		}
	}
}

// leave runs an instruction that may split or stop the group at the front.
func (w *warp) leave(in *instr, m uint32) {
	g := &w.groups[0]
	if rest := g.mask &^ m; rest != 0 { // the guard lets these pass by
		g.mask = m
		w.groups = append(w.groups, group{pc: g.pc + 1, mask: rest})
	}
	if m == 0 {
		w.drop()
		return
	}
	switch in.kind {
	case instrExit:
		if early := m & w.early; early != 0 { // the launch may end before the one before, for which the next waits by this one
			w.fail(in, lowest(early), NotAwaited, "ends without griddepcontrol.wait, and its launch overlaps with the one before")
			return
		}
		w.live &^= m
		w.groups[0].mask = 0
		w.drop()
		for i := range w.groups { // which may have waited for these lanes alone
			if w.groups[i].wait == waitSync {
				w.groups[i].wait = waitNot
			}
		}
	case instrTable:
		w.branchTable(in, m)
	case instrSync:
		w.sync(in, m)
	case instrBar:
		w.arrive(in, m)
	default:
		panic("BUG: unknown kind of instruction")
	}
}

// apply computes a row and keeps it for the lanes in m.
func (w *warp) apply(f rowFunc, in *instr, m uint32) {
	if m == fullMask {
		f(&w.regs[in.d], &w.regs[in.a], &w.regs[in.b], &w.regs[in.c])
		return
	}
	f(&w.scratch, &w.regs[in.a], &w.regs[in.b], &w.regs[in.c])
	d := &w.regs[in.d]
	for ; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		d[l] = w.scratch[l]
	}
}

// branchTable splits the group at the front by the targets of brx.idx.
func (w *warp) branchTable(in *instr, m uint32) {
	index := &w.regs[in.a]
	w.groups[0].mask = 0
	for m != 0 {
		l := lowest(m)
		i := index[l]
		if i >= uint64(len(in.table)) {
			w.fail(in, l, Undefined, "branches to entry %d of %d", i, len(in.table))
			return
		}
		var same uint32
		for n := m; n != 0; n &= n - 1 {
			if index[lowest(n)] == i {
				same |= 1 << lowest(n)
			}
		}
		m &^= same
		w.groups = append(w.groups, group{pc: in.table[i].pc, mask: same})
	}
	w.drop()
}

// sync runs an instruction of several lanes for those whose masks are
// complete; the others wait.
func (w *warp) sync(in *instr, m uint32) {
	var done uint32
	for rest := m; rest != 0; {
		l := lowest(rest)
		named, cohort := w.named(in, l, rest)
		if w.x.fault != nil {
			return
		}
		need := named & w.live
		if need&^rest == 0 {
			if need&^cohort != 0 {
				other := lowest(need &^ cohort)
				w.fail(in, l, Undefined, "names the lanes %#x, but lane %d, one of them, names %#x", named, other, uint32(w.regs[in.mask][other]))
				return
			}
			in.exec(w, in, need)
			if w.x.fault != nil {
				return
			}
			done |= need
		}
		rest &^= cohort
	}
	g := &w.groups[0]
	switch done {
	case m:
		g.pc++
	case 0:
		g.wait = waitSync
	default:
		g.mask, g.wait = m&^done, waitSync
		w.groups = append(w.groups, group{pc: g.pc + 1, mask: done})
	}
}

// named returns the lanes that lane l waits for, and those at the instruction
// that name the same.
func (w *warp) named(in *instr, l int, m uint32) (named, cohort uint32) {
	if in.mask < 0 {
		if w.live != fullMask {
			w.fail(in, l, DivergentBarrier, "needs all 32 lanes of the warp, of which %d are there", bits.OnesCount32(w.live))
		}
		return fullMask, m
	}
	masks := &w.regs[in.mask]
	named = uint32(masks[l])
	if named>>l&1 == 0 {
		w.fail(in, l, Undefined, "is executed by lane %d, which its mask %#x does not name", l, named)
		return 0, 0
	}
	for n := m; n != 0; n &= n - 1 {
		if uint32(masks[lowest(n)]) == named {
			cohort |= 1 << lowest(n)
		}
	}
	return named, cohort
}
