package ptx

import "slices"

func decodeBranch(b *builder, o *opcode) (instr, error) {
	in := instr{kind: instrBranch}
	o.take("uni")
	if err := b.count(1, 1); err != nil {
		return in, err
	}
	var err error
	in.label, err = b.label(b.s.args[0].name)
	return in, err
}

// decodeDependence decodes griddepcontrol. Launches run one after the other here, also those that
// overlap: what counts is that their threads wait before they touch what others may still write.
func decodeDependence(b *builder, o *opcode) (instr, error) {
	switch {
	case o.take("wait"):
		return instr{kind: instrExec, exec: func(w *warp, _ *instr, m uint32) { w.early &^= m }}, b.count(0, 0)
	case o.take("launch_dependents"):
		return instr{kind: instrRow, row: func(_, _, _, _ *row) {}}, b.count(0, 0)
	}
	return instr{}, b.errorf("%s is not modelled", b.s.name)
}

// awaited checks, in a launch that overlaps with the one before, that lanes have waited for it before
// they touch global memory, and that no load is by .nc: the cache it goes through may have kept what
// was there before.
func (w *warp) awaited(in *instr, m uint32, op *memOp) bool {
	if op.space != spaceGlobal && op.space != spaceGeneric {
		return true
	}
	if early := m & w.early; early != 0 {
		w.fail(in, lowest(early), NotAwaited, "touches memory before griddepcontrol.wait, and its launch overlaps with the one before")
		return false
	}
	if op.fixed {
		w.fail(in, lowest(m), NotAwaited, "loads by .nc, and its launch overlaps with the one before, which may write that")
		return false
	}
	return true
}

// decodeTable decodes brx.idx i, table.
func decodeTable(b *builder, o *opcode) (instr, error) {
	in := instr{kind: instrTable}
	o.take("uni")
	if !o.take("idx") {
		return in, b.errorf("%s is not modelled", b.s.name)
	}
	if err := b.count(2, 2); err != nil {
		return in, err
	}
	var err error
	if in.a, err = b.src(b.s.args[0], tU32); err != nil {
		return in, err
	}
	for i := len(b.scopes) - 1; i >= 0 && b.scopes[i] != nil; i-- {
		names, ok := b.scopes[i].tables[b.s.args[1].name]
		if !ok {
			continue
		}
		for _, name := range names {
			l, err := b.label(name)
			if err != nil {
				return in, err
			}
			in.table = append(in.table, l)
		}
		return in, nil
	}
	return in, b.errorf("there is no table %s", b.s.args[1].name)
}

func decodeExit(b *builder, o *opcode) (instr, error) {
	o.take("uni")
	return instr{kind: instrExit}, b.count(0, 0)
}

