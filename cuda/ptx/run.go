package ptx

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// Launch is the shape of one run of a kernel.
type Launch struct {
	Grid, Block [3]int
	Shared      int    // bytes of dynamic shared memory
	Params      []byte // the parameter block, laid out as Params says
	Seed        uint64 // shuffles the order of the blocks; 0 runs them in their natural order
	Steps       int64  // instructions that one warp may execute; 0 for DefaultSteps
	Registers   int    // of a thread, by ptxas, of which a block has 65536; 0: not known
	MaxShared   int    // bytes of shared memory that a block of the device may have; 0: 227 KiB
	Capability  [2]int // of the GPU whose tensor cores are modelled; 0: 8.0
	Dependent   bool   // it may begin before the launch before it has ended, for which its threads wait (griddepcontrol.wait)
	Meter       *Meter // counts what the launch does; nil: not counted
	Peers       *Peers // of a machine with several devices; nil: there are none
}

// DefaultSteps is how many instructions a warp may execute in a block.
const DefaultSteps = 1 << 28

// Limits of a launch, those of sm_80 to sm_90.
const (
	maxThreads      = 1024
	maxGridX        = 1<<31 - 1
	maxGridYZ       = 1<<16 - 1
	maxStaticShared = 48 << 10
	maxShared       = 227 << 10
	maxBlocks       = 1 << 40 // not a device's limit
)

// MaxRegisters is how many registers a multiprocessor has, and so a block at most.
const MaxRegisters = 64 << 10

// execution is a launch that is running.
type execution struct {
	order
	ctx     context.Context
	mem     *Memory
	entry   *Entry
	module  *moduleState
	l       Launch
	ctaid   [3]int
	threads int // in a block
	params  region
	shared  *region
	recent  []*region // that each instruction last accessed
	bars    [16]barrier
	limit   int64
	fault   *Fault
	before  []before // what a launch that may wait for another device has written over
	tally   *tally   // nil: not counted
	counts
}

// counts is what has been executed.
type counts struct{ warpInstrs, threadInstrs int64 }

// scratch is what launches in a memory use one after the other.
type scratch struct {
	x      execution
	shared region
	warps  []warp
	rows   []row
	local  []byte
}

// Run executes the whole grid, block by block, and stops at the first fault,
// which it returns as a *Fault. It also stops when ctx is done.
func (e *Entry) Run(ctx context.Context, mem *Memory, l Launch) error {
	mem.mu.Lock()
	defer mem.mu.Unlock()
	if text := e.checkLaunch(l); text != "" {
		return &Fault{Kernel: e.name, Kind: BadLaunch, Text: text}
	}
	x := e.prepare(ctx, mem, l)
	err := x.all()
	if x.fault != nil && x.fault.Kind == Waits {
		x.takeBack()
	}
	return err
}

// all runs the whole grid.
func (x *execution) all() error {
	if x.l.Meter != nil {
		return x.metered(x.l.Meter)
	}
	for _, id := range blockOrder(x.l) {
		if err := x.one(id); err != nil {
			return err
		}
	}
	return nil
}

// one runs a block, unless the launch was given up.
func (x *execution) one(id [3]int) error {
	if err := x.ctx.Err(); err != nil {
		return fmt.Errorf("kernel %s: %w", x.entry.name, err)
	}
	return x.runBlock(id)
}

