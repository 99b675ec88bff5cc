package ptx

import "slices"

func decodeBranch(b *builder, o *opcode) instr {
	in := instr{kind: instrBranch}
	o.take("uni")
	b.count(1, 1)
	in.label = b.label(b.s.args[0].name)
	return in
}

// dependence is the compute capability from which launches may overlap.
const dependence = 90

// decodeDependence decodes griddepcontrol. Launches run one after the other here, also those that
// overlap: what counts is that their threads wait before they touch what others may still write.
func decodeDependence(b *builder, o *opcode) instr {
	if target := b.entry.module.target; target < dependence {
		panic(b.errorf("%s needs .target sm_%d; the module is for sm_%d", b.s.name, dependence, target))
	}
	switch {
	case o.take("wait"):
		b.count(0, 0)
		return instr{kind: instrExec, exec: func(w *warp, _ *instr, m uint32) { w.early &^= m }}
	case o.take("launch_dependents"):
		b.count(0, 0)
		return instr{kind: instrRow, row: func(_, _, _, _ *row) {}}
	}
	panic(b.errorf("%s is not modelled", b.s.name))
}

// awaited checks, in a launch that overlaps with the one before, that lanes have waited for it
// before they touch global memory. Loads by .nc need not wait, nor need copies that pass the first
// cache: they are of what no launch writes, which the region tells.
func (w *warp) awaited(in *instr, m uint32, op *memOp) bool {
	if op.space != spaceGlobal && op.space != spaceGeneric || op.early {
		return true
	}
	if early := m & w.early; early != 0 {
		w.fail(in, lowest(early), NotAwaited, "touches memory before griddepcontrol.wait, and its launch overlaps with the one before")
		return false
	}
	return true
}

// constant checks, in such a launch, that what is loaded by .nc no launch has written: the cache it
// goes through may have kept what was there before.
func (w *warp) constant(in *instr, m uint32, r *region) bool {
	if !in.mem.fixed || !r.stored.Load() {
		return true
	}
	w.fail(in, lowest(m), NotAwaited, "loads by .nc what a launch has written, and its launch overlaps with the one before")
	return false
}

// decodeTable decodes brx.idx i, table.
func decodeTable(b *builder, o *opcode) instr {
	in := instr{kind: instrTable}
	o.take("uni")
	if !o.take("idx") {
		panic(b.errorf("%s is not modelled", b.s.name))
	}
	b.count(2, 2)
	in.a = b.src(b.s.args[0], tU32)
	for i := len(b.scopes) - 1; i >= 0 && b.scopes[i] != nil; i-- {
		names, ok := b.scopes[i].tables[b.s.args[1].name]
		if !ok {
			continue
		}
		for _, name := range names {
			in.table = append(in.table, b.label(name))
		}
		return in
	}
	panic(b.errorf("there is no table %s", b.s.args[1].name))
}

func decodeExit(b *builder, o *opcode) instr {
	o.take("uni")
	b.count(0, 0)
	return instr{kind: instrExit}
}

func decodeTrap(b *builder, o *opcode) instr {
	b.count(0, 0)
	return trapping("executes " + o.name)
}

func trapping(text string) instr {
	return instr{kind: instrExec, exec: func(w *warp, in *instr, m uint32) {
		w.fail(in, lowest(m), Trap, "%s", text)
	}}
}

// A barOp is a barrier of the block: bar.sync, bar.arrive or bar.red.
type barOp struct {
	id     int32 // row
	count  int32 // row of the number of threads; 0 for all
	arrive bool
	red    string // popc, and, or; empty without
	value  pred   // of red
}

// decodeBar decodes bar and barrier.
func decodeBar(b *builder, o *opcode) instr {
	if o.take("warp") {
		in := instr{kind: instrSync, exec: syncWarp}
		if !o.take("sync") {
			panic(b.errorf("%s is not modelled", b.s.name))
		}
		b.count(1, 1)
		in.mask = b.src(b.s.args[0], tB32)
		return in
	}
	in := instr{kind: instrBar, operands: operands{bar: &barOp{}}}
	o.take("cta")
	o.take("aligned")
	args := b.s.args
	switch o.first("sync", "arrive", "red") {
	case "sync":
		b.barrierArgs(&in, args, 1)
		return in
	case "arrive":
		in.bar.arrive = true
		b.barrierArgs(&in, args, 2)
		return in
	case "red":
		return b.barrierRed(o, in, args)
	}
	panic(b.errorf("%s is not modelled", b.s.name))
}