func decodeTrap(b *builder, o *opcode) (instr, error) {
	return trapping("executes " + o.name), b.count(0, 0)
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
func decodeBar(b *builder, o *opcode) (instr, error) {
	if o.take("warp") {
		in := instr{kind: instrSync, exec: syncWarp}
		if !o.take("sync") {
			return in, b.errorf("%s is not modelled", b.s.name)
		}
		if err := b.count(1, 1); err != nil {
			return in, err
		}
		var err error
		in.mask, err = b.src(b.s.args[0], tB32)
		return in, err
	}
	in := instr{kind: instrBar, operands: operands{bar: &barOp{}}}
	o.take("cta")
	o.take("aligned")
	args := b.s.args
	switch o.first("sync", "arrive", "red") {
	case "sync":
		return in, b.barrierArgs(&in, args, 1)
	case "arrive":
		in.bar.arrive = true
		return in, b.barrierArgs(&in, args, 2)
	case "red":
		return b.barrierRed(o, in, args)
	}
	return in, b.errorf("%s is not modelled", b.s.name)
}

// barrierArgs decodes "id{, count}".
func (b *builder) barrierArgs(in *instr, args []operand, least int) error {
	if len(args) < least || len(args) > 2 {
		return b.errorf("%d operands", len(b.s.args))
	}
	var err error
	if in.bar.id, err = b.src(args[0], tU32); err != nil || len(args) == 1 {
		return err
	}
	in.bar.count, err = b.src(args[1], tU32)
	return err
}

// barrierRed decodes bar.red.op.type d, id{, count}, p.
func (b *builder) barrierRed(o *opcode, in instr, args []operand) (instr, error) {
	in.bar.red = o.oneOf("popc", "and", "or")
	t, ok := o.typ()
	if !ok || in.bar.red == "" || (in.bar.red == "popc") != (t == tU32) || t != tU32 && t != tPred || len(args) < 3 {
		return in, b.errorf("%s has no such form", b.s.name)
	}
	var err error
	in.p = -1
	if t == tPred {
		in.p, err = b.predDst(args[0])
	} else {
		in.d, err = b.dst(args[0], t)
	}
	if err != nil {
		return in, err
	}
	if in.bar.value, err = b.pred(args[len(args)-1]); err != nil {
		return in, err
	}
	return in, b.barrierArgs(&in, args[1:len(args)-1], 1)
}

// hostCalls are functions of the CUDA runtime that a kernel may call; here
// they end it.
var hostCalls = []string{"vprintf", "__assertfail"}

// call expands "call (results), name, (arguments)" in place. Its parameters
// live in the caller's local memory.
func (b *builder) call(o *opcode) error {
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
		return b.errorf("only calls of functions by name are modelled")
	}
	name := args[0].name
	if slices.Contains(hostCalls, name) {
		return b.finish(o, trapping("calls "+name))
	}
	f := b.module.functions[name]
	switch {
	case f == nil || !f.defined:
		return b.errorf("function %s is not defined here", name)
	case f.entry:
		return b.errorf("a call of the kernel %s", name)
	case slices.Contains(b.stack, f):
		return b.errorf("function %s calls itself, which is not modelled", name)
	case len(b.stack) > maxStackDepth:
		return b.errorf("calls are more than %d deep", maxStackDepth)
	}
	return b.expand(o, f, results, actuals)
}

func (b *builder) expand(o *opcode, f *function, results, actuals []operand) error {
	s := b.s
	after := &label{}
	if s.guard != "" {
		p, err := b.pred(operand{name: s.guard, not: !s.guardNot})
		if err != nil {
			return err
		}
		b.emit(instr{kind: instrBranch, guard: p.index, flip: p.flip, line: int32(s.line), operands: operands{label: after}})
	}
	if len(o.mods) > 0 {
		return b.errorf("modifier .%s is not modelled", o.mods[0])
	}
	bound := map[string]symbol{}
	if err := b.bind(bound, f.results, results); err != nil {
		return err
	}
	if err := b.bind(bound, f.params, actuals); err != nil {
		return err
	}
	b.scopes = append(b.scopes, nil)
	if err := b.push(f.body); err != nil {
		return err
	}
	for name, sym := range bound {
		b.define(name, sym)
	}
	if err := b.function(f, after); err != nil {
		return err
	}
	b.scopes = b.scopes[:len(b.scopes)-2]
	b.s = s
	after.pc = int32(len(b.code))
	return nil
}

// bind gives formal parameters the places of the actual ones.
func (b *builder) bind(bound map[string]symbol, formals []*variable, actuals []operand) error {
	if len(formals) != len(actuals) {
		return b.errorf("%d arguments for %d parameters", len(actuals), len(formals))
	}
	for i, f := range formals {
		sym, ok := b.lookup(actuals[i].name)
		if actuals[i].kind != operandName || !ok || sym.kind != symbolAddress || sym.space != spaceLocal || sym.bytes < f.bytes {
			return b.errorf("argument %s does not fit parameter %s of %d bytes", actuals[i].name, f.name, f.bytes)
		}
		bound[f.name] = sym
	}
	return nil
}
