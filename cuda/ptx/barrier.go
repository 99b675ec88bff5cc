package ptx

import (
	"math/bits"
	"strconv"
)

// A barrier is one of the block's sixteen.
type barrier struct {
	arrived int        // threads
	lanes   [32]uint32 // of each warp, the same
	count   uint64     // of threads that it is for; 0 for all
	line    int32      // where threads wait for it; 0 if none does
	thread  int        // the first of those
	popc    int        // of bar.red, true values
	values  int        // and all
}

// arrive lets the group at the front, the lanes in m, arrive at a barrier.
func (w *warp) arrive(in *instr, m uint32) {
	id, count := w.regs[in.bar.id], row{}
	if in.bar.count != 0 {
		count = w.regs[in.bar.count]
	}
	l := lowest(m)
	for n := m; n != 0; n &= n - 1 {
		if i := lowest(n); id[i] != id[l] || count[i] != count[l] {
			w.fail(in, i, DivergentBarrier, "arrives at barrier %d of %d threads, and lane %d with it at barrier %d of %d", id[i], count[i], l, id[l], count[l])
			return
		}
	}
	if id[l] > 15 || in.bar.count != 0 && (count[l] == 0 || count[l]%32 != 0) {
		w.fail(in, l, Undefined, "barrier %d of %d threads; there are 16, for multiples of 32 threads", id[l], count[l])
		return
	}
	bar := &w.x.bars[id[l]]
	if !w.checkBarrier(in, l, bar, id[l], count[l]) {
		return
	}
	bar.count = count[l]
	bar.lanes[w.index] |= m
	if in.bar.red != "" {
		bar.popc += bits.OnesCount32(in.bar.value.lanes(w) & m)
		bar.values += bits.OnesCount32(m)
	}
	g := &w.groups[0]
	if in.bar.arrive {
		g.pc++
	} else {
		g.wait, g.bar = waitBar, uint8(id[l])
		if bar.line == 0 {
			bar.line, bar.thread = in.line, w.thread(l)
		}
	}
	bar.arrived += bits.OnesCount32(m)
	if bar.complete(w.x) {
		w.x.open(int(id[l]), bar)
	}
}

// checkBarrier checks that all threads come to a barrier in the same way.
func (w *warp) checkBarrier(in *instr, l int, bar *barrier, id, count uint64) bool {
	if bar.arrived != 0 && bar.count != count {
		w.fail(in, l, DivergentBarrier, "arrives at barrier %d for %s, at which others have arrived for %s", id, forThreads(count), forThreads(bar.count))
		return false
	}
	if bar.line != 0 && bar.line != in.line && !in.bar.arrive {
		w.fail(in, l, DivergentBarrier, "waits at barrier %d, for which thread %s waits at line %d (%s)", id, triple(w.x.threadID(bar.thread)), bar.line, w.x.entry.module.source(int(bar.line)))
		return false
	}
	return true
}

// complete reports whether all threads have arrived. A barrier with a count
// counts whole warps, full or not.
func (bar *barrier) complete(x *execution) bool {
	if bar.count == 0 {
		return bar.arrived == x.threads
	}
	warps := 0
	for i := range x.warps {
		if m := bar.lanes[i]; m != 0 && x.warps[i].live&^m == 0 {
			warps++
		}
	}
	return uint64(warps)*32 >= bar.count
}

// open lets the threads at a barrier go on.
func (x *execution) open(id int, bar *barrier) {
	x.advance()
	if bar.count == 0 {
		x.fullBarrier()
	} else {
		x.partBarrier(bar)
	}
	for i := range x.warps {
		w := &x.warps[i]
		for j := range w.groups {
			g := &w.groups[j]
			if g.wait != waitBar || int(g.bar) != id {
				continue
			}
			if in := &x.entry.code[g.pc]; in.bar.red != "" {
				w.reduced(in, g.mask, bar)
			}
			g.wait = waitNot
			g.pc++
		}
	}
	*bar = barrier{}
}

// reduced gives the lanes of bar.red their result.
func (w *warp) reduced(in *instr, m uint32, bar *barrier) {
	switch in.bar.red {
	case "popc":
		w.each(in, m, func(int, uint64, uint64, uint64) uint64 { return uint64(bar.popc) })
	case "and":
		w.setPred(in.p, m, everyLane(bar.popc == bar.values))
	default:
		w.setPred(in.p, m, everyLane(bar.popc > 0))
	}
}

func forThreads(count uint64) string {
	if count == 0 {
		return "all threads"
	}
	return strconv.Itoa(int(count)) + " threads"
}

// stuck reports why no thread of the block can go on.
func (x *execution) stuck() {
	for i := range x.warps {
		w := &x.warps[i]
		for _, g := range w.groups {
			if g.wait == waitSync {
				w.stuckSync(g)
				return
			}
		}
	}
	for i := range x.warps {
		w := &x.warps[i]
		for _, g := range w.groups {
			if g.wait == waitBar {
				w.stuckBar(g)
				return
			}
		}
	}
	panic("BUG: a block is stuck and no thread waits")
}

// stuckSync reports lanes that wait for others of their warp.
func (w *warp) stuckSync(g group) {
	in := &w.x.entry.code[g.pc]
	l := lowest(g.mask)
	named, _ := w.named(in, l, g.mask)
	missing := named & w.live &^ g.mask
	where := "are elsewhere"
	for _, other := range w.groups {
		if other.mask&missing != 0 {
			line := int(w.x.entry.code[other.pc].line)
			where = "wait at line " + strconv.Itoa(line) + " (" + w.x.entry.module.source(line) + ")"
		}
	}
	w.fail(in, l, Deadlock, "waits for the lanes %#x of its warp, which %s", missing, where)
}

// stuckBar reports threads that wait at a barrier of the block.
func (w *warp) stuckBar(g group) {
	x := w.x
	in := &x.entry.code[g.pc]
	bar := &x.bars[g.bar]
	exited, elsewhere := 0, 0
	for i := range x.warps {
		other := &x.warps[i]
		exited += bits.OnesCount32(other.all &^ other.live)
		for _, h := range other.groups {
			if h.wait != waitBar || h.bar != g.bar {
				elsewhere += bits.OnesCount32(h.mask)
			}
		}
	}
	kind := DivergentBarrier
	if bar.count != 0 || exited == 0 {
		kind = Deadlock
	}
	w.fail(in, lowest(g.mask), kind, "waits at barrier %d for %s, of which %d have arrived; %d have exited and %d wait elsewhere", g.bar, forThreads(bar.count), bar.arrived, exited, elsewhere)
}
