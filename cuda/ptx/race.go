package ptx

import (
	"math/bits"
	"sort"
)

// A stamp says when and by whom a byte was touched: the tick, the thread's
// number in its block, and a flag in the lowest bit. Ticks only grow, and
// blocks run one after the other, so that the tick tells the launch and the
// block too, and nothing has to be reset when they end.
type stamp = uint64

const (
	stampShift  = 11
	stampThread = 1<<stampShift - 2
	stampFlag   = 1
)

func threadOf(s stamp) int { return int(s & stampThread >> 1) }

// A cell is what the race detector knows of a few neighbouring bytes.
type cell struct {
	write stamp // last plain write
	read  stamp // last plain read; flagged if several warps read since the barrier
	other stamp // last read by a thread that is not read's; flagged if another block has read
	sync  stamp // last atomic, or strong write
	fixed stamp // last read that requires the launch to leave it unchanged: ld.global.nc
}

// A chunk has the cells of chunkBytes of a region, each of 1<<shift bytes. The
// first access chooses their size anew when all they hold is stale; a smaller
// one splits them.
type chunk struct {
	since stamp
	shift uint8
	cells []cell
}

const chunkBytes = 1024

// cells returns the cells of n bytes at off, a multiple of n, which is a
// power of two.
func (r *region) cells(off, n uint64, since stamp) []cell {
	c := &r.chunks[off/chunkBytes]
	if !c.fits(n, since) {
		c.prepare(n, since)
	}
	return c.cellsOf(off, n)
}

// fits reports whether the chunk holds what happens since, in cells of at most n bytes.
func (c *chunk) fits(n uint64, since stamp) bool { return c.since == since && n>>c.shift != 0 }

func (c *chunk) cellsOf(off, n uint64) []cell {
	first := off % chunkBytes >> c.shift
	return c.cells[first : first+n>>c.shift]
}

// prepare makes the chunk hold what happens since, in cells of n bytes.
func (c *chunk) prepare(n uint64, since stamp) {
	shift := uint8(bits.TrailingZeros64(n))
	count := chunkBytes >> shift
	coarse, finer := c.cells, c.shift-shift
	if cap(c.cells) < count {
		c.cells = make([]cell, count)
	}
	c.cells, c.shift = c.cells[:count], shift
	if c.since != since { // what it holds is stale, in cells of any size
		c.since = since
		return
	}
	for i := count - 1; i >= 0; i-- { // from the end, as both may be one array
		c.cells[i] = coarse[i>>finer]
	}
}

// A touch is a way to touch memory, and what a race is with.
type touch uint8

const (
	noTouch touch = iota
	touchRead
	touchWrite
	touchSync
	touchFixed
)

// order is what the race detector knows of a launch's threads.
type order struct {
	launch  stamp // accesses before it are of other launches
	block   stamp // accesses before it are of other blocks
	barrier stamp // the running block's accesses before it are ordered
	now     stamp

	warps     []warp
	warpPairs *[32][32]stamp // when two warps last met at a barrier of a part of the block

	blocks []blockRun // that have run, or run, in order

	fences       []stamp // when each thread last executed a fence
	fenceOrders  []fenceOrder
	fenced       []stamp // fences as of the last barrier
	anyFenced    bool    // the running block has fences in fenced
	newFences    bool    // the running block has fences since the last barrier
	syncs        map[uint64]*syncVar
	acquisitions []acquisition
}

// A blockRun is a block that has been started.
type blockRun struct {
	start stamp
	id    [3]int
}

// fenceOrder is what was ordered before a thread when it last executed a
// fence: accesses of its block before barrier, and of its warp before warp,
// when it last met other lanes there.
type fenceOrder struct{ barrier, warp stamp }

// A syncVar is a location on which blocks have released.
type syncVar struct{ releases []release }

// A release says which accesses of a block are visible to those who acquire
// the location on which it was done.
type release struct {
	block   int   // in order.blocks
	all     stamp // accesses before it, of any thread
	threads []threadRelease
	fenced  []stamp // accesses of each thread before it
}

type threadRelease struct {
	thread      int
	own, ofWarp stamp
}

// An acquisition is that of a block's thread.
type acquisition struct {
	from   *syncVar
	count  int // of releases that were there
	thread int
	at     stamp
}

// ordered reports whether the access s is ordered before what thread does now.
func (o *order) ordered(s stamp, thread int) bool {
	return s >= o.block && s < o.barrier || o.orderedElse(s, thread) // most often by the barrier
}

func (o *order) orderedElse(s stamp, thread int) bool {
	switch {
	case s < o.launch || s >= o.block && threadOf(s) == thread:
		return true
	case s < o.block:
		return o.acquired(s, thread)
	}
	return o.metAfter(s, thread)
}