// checkLaunch says what is wrong with a launch, or nothing.
func (e *Entry) checkLaunch(l Launch) string {
	b, g := l.Block, l.Grid
	switch {
	case min(b[0], b[1], b[2], g[0], g[1], g[2]) <= 0:
		return fmt.Sprintf("a grid of %v blocks of %v threads", g, b)
	case b[0] > maxThreads || b[1] > maxThreads || b[2] > 64 || b[0]*b[1]*b[2] > maxThreads:
		return fmt.Sprintf("blocks of %v threads; at most %d, and 64 in z, are possible", b, maxThreads)
	case g[0] > maxGridX || g[1] > maxGridYZ || g[2] > maxGridYZ:
		return fmt.Sprintf("a grid of %v blocks; at most %d in x, and %d in y and z, are possible", g, maxGridX, maxGridYZ)
	case g[0]*g[1] > maxBlocks/g[2]:
		return fmt.Sprintf("a grid of %v blocks, more than can be interpreted", g)
	case e.reqntid != [3]int{} && e.reqntid != b:
		return fmt.Sprintf("blocks of %v threads for .reqntid %v", b, e.reqntid)
	case e.maxntid != [3]int{} && b[0]*b[1]*b[2] > e.maxntid[0]*e.maxntid[1]*e.maxntid[2]:
		return fmt.Sprintf("blocks of %v threads for .maxntid %v", b, e.maxntid)
	case e.shared > maxStaticShared:
		return fmt.Sprintf("%d bytes of static shared memory; at most %d are possible", e.shared, maxStaticShared)
	case l.Shared < 0 || e.dynamicAt()+l.Shared > l.maxShared():
		return fmt.Sprintf("%d bytes of shared memory on top of %d static ones; at most %d are possible", l.Shared, e.shared, l.maxShared())
	case RegistersOf(l.Registers, b[0]*b[1]*b[2]) > MaxRegisters:
		return fmt.Sprintf("blocks of %d threads of %d registers take %d; a multiprocessor has %d", b[0]*b[1]*b[2], l.Registers, RegistersOf(l.Registers, b[0]*b[1]*b[2]), MaxRegisters)
	case len(l.Params) != e.paramBytes:
		return fmt.Sprintf("%d bytes of parameters for %d", len(l.Params), e.paramBytes)
	}
	return ""
}

func (l *Launch) maxShared() int {
	if l.MaxShared == 0 {
		return maxShared
	}
	return min(l.MaxShared, maxShared)
}

// RegistersOf is what a block takes: a warp gets registers by 256, and four warps, one of
// each part of a multiprocessor, as many as the largest.
func RegistersOf(perThread, threads int) int {
	return alignUp(perThread*32, 256) * alignUp((threads+31)/32, 4)
}

// dynamicAt is where dynamic shared memory starts.
func (e *Entry) dynamicAt() int { return alignUp(e.shared, e.sharedAlign) }

// blockOrder lists the blocks in the order in which they run.
func blockOrder(l Launch) func(yield func(int, [3]int) bool) {
	n := l.Grid[0] * l.Grid[1] * l.Grid[2]
	id := func(i int) [3]int { return [3]int{i % l.Grid[0], i / l.Grid[0] % l.Grid[1], i / l.Grid[0] / l.Grid[1]} }
	if l.Seed == 0 {
		return func(yield func(int, [3]int) bool) {
			for i := range n {
				if !yield(i, id(i)) {
					return
				}
			}
		}
	}
	return func(yield func(int, [3]int) bool) {
		for i, j := range rand.New(rand.NewPCG(l.Seed, 0)).Perm(n) {
			if !yield(i, id(j)) {
				return
			}
		}
	}
}

// prepare sets up what is the same for all blocks. It reuses what the last
// launch in the memory has left.
func (e *Entry) prepare(ctx context.Context, mem *Memory, l Launch) *execution {
	s := &mem.scratch
	x := &s.x
	x.ctx, x.mem, x.entry, x.module, x.l = ctx, mem, e, mem.module(e.module), l
	x.threads = l.Block[0] * l.Block[1] * l.Block[2]
	x.params = region{size: uint64(len(l.Params)), data: l.Params}
	x.fault, x.counts, x.tally, x.before = nil, counts{}, nil, x.before[:0]
	l.Peers.begin()
	x.recent = append(x.recent[:0], make([]*region, e.memOps)...)
	if x.limit = l.Steps; x.limit <= 0 {
		x.limit = DefaultSteps
	}
	x.shared = s.sharedRegion(e.dynamicAt() + l.Shared)
	if mem.Unchecked {
		x.shared.chunks = nil
	}
	x.order.warps = s.warpsFor(x, (x.threads+31)/32)
	x.advance()
	x.startLaunch(x.threads)
	return x
}

// advance begins a new tick.
func (x *execution) advance() {
	x.mem.tick++
	x.now = x.mem.tick << stampShift
}

