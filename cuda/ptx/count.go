package ptx

import (
	"maps"
	"math/bits"
	"slices"
)

// Counts is what a launch did.
type Counts struct {
	Blocks  int64
	Instrs  int64 // of warps
	Special int64 // of warps, by the unit for special functions (MUFU): exp2, log2, sin, cos, tanh, roots, quotients
	Matrix  int64 // floating-point operations of mma.sync in 16-bit formats
	TF32    int64 // and in tf32
	Atomics int64 // lanes that updated global memory
	Loads   Access
	Stores  Access
	Shared  Banks
	Longest int64 // instructions of the block that has most, of those interpreted
	// Run is how many of the blocks were interpreted: where it is fewer, the other
	// numbers are what these say of all.
	Run int64
}

// Access is traffic to global memory.
type Access struct {
	Requests int64 // instructions of warps
	Bytes    int64 // of all lanes
	Distinct int64 // bytes, each counted once in the launch
	Sectors  int64 // of 32 bytes that requests touched
	Least    int64 // as few as could hold the bytes of each request
}

// Banks is traffic to shared memory, which has 32 banks of 4 bytes.
type Banks struct {
	Bytes int64
	// Passes is in how many turns the banks served the requests: those of 8 bytes a
	// half of the warp at a time, those of 16 a quarter.
	Passes int64
	Least  int64 // turns if no two words had been in the same bank
}

// tally counts while blocks run.
type tally struct {
	Counts
	bases  []uint64 // of operands: the parameters that are addresses, in ascending order
	prints map[stream]*footprint
	recent []*footprint // that each instruction last accessed
	undo   []undone     // of atomics, so that blocks can run again
}

// stream is an operand of the kernel, or memory that it found by another way, and
// what is done to it.
type stream struct {
	base  uint64
	store bool
}

// footprint is which bytes a stream has touched.
type footprint struct {
	stream
	end   uint64 // of the addresses that are the stream's
	pages map[uint64]*printPage
	last  uint64 // page
	at    *printPage
}

const printShift = 12

type printPage [1 << printShift / 64]uint64

type undone struct {
	r   *region
	off uint64
	old uint64
	n   uint64
}

func newTally(x *execution) *tally {
	t := &tally{prints: map[stream]*footprint{}, recent: make([]*footprint, x.entry.memOps)}
	for i := 0; i+8 <= len(x.params.data); i += 8 {
		if a := get(x.params.data[i:], 8); x.mem.lookup(a, 1) != nil {
			t.bases = append(t.bases, a)
		}
	}
	slices.Sort(t.bases)
	t.bases = slices.Compact(t.bases)
	return t
}

// print finds the footprint for an access.
func (t *tally) print(x *execution, op *memOp, addr uint64, store bool) *footprint {
	if p := t.recent[op.number]; p != nil && addr >= p.base && addr < p.end && p.store == store {
		return p
	}
	r := x.mem.lookup(addr, 1)
	if r == nil {
		return nil // a fault, which the access itself tells
	}
	p := &footprint{stream: stream{r.base, store}, end: r.base + r.size}
	i, found := slices.BinarySearch(t.bases, addr)
	if found {
		i++
	}
	if i > 0 && t.bases[i-1] >= r.base {
		p.base = t.bases[i-1]
	}
	if i < len(t.bases) {
		p.end = min(p.end, t.bases[i])
	}
	if old := t.prints[p.stream]; old != nil {
		p = old
	} else {
		p.pages = map[uint64]*printPage{}
		t.prints[p.stream] = p
	}
	t.recent[op.number] = p
	return p
}

// set enters n bytes, a power of two at a multiple of it.
func (p *footprint) set(addr, n uint64) {
	page := addr >> printShift
	if p.at == nil || p.last != page {
		p.last, p.at = page, p.pages[page]
		if p.at == nil {
			p.at = new(printPage)
			p.pages[page] = p.at
		}
	}
	p.at[addr%(1<<printShift)>>6] |= (uint64(1)<<n - 1) << (addr & 63)
}

func (p *footprint) count() (n int64) {
	if p == nil {
		return 0
	}
	for _, page := range p.pages {
		for _, w := range page {
			n += int64(bits.OnesCount64(w))
		}
	}
	return n
}

// pieces are the bytes that a footprint has.
func (p *footprint) pieces() (out []Piece) {
	for _, page := range slices.Sorted(maps.Keys(p.pages)) {
		for i, w := range p.pages[page] {
			at := page<<printShift + uint64(i)*64
			for w != 0 {
				from := uint64(bits.TrailingZeros64(w))
				n := uint64(bits.TrailingZeros64(^(w >> from)))
				if k := len(out); k > 0 && out[k-1].End == at+from {
					out[k-1].End += n
				} else {
					out = append(out, Piece{at + from, at + from + n})
				}
				if from+n >= 64 {
					break
				}
				w &^= uint64(1)<<(from+n) - 1
			}
		}
	}
	return out
}