// metAfter reports whether a barrier of the warp, or of a part of the block,
// has brought the two threads together after s.
func (o *order) metAfter(s stamp, thread int) bool {
	other := threadOf(s)
	if other/32 != thread/32 {
		return o.warpPairs != nil && s < o.warpPairs[other/32][thread/32]
	}
	w := &o.warps[thread/32]
	return s < w.met || w.pairs != nil && s < w.pairs[other%32][thread%32]
}

// read notes a plain read. If it races it returns with what. An access that the cell
// holds from before since is stale: of another launch, or in shared memory of
// another block.
func (o *order) read(c *cell, thread int, since stamp) (stamp, touch) {
	if c.write >= since && !o.ordered(c.write, thread) {
		return c.write, touchWrite
	}
	if c.sync >= since && !o.ordered(c.sync, thread) {
		return c.sync, touchSync
	}
	now := o.now | stamp(thread)<<1
	switch last := c.read; {
	case last < since:
		c.read, c.other = now, 0
	case last < o.block:
		c.read, c.other = now, stampFlag
	case last < o.barrier:
		c.read = now
	case threadOf(last) == thread:
		c.read = now | last&stampFlag
	default:
		c.other = last&^stampFlag | c.other&stampFlag
		c.read = now | last&stampFlag
		if threadOf(last)/32 != thread/32 {
			c.read |= stampFlag
		}
	}
	return 0, noTouch
}

// readsOrdered reports whether all reads of the cell are ordered before what
// thread does now, or else returns one that is not.
func (o *order) readsOrdered(c *cell, thread int, since stamp) (stamp, bool) {
	if c.read < since {
		return 0, true
	}
	if c.read < o.block {
		if c.other&stampFlag != 0 && !o.acquiredAll(thread) {
			return c.read, false
		}
		return c.read, o.acquired(c.read, thread)
	}
	if c.other&stampFlag != 0 && !o.acquiredAll(thread) {
		return stampFlag, false
	}
	if c.read < o.barrier {
		return 0, true
	}
	if last := c.read; threadOf(last) != thread && (last&stampFlag != 0 || !o.metAfter(last, thread)) {
		return last, false
	}
	if last := c.other; last >= o.barrier && threadOf(last) != thread && (c.read&stampFlag != 0 || !o.metAfter(last, thread)) {
		return last, false
	}
	return 0, true
}

// write notes a plain write. If it races it returns with what.
func (o *order) write(c *cell, thread int, since stamp) (stamp, touch) {
	if c.write >= since && !o.ordered(c.write, thread) {
		return c.write, touchWrite
	}
	return o.overwrite(c, thread, since)
}

// overwrite is write where the last write does no harm.
func (o *order) overwrite(c *cell, thread int, since stamp) (stamp, touch) {
	if c.sync >= since && !o.ordered(c.sync, thread) {
		return c.sync, touchSync
	}
	if c.fixed >= since {
		return c.fixed, touchFixed
	}
	if s, ok := o.readsOrdered(c, thread, since); !ok {
		return s, touchRead
	}
	c.write = o.now | stamp(thread)<<1
	return 0, noTouch
}

// syncRead checks a strong read, such as that of ld.acquire or ld.volatile.
// It is not noted: it races with plain writes only.
func (o *order) syncRead(c *cell, thread int, since stamp) (stamp, touch) {
	if c.write >= since && !o.ordered(c.write, thread) {
		return c.write, touchWrite
	}
	return 0, noTouch
}

// syncWrite notes an atomic or a strong write. They race with plain accesses,
// not with each other.
func (o *order) syncWrite(c *cell, thread int, since stamp) (stamp, touch) {
	if c.write >= since && !o.ordered(c.write, thread) {
		return c.write, touchWrite
	}
	if c.fixed >= since {
		return c.fixed, touchFixed
	}
	if s, ok := o.readsOrdered(c, thread, since); !ok {
		return s, touchRead
	}
	c.sync = o.now | stamp(thread)<<1
	return 0, noTouch
}

// startLaunch begins a launch whose blocks have that many threads.
func (o *order) startLaunch(threads int) {
	o.launch = o.now
	o.blocks = o.blocks[:0]
	o.syncs = nil
	if cap(o.fences) < threads {
		o.fences, o.fenced = make([]stamp, threads), make([]stamp, threads)
		o.fenceOrders = make([]fenceOrder, threads)
	}
	o.fences, o.fenced, o.fenceOrders = o.fences[:threads], o.fenced[:threads], o.fenceOrders[:threads]
}

func (o *order) startBlock(id [3]int) {
	o.block, o.barrier = o.now, o.now
	o.blocks = append(o.blocks, blockRun{start: o.now, id: id})
	o.anyFenced, o.newFences = false, false
	o.acquisitions = o.acquisitions[:0]
}

