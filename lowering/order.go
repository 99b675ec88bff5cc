package lowering

import (
	"fmt"
	"slices"
)

// clock counts, per stream, the steps that are known to be done.
type clock [numStreams]int

func (c *clock) merge(d clock) {
	for i := range c {
		c[i] = max(c[i], d[i])
	}
}

// stamp is a step: the n-th of its stream, counted from 1; 0 is before the batch.
type stamp struct {
	stream Stream
	n      int
	name   string
}

// cell is a stretch of a region: which buffer was written there last, by which
// step, and the last step of each stream that read it since.
type cell struct {
	span
	buffer int
	value  string // the name under which it was written
	wrote  stamp
	serves []int // outputs: of the step that wrote it
	reads  [numStreams]stamp
}

// order walks the steps in their order and knows what must have happened before.
type order struct {
	s      *Schedule
	known  [numStreams]clock
	events map[int]clock
	cells  [len(spaceNames)][]cell // of arena and constants; sorted, disjoint
	made   map[string]bool         // values that a step writes

	exchanged stamp // the last collective
	errs      []error
}

// checkOrder proves that reads see what they mean in every order that streams
// and events allow. That the steps as listed respect the events is part of it.
func (s *Schedule) checkOrder() []error {
	o := &order{s: s, events: map[int]clock{}, made: map[string]bool{}}
	for _, steps := range [][]Step{s.Init, s.Steps} {
		for i := range steps {
			for _, r := range steps[i].Results {
				o.made[r.Name] = true
			}
		}
	}
	for i := range s.Init {
		if st := &s.Init[i]; st.Kind == Launch || st.Kind == Relayout {
			o.step(st, true)
		} else {
			o.fail("init: %s is not a launch", st)
		}
	}
	for i := range o.known { // the weights are there before the first batch
		o.known[i] = o.known[Compute]
	}
	for i, end := 0, 0; i < len(s.Steps); i = end {
		end = LoopEnd(s.Steps, i)
		o.loop(s.Steps[i:end])
	}
	end := o.known[Compute]
	if end[Comm] != o.known[Comm][Comm] {
		o.fail("the batch ends before the last collective is done")
	}
	for i, out := range s.Outputs {
		o.read(&out.Ref, stamp{Compute, end[Compute] + 1, "output " + out.Name}, []int{i})
	}
	return o.errs
}

// loop takes the steps of a loop twice: what the second piece needs must be there after
// the first. A piece is gone when the loop ends.
func (o *order) loop(steps []Step) {
	for range min(2, 1+steps[0].Loop) {
		for i := range steps {
			o.step(&steps[i], false)
		}
	}
	for _, cells := range o.cells {
		for i := range cells {
			if c := &cells[i]; c.buffer >= 0 && o.s.Buffers[c.buffer].Space.OfPiece() {
				c.buffer = -1
			}
		}
	}
}

func (o *order) fail(format string, args ...any) {
	o.errs = append(o.errs, fmt.Errorf(format, args...))
}

func (o *order) step(st *Step, init bool) {
	me := &o.known[st.Stream]
	switch st.Kind {
	case Record:
		if _, ok := o.events[st.Event]; ok {
			o.fail("event %d is recorded twice", st.Event)
		}
		o.events[st.Event] = *me
		return
	case Wait:
		e, ok := o.events[st.Event]
		if !ok {
			o.fail("%s: it is not recorded before", st)
		}
		me.merge(e)
		return
	}
	at := stamp{st.Stream, me[st.Stream] + 1, st.Name}
	if st.Kind == Collective {
		if !o.before(o.exchanged, at) {
			o.fail("%s on %s does not wait for %s on %s: ranks may come to them in another order", at.name, at.stream, o.exchanged.name, o.exchanged.stream)
		}
		o.exchanged = at
	}
	for i := range st.Args {
		o.read(&st.Args[i], at, st.For)
	}
	for i := range st.Results {
		o.sharing(st, i)
		o.write(st, &st.Results[i], at, init)
	}
	me[st.Stream]++
}

// before reports whether a step is known to be done when at runs.
func (o *order) before(a, at stamp) bool { return a.n <= o.known[at.stream][a.stream] }