func (s *scratch) sharedRegion(bytes int) *region {
	r := &s.shared
	if len(r.data) < maxShared {
		*r = region{data: make([]byte, maxShared), chunks: make([]chunk, (maxShared+chunkBytes-1)/chunkBytes)}
		r.written = newWritten(maxShared)
		r.missing = 1 << 62 // there is always something unwritten, so that written stays
	}
	r.size = uint64(bytes)
	return r
}

// warpsFor sets up the registers of n warps and fills the rows that stay.
func (s *scratch) warpsFor(x *execution, n int) []warp {
	e := x.entry
	if len(s.rows) < n*e.rows {
		s.rows = make([]row, n*e.rows)
	}
	stride := alignUp(e.local, 64)
	if len(s.local) < n*32*stride {
		s.local = make([]byte, n*32*stride)
	}
	if len(s.warps) < n {
		s.warps = append(s.warps, make([]warp, n-len(s.warps))...)
	}
	for i := range n {
		w := &s.warps[i]
		w.x, w.index = x, i
		w.all = fullMask
		if rest := x.threads - i*32; rest < 32 {
			w.all = 1<<rest - 1
		}
		w.regs = s.rows[i*e.rows : (i+1)*e.rows]
		if len(w.preds) < e.preds {
			w.preds = make([]uint32, e.preds)
		}
		w.preds[0] = fullMask
		w.stride = uint64(stride)
		w.local = region{data: s.local[i*32*stride : (i+1)*32*stride], missing: 1 << 62}
		if w.written = w.written[:0]; cap(w.written) < stride/2 {
			w.written = newWritten(int64(32 * stride))
		}
		w.local.written = w.written[:stride/2]
	}
	x.order.warps = s.warps[:n]
	for i := range x.warps {
		x.warps[i].fillFixed(false)
	}
	return s.warps[:n]
}

// fillFixed fills the rows that the kernel reads only: those that are the same
// in all blocks, or those that are not.
func (w *warp) fillFixed(ofBlock bool) {
	for _, f := range w.x.entry.fixed {
		isOfBlock := f.kind == fixedSpecial && special(f.value) >= specialCtaidX && special(f.value) <= specialCtaidZ
		if isOfBlock != ofBlock {
			continue
		}
		v := f.value
		switch f.kind {
		case fixedSpecial:
			w.x.fillSpecial(special(f.value), w.index, &w.regs[f.row])
			continue
		case fixedGlobal:
			v += w.x.module.globals[f.name].base
		case fixedDynamicShared:
			v += uint64(w.x.entry.dynamicAt())
		}
		for l := range w.regs[f.row] {
			w.regs[f.row][l] = v
		}
	}
}

// runBlock runs one block to its end.
func (x *execution) runBlock(id [3]int) error {
	x.ctaid = id
	x.advance()
	x.startBlock(id)
	clear(x.shared.written[:(x.shared.size+63)/64])
	x.bars = [16]barrier{}
	for i := range x.warps {
		x.warps[i].start()
	}
	for running := true; running; {
		progress := false
		running = false
		for i := range x.warps {
			w := &x.warps[i]
			if w.runnable() {
				w.run()
				progress = true
				if x.fault != nil {
					return x.fault
				}
			}
			running = running || w.live != 0
		}
		if err := x.ctx.Err(); err != nil {
			return fmt.Errorf("kernel %s: %w", x.entry.name, err)
		}
		if running && !progress {
			x.stuck()
			return x.fault
		}
	}
	return nil
}

// threadID is a thread's place in the block.
func (x *execution) threadID(thread int) [3]int {
	b := x.l.Block
	return [3]int{thread % b[0], thread / b[0] % b[1], thread / (b[0] * b[1])}
}

// fail notes a fault of a lane, the first one only.
func (w *warp) fail(in *instr, l int, kind FaultKind, format string, args ...any) {
	x := w.x
	if x.fault != nil {
		return
	}
	x.fault = &Fault{
		Kernel: x.entry.name, Line: int(in.line), Source: x.entry.module.source(int(in.line)),
		Block: x.ctaid, Thread: x.threadID(w.thread(l)), Kind: kind, Text: fmt.Sprintf(format, args...),
	}
}
