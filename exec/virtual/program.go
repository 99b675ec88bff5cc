package virtual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

const streams = 2 // of a schedule

// program is a rank's schedule, by streams.
type program struct {
	schedule *lowering.Schedule
	steps    [streams][]step
	events   int
}

// step is one of a stream.
type step struct {
	*lowering.Step
	event int // of Record and Wait: counted from 0
	work  int // of a launch: which of the clock's
	nth   int // of a collective: which of the step's
}

// newClock is that of the schedules of all ranks.
func newClock(list []*lowering.Schedule, d *Device, rater *cost.Rater) *clock {
	c := &clock{rater: rater, link: &d.Profile.Link, slow: make([]float64, len(list)), slowLink: 1}
	for r := range list {
		c.slow[r] = 1
		if f, ok := d.SlowRanks[r]; ok {
			c.slow[r] = f
		}
	}
	for _, f := range d.SlowLinks {
		c.slowLink = max(c.slowLink, f)
	}
	r := &programs{c: c, first: list[0], known: map[workKey]int{}, kinds: map[string]int{}}
	r.read()
	for _, s := range list {
		c.programs = append(c.programs, r.program(s))
	}
	c.seconds = make([]float64, len(c.works))
	c.start(0)
	return c
}

// programs reads schedules. Steps that are alike on a rank are costed once for a batch.
type programs struct {
	c     *clock
	first *lowering.Schedule
	kind  []int // of the steps of the first: which of the kinds
	kinds map[string]int
	known map[workKey]int
}

// workKey is a kind of steps on a rank.
type workKey struct{ kind, rank int }

// read finds out which steps of the first schedule are alike.
func (p *programs) read() {
	for i := range p.first.Steps {
		k := -1
		if st := &p.first.Steps[i]; st.Kind == lowering.Launch || st.Kind == lowering.Relayout {
			k = p.kindOf(st)
		}
		p.kind = append(p.kind, k)
	}
}

func (p *programs) kindOf(st *lowering.Step) int {
	var b strings.Builder
	fmt.Fprint(&b, st.Op.Name, st.Attrs)
	for _, refs := range [][]lowering.Ref{st.Args, st.Results} {
		for i := range refs {
			fmt.Fprint(&b, " ", refs[i].Type)
		}
	}
	k, ok := p.kinds[b.String()]
	if !ok {
		k = len(p.kinds)
		p.kinds[b.String()] = k
	}
	return k
}

func (p *programs) program(s *lowering.Schedule) *program {
	out, events, nth := &program{schedule: s}, map[int]int{}, 0
	for i := range s.Steps {
		st := step{Step: &s.Steps[i]}
		switch st.Kind {
		case lowering.Record, lowering.Wait:
			e, ok := events[st.Event]
			if !ok {
				e = len(events)
				events[st.Event] = e
			}
			st.event = e
		case lowering.Collective:
			if st.nth = nth; s == p.first {
				p.c.exchanges = append(p.c.exchanges, newExchange(st.Step, s.Ranks))
			}
			nth++
		default:
			st.work = p.work(s, i)
		}
		out.steps[st.Stream] = append(out.steps[st.Stream], st)
	}
	out.events = len(events)
	return out
}

// work is what step i takes on the schedule's rank. Ranks mostly have the same steps.
func (p *programs) work(s *lowering.Schedule, i int) int {
	st := &s.Steps[i]
	k := -1
	if i < len(p.kind) && alike(st, &p.first.Steps[i]) {
		k = p.kind[i]
	}
	if k < 0 {
		k = p.kindOf(st)
	}
	key := workKey{k, s.Rank}
	w, ok := p.known[key]
	if !ok {
		w = len(p.c.works)
		p.known[key] = w
		p.c.works = append(p.c.works, cost.WorkOf(s, st))
	}
	return w
}

// alike reports whether two steps are the same but for their ranks.
func alike(a, b *lowering.Step) bool {
	same := func(a, b lowering.Ref) bool { return a.Type.Equal(b.Type) }
	return a.Op == b.Op && a.Kind == b.Kind && a.Name == b.Name && slices.EqualFunc(a.Args, b.Args, same) && slices.EqualFunc(a.Results, b.Results, same)
}

// exchange is a collective of the step.
type exchange struct {
	op          *graph.Op
	name        string
	ranks       int
	bytes, sent graph.Poly
}

func newExchange(st *lowering.Step, ranks int) exchange {
	x := exchange{op: st.Op, name: st.Name, ranks: ranks}
	_, x.bytes = graph.Payload(st.ArgTypes()...)
	for _, t := range st.ArgTypes() {
		x.sent = x.sent.Plus(graph.Sent(st.Op, t, ranks))
	}
	return x
}

// travel is how a batch's data of the collective travels.
func (x *exchange) travel(l *cost.Link, z graph.Sizes) cost.Travel {
	return l.Best(cost.ExchangeOf(x.op, x.ranks, x.bytes.Float(z), x.sent.Float(z)))
}