// barrierArgs decodes "id{, count}".
func (b *builder) barrierArgs(in *instr, args []operand, least int) {
	if len(args) < least || len(args) > 2 {
		panic(b.errorf("%d operands", len(b.s.args)))
	}
	in.bar.id = b.src(args[0], tU32)
	if len(args) == 2 {
		in.bar.count = b.src(args[1], tU32)
	}
}

// barrierRed decodes bar.red.op.type d, id{, count}, p.
func (b *builder) barrierRed(o *opcode, in instr, args []operand) instr {
	in.bar.red = o.oneOf("popc", "and", "or")
	t, ok := o.typ()
	if !ok || in.bar.red == "" || (in.bar.red == "popc") != (t == tU32) || t != tU32 && t != tPred || len(args) < 3 {
		panic(b.errorf("%s has no such form", b.s.name))
	}
	in.p = -1
	if t == tPred {
		in.p = b.predDst(args[0])
	} else {
		in.d = b.dst(args[0], t)
	}
	in.bar.value = b.pred(args[len(args)-1])
	b.barrierArgs(&in, args[1:len(args)-1], 1)
	return in
}

// hostCalls are functions of the CUDA runtime that a kernel may call; here
// they end it.
var hostCalls = []string{"vprintf", "__assertfail"}

// call expands "call (results), name, (arguments)" in place. Its parameters
// live in the caller's local memory.
func (b *builder) call(o *opcode) {
	o.take("uni")
	s := b.s
	args := s.args
	var results, actuals []operand
	if len(args) > 0 && args[0].kind == operandList {
		results, args = args[0].items, args[1:]
	}
	if len(args) > 1 && args[1].kind == operandList {
		actuals = args[1].items
	}
	if len(args) == 0 || len(args) > 2 || args[0].kind != operandName {
		panic(b.errorf("only calls of functions by name are modelled"))
	}
	name := args[0].name
	if slices.Contains(hostCalls, name) {
		b.finish(o, trapping("calls "+name))
		return
	}
	f := b.module.functions[name]
	switch {
	case f == nil || !f.defined:
		panic(b.errorf("function %s is not defined here", name))
	case f.entry:
		panic(b.errorf("a call of the kernel %s", name))
	case slices.Contains(b.stack, f):
		panic(b.errorf("function %s calls itself, which is not modelled", name))
	case len(b.stack) > maxStackDepth:
		panic(b.errorf("calls are more than %d deep", maxStackDepth))
	}
	b.expand(o, f, results, actuals)
}

func (b *builder) expand(o *opcode, f *function, results, actuals []operand) {
	s := b.s
	after := &label{}
	if s.guard != "" {
		p := b.pred(operand{name: s.guard, not: !s.guardNot})
		b.emit(instr{kind: instrBranch, guard: p.index, flip: p.flip, line: int32(s.line), operands: operands{label: after}})
	}
	if len(o.mods) > 0 {
		panic(b.errorf("modifier .%s is not modelled", o.mods[0]))
	}
	bound := map[string]symbol{}
	b.bind(bound, f.results, results)
	b.bind(bound, f.params, actuals)
	b.scopes = append(b.scopes, nil)
	b.push(f.body)
	for name, sym := range bound {
		b.define(name, sym)
	}
	b.function(f, after)
	b.scopes = b.scopes[:len(b.scopes)-2]
	b.s = s
	after.pc = int32(len(b.code))
}

// bind gives formal parameters the places of the actual ones.
func (b *builder) bind(bound map[string]symbol, formals []*variable, actuals []operand) {
	if len(formals) != len(actuals) {
		panic(b.errorf("%d arguments for %d parameters", len(actuals), len(formals)))
	}
	for i, f := range formals {
		sym, ok := b.lookup(actuals[i].name)
		if actuals[i].kind != operandName || !ok || sym.kind != symbolAddress || sym.space != spaceLocal || sym.bytes < f.bytes {
			panic(b.errorf("argument %s does not fit parameter %s of %d bytes", actuals[i].name, f.name, f.bytes))
		}
		bound[f.name] = sym
	}
}