// with is the bytes of two footprints, in one that is new; of one, it is that.
func (p *footprint) with(q *footprint) *footprint {
	if q == nil {
		return p
	}
	all := &footprint{stream: p.stream, end: p.end, pages: map[uint64]*printPage{}}
	for _, one := range []*footprint{p, q} {
		for at, page := range one.pages {
			if all.pages[at] == nil {
				all.pages[at] = new(printPage)
			}
			for i, w := range page {
				all.pages[at][i] |= w
			}
		}
	}
	return all
}

// common counts the bytes that two footprints share.
func (p *footprint) common(q *footprint) (n int64) {
	if p == nil || q == nil {
		return 0
	}
	for at, page := range p.pages {
		if other := q.pages[at]; other != nil {
			for i, w := range page {
				n += int64(bits.OnesCount64(w & other[i]))
			}
		}
	}
	return n
}

// access counts an instruction of a warp that touches n bytes at an address per lane.
func (t *tally) access(w *warp, op *memOp, base *row, offset uint64, m uint32, n uint64, store bool) {
	var global, shared [32]uint64
	globals, inShared := 0, uint32(0)
	for ; m != 0; m &= m - 1 {
		l := lowest(m)
		s, at := op.space, op.addr(base[l], offset)
		if s == spaceGeneric {
			s, at = generic(at)
		}
		switch s {
		case spaceGlobal:
			global[globals] = at
			globals++
		case spaceShared:
			shared[l] = at
			inShared |= 1 << l
		}
	}
	if inShared != 0 {
		t.Shared.access(&shared, inShared, n)
	}
	if globals > 0 {
		t.global(w.x, op, global[:globals], n, store)
	}
}

// global counts a request to global memory.
func (t *tally) global(x *execution, op *memOp, lanes []uint64, n uint64, store bool) {
	a := &t.Loads
	if store {
		a = &t.Stores
	}
	a.Requests++
	a.Bytes += int64(len(lanes)) * int64(n)
	if !slices.IsSorted(lanes) {
		slices.Sort(lanes)
	}
	unique, last := int64(0), ^uint64(0)
	for i, at := range lanes {
		if i > 0 && at == lanes[i-1] {
			continue
		}
		unique++
		if at>>5 != last {
			a.Sectors++
			last = at >> 5
		}
		if p := t.print(x, op, at, store); p != nil && at&(n-1) == 0 {
			p.set(at, n)
		}
	}
	a.Least += (unique*int64(n) + 31) / 32
}

// access counts a request to shared memory.
func (b *Banks) access(at *[32]uint64, m uint32, n uint64) {
	lanes := 32
	if n > 4 {
		lanes = int(128 / n)
	}
	for first := 0; first < 32; first += lanes {
		part := m >> first & uint32(1<<lanes-1)
		if part == 0 {
			continue
		}
		var turns bankTurns
		for ; part != 0; part &= part - 1 {
			word := at[first+lowest(part)] / 4
			for i := range max(1, n/4) {
				turns.ask(word + i)
			}
		}
		b.Passes += int64(turns.most)
		b.Least++
	}
	b.Bytes += int64(bits.OnesCount32(m)) * int64(n)
}

// bankTurns is what the banks are asked for at once.
type bankTurns struct {
	first [32]uint64 // word that each bank is asked for, plus 1
	more  []uint64   // words of banks that have another
	count [32]uint8  // of different words, by bank
	most  uint8
}

// ask asks a bank for a word; words that others have asked for come along.
func (t *bankTurns) ask(word uint64) {
	bank := word % 32
	switch {
	case t.first[bank] == word+1 || t.count[bank] > 1 && slices.Contains(t.more, word):
		return
	case t.first[bank] == 0:
		t.first[bank] = word + 1
	default:
		t.more = append(t.more, word)
	}
	t.count[bank]++
	t.most = max(t.most, t.count[bank])
}

// keep remembers a location before an atomic changes it.
func (t *tally) keep(r *region, off, old, n uint64) {
	t.Atomics++
	t.undo = append(t.undo, undone{r, off, old, n})
}

// revert takes the atomics back, the last one first.
func (t *tally) revert() {
	for _, u := range slices.Backward(t.undo) {
		put(u.r.data[u.off:u.off+u.n], u.n, u.old)
	}
}

// copies counts a cp.async: what it reads of global memory, and writes to shared.
func (t *tally) copies(w *warp, in *instr, m uint32) {
	sizes, full := &w.regs[in.c], uint32(0)
	for l := m; l != 0; l &= l - 1 {
		if sizes[lowest(l)] == in.mem.total {
			full |= 1 << lowest(l)
		}
	}
	if full != 0 { // parts of a copy, and none, are rare
		t.access(w, in.mem.from, &w.regs[in.b], in.imm, full, in.mem.total, false)
	}
	t.access(w, in.mem, &w.regs[in.a], in.offset, m, in.mem.total, true)
}

// multiplied counts an mma.sync.
func (t *tally) multiplied(op *mmaOp) {
	n := int64(2 * 16 * 8 * op.depth)
	if op.in == tTF32 {
		t.TF32 += n
	} else {
		t.Matrix += n
	}
}