// fullBarrier orders everything that the block's threads have done before
// what they do from now on.
func (o *order) fullBarrier() {
	o.barrier = o.now
	if o.newFences {
		copy(o.fenced, o.fences)
		o.anyFenced, o.newFences = true, false
	}
}

// partBarrier is a barrier of some of the block's warps.
func (o *order) partBarrier(bar *barrier) {
	if o.warpPairs == nil {
		o.warpPairs = new([32][32]stamp)
	}
	for i, m := range bar.lanes {
		if m == 0 {
			continue
		}
		o.warps[i].met = o.now
		for j, n := range bar.lanes {
			if n != 0 {
				o.warpPairs[i][j] = o.now
			}
		}
	}
}

// fence notes a fence of the whole device.
func (o *order) fence(thread int) {
	w := &o.warps[thread/32]
	f := fenceOrder{barrier: o.barrier, warp: w.met}
	if w.pairs != nil {
		f.warp = max(f.warp, w.pairs[thread%32][thread%32])
	}
	o.fences[thread], o.fenceOrders[thread] = o.now, f
	o.newFences = true
}

// release notes an atomic or strong write of global memory, which releases
// what fences have made visible.
func (o *order) release(addr uint64, thread int) {
	byThread := o.fences[thread] > o.block
	if !byThread && !o.anyFenced {
		return
	}
	v := o.syncs[addr]
	if v == nil {
		if o.syncs == nil {
			o.syncs = map[uint64]*syncVar{}
		}
		v = &syncVar{}
		o.syncs[addr] = v
	}
	block := len(o.blocks) - 1
	if n := len(v.releases); n == 0 || v.releases[n-1].block != block {
		v.releases = append(v.releases, release{block: block})
	}
	r := &v.releases[len(v.releases)-1]
	if o.anyFenced {
		r.fenced = append(r.fenced[:0], o.fenced...)
	}
	if !byThread {
		return
	}
	f := o.fenceOrders[thread]
	r.all = max(r.all, f.barrier)
	t := threadRelease{thread: thread, own: o.fences[thread], ofWarp: f.warp}
	for i := range r.threads {
		if r.threads[i].thread == thread {
			r.threads[i] = t
			return
		}
	}
	r.threads = append(r.threads, t)
}

// acquire notes an atomic or strong read of global memory.
func (o *order) acquire(addr uint64, thread int) {
	if o.syncs == nil {
		return
	}
	v := o.syncs[addr]
	if v == nil {
		return
	}
	for _, a := range o.acquisitions {
		if a.from == v && a.thread == thread {
			return // no other block has run since
		}
	}
	o.acquisitions = append(o.acquisitions, acquisition{from: v, count: len(v.releases), thread: thread, at: o.now})
}

// sees reports whether what thread does now comes after the acquisition.
func (o *order) sees(a acquisition, thread int) bool {
	return a.thread == thread || a.at < o.barrier || o.metAfter(a.at|stamp(a.thread)<<1, thread)
}

// blockOf says which block was running at s.
func (o *order) blockOf(s stamp) int {
	return sort.Search(len(o.blocks), func(i int) bool { return o.blocks[i].start > s }) - 1
}

// acquired reports whether the access s of another block was released to
// thread.
func (o *order) acquired(s stamp, thread int) bool {
	block := o.blockOf(s)
	for _, a := range o.acquisitions {
		if r := a.of(block); r != nil && o.sees(a, thread) && r.covers(s) {
			return true
		}
	}
	return false
}

// acquiredAll reports whether all blocks that have run have released
// something to thread. It stands in where several blocks have read a byte,
// of which a cell keeps only the last.
func (o *order) acquiredAll(thread int) bool {
	for block := range len(o.blocks) - 1 {
		found := false
		for _, a := range o.acquisitions {
			found = found || a.of(block) != nil && o.sees(a, thread)
		}
		if !found {
			return false
		}
	}
	return true
}

// of returns what the block released, of what was acquired, or nil.
func (a acquisition) of(block int) *release {
	rs := a.from.releases[:a.count]
	i := sort.Search(len(rs), func(i int) bool { return rs[i].block >= block })
	if i == len(rs) || rs[i].block != block {
		return nil
	}
	return &rs[i]
}

func (r *release) covers(s stamp) bool {
	thread := threadOf(s)
	if s < r.all || r.fenced != nil && s < r.fenced[thread] {
		return true
	}
	for _, t := range r.threads {
		if t.thread == thread && s < t.own || t.thread/32 == thread/32 && s < t.ofWarp {
			return true
		}
	}
	return false
}