// read is of a step that is there for some outputs.
func (o *order) read(r *Ref, at stamp, serves []int) {
	b := &o.s.Buffers[r.Buffer]
	if b.Space < Constant { // no step writes them, but state, of which each is one step's
		if !covers(b.For, serves) {
			o.fail("%s reads %s, which batches may be without", at.name, r.Name)
		}
		return
	}
	o.visit(b, func(c *cell) {
		switch {
		case c.buffer < 0:
			o.fail("%s reads %s, which no step has written", at.name, r.Name)
		case c.buffer != r.Buffer || o.made[r.Name] && c.value != r.Name:
			o.fail("%s reads %s, which %s has overwritten", at.name, r.Name, c.wrote.name)
		case !o.before(c.wrote, at):
			o.fail("%s on %s reads %s, and does not wait for %s on %s", at.name, at.stream, r.Name, c.wrote.name, c.wrote.stream)
		}
		if !covers(c.serves, serves) {
			o.fail("%s reads %s, which is there%s only", at.name, r.Name, o.s.outputNames(c.serves))
		}
		c.reads[at.stream] = at
	})
}

// sharing refuses a result that lies where an operand of the same step does, unless
// the operation's kernels allow for it.
func (o *order) sharing(st *Step, result int) {
	b := &o.s.Buffers[st.Results[result].Buffer]
	for i := range st.Args {
		a := &o.s.Buffers[st.Args[i].Buffer]
		region, at := o.s.Place(a)
		with, to := o.s.Place(b)
		overlap := region == with && max(at, to) < min(at+a.Bytes, to+b.Bytes)
		if b.Space >= Constant && overlap && !o.s.intended(st, result, i) {
			o.fail("%s writes %s over %s, which it reads", st.Name, st.Results[result].Name, st.Args[i].Name)
		}
	}
}

// write is also a read of what the step updates in place.
func (o *order) write(st *Step, r *Ref, at stamp, init bool) {
	b := &o.s.Buffers[r.Buffer]
	if b.Space < Constant || init != (b.Space == Constant) {
		if b.Space != State && b.Space != Cache || !slices.ContainsFunc(st.Args, func(a Ref) bool { return a.Buffer == r.Buffer }) {
			o.fail("%s writes %s, which is in the region %s", at.name, r.Name, b.Space)
		}
		return
	}
	if r.Offset != 0 || !o.s.fills(r.Type, b) {
		o.fail("%s writes %s, a part of %s", at.name, r.Name, b.Name)
	}
	o.visit(b, func(c *cell) {
		if c.wrote == at {
			o.fail("%s writes two results to %s", at.name, b.Name)
		}
		for _, before := range append(c.reads[:], c.wrote) {
			if !o.before(before, at) && before != at {
				o.fail("%s on %s writes %s where %s on %s may not be done", at.name, at.stream, r.Name, before.name, before.stream)
			}
		}
		*c = cell{span: c.span, buffer: r.Buffer, value: r.Name, wrote: at, serves: st.For}
	})
}

// visit shows the cells under a buffer, cut to its bounds.
func (o *order) visit(b *Buffer, see func(*cell)) {
	if b.Bytes == 0 {
		return
	}
	region, at := o.s.Place(b)
	cells := &o.cells[region]
	if *cells == nil {
		end := o.s.Bytes[region]
		for space := range Space(len(spaceNames)) {
			if space != region && space.Before() == region {
				end += o.s.Bytes[space]
			}
		}
		*cells = []cell{{span: span{0, end}, buffer: -1}}
	}
	o.cut(cells, at)
	o.cut(cells, at+b.Bytes)
	for i := range *cells {
		if c := &(*cells)[i]; c.start >= at && c.end <= at+b.Bytes {
			see(c)
		}
	}
}

// cut makes a cell begin at an offset.
func (o *order) cut(cells *[]cell, at int64) {
	for i, c := range *cells {
		if c.start < at && at < c.end {
			left := c
			left.end = at
			(*cells)[i].start = at
			*cells = slices.Insert(*cells, i, left)
			return
		}
	}
}
