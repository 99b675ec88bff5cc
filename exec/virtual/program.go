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
	meetings int
}

// step is one of a stream.
type step struct {
	*lowering.Step
	event    int // of Record and Wait: counted from 0, anew where it is recorded again
	work     int // of a launch: which of the clock's
	exchange int // of a collective: which of the clock's
	meeting  int // and where it meets the others
	piece    int // of a loop: which
	with     int // of a launch: the exchange, counted from 1, whose launch may do it as well; 0: none
}

// newClock is that of the schedules of all ranks.
func newClock(list []*lowering.Schedule, d *Device, rater *cost.Rater) *clock {
	c := &clock{rater: rater, profile: d.Profile, slow: make([]float64, len(list)), slowLink: 1}
	for r := range list {
		c.slow[r] = 1
		if f, ok := d.SlowRanks[r]; ok {
			c.slow[r] = f
		}
	}
	for _, f := range d.SlowLinks {
		c.slowLink = max(c.slowLink, f)
	}
	c.reader = &programs{c: c, list: list, first: list[0], known: map[workKey]int{}, kinds: map[string]int{}, unrolled: map[int][]*program{}}
	c.reader.read()
	c.unroll(1)
	return c
}

// programs reads schedules. Steps that are alike on a rank are costed once for a batch.
type programs struct {
	c     *clock
	list  []*lowering.Schedule
	first *lowering.Schedule
	kind  []int // of the steps of the first: which of the kinds
	kinds map[string]int
	known map[workKey]int

	unrolled map[int][]*program // by the number of pieces that loops run
}

// mostUnrolled bounds the cache of unrolled programs.
const mostUnrolled = 4

// unroll sets the number of pieces of loops.
func (c *clock) unroll(pieces int) {
	p := c.reader
	list, ok := p.unrolled[pieces]
	if !ok {
		if len(p.unrolled) == mostUnrolled {
			clear(p.unrolled)
		}
		for _, s := range p.list {
			list = append(list, p.program(s, pieces))
		}
		p.unrolled[pieces] = list
	}
	if c.pieces = pieces; len(c.programs) > 0 && c.programs[0] == list[0] {
		return
	}
	c.programs, c.ranks, c.meets = list, make([]rankClock, len(list)), make([]meeting, list[0].meetings)
	for r, p := range list {
		c.ranks[r].events = make([]float64, p.events)
	}
}

// workKey is a kind of steps on a rank.
type workKey struct{ kind, rank int }

// read finds the kinds of steps of the first schedule.
func (p *programs) read() {
	for i := range p.first.Steps {
		k := -1
		if st := &p.first.Steps[i]; st.Kind == lowering.Launch || st.Kind == lowering.Relayout {
			k = p.kindOf(p.first, st)
		}
		p.kind = append(p.kind, k)
	}
}

func (p *programs) kindOf(s *lowering.Schedule, st *lowering.Step) int {
	var b strings.Builder
	fmt.Fprint(&b, st.Op.Name, st.Attrs)
	for _, refs := range [][]lowering.Ref{st.Args, st.Results} {
		for i := range refs {
			fmt.Fprint(&b, " ", refs[i].Type, s.Buffers[refs[i].Buffer].Narrow)
		}
	}
	k, ok := p.kinds[b.String()]
	if !ok {
		k = len(p.kinds)
		p.kinds[b.String()] = k
	}
	return k
}

// program is a rank's, with its loops unrolled.
func (p *programs) program(s *lowering.Schedule, pieces int) *program {
	out := &program{schedule: s}
	u := unroller{p, out, map[int]int{}, map[int]int{}, map[int]int{}}
	for i, end, exchange := 0, 0, 0; i < len(s.Steps); i = end {
		end = lowering.LoopEnd(s.Steps, i)
		times := 1
		if s.Steps[i].Loop > 0 {
			times = pieces
		}
		collectives := 0
		for piece := range times {
			collectives = 0
			for at := i; at < end; at++ {
				st := step{Step: &s.Steps[at], piece: piece, exchange: exchange + collectives}
				u.add(st, at)
				if st.Kind == lowering.Collective {
					collectives++
				}
			}
		}
		exchange += collectives
	}
	return out
}

// unroller gives the steps of a rank their numbers.
type unroller struct {
	*programs
	out *program
	// By the schedule's number of an event: which it is since it was recorded last, and
	// which it will be, where a step that waits is listed before.
	events, awaited map[int]int
	with            map[int]int // by step of the schedule; see step.with
}

func (u *unroller) add(st step, at int) {
	switch st.Kind {
	case lowering.Record:
		e, ok := u.awaited[st.Event]
		if !ok {
			e = u.event()
		}
		delete(u.awaited, st.Event)
		u.events[st.Event], st.event = e, e
	case lowering.Wait:
		e, ok := u.events[st.Event]
		if !ok {
			if e, ok = u.awaited[st.Event]; !ok {
				e = u.event()
				u.awaited[st.Event] = e
			}
		}
		st.event = e
	case lowering.Collective:
		if k, ok := u.out.schedule.Then(at); ok {
			u.with[k] = st.exchange + 1
		}
		st.meeting = u.out.meetings
		u.out.meetings++
		if st.exchange == len(u.c.exchanges) { // the first rank's, the first time
			u.c.exchanges = append(u.c.exchanges, newExchange(u.out.schedule, st.Step))
		}
		u.c.exchanges[st.exchange].join(ranksOf(u.out.schedule, st.Step))
	default:
		st.work, st.with = u.work(u.out.schedule, at), u.with[at]
	}
	u.out.steps[st.Stream] = append(u.out.steps[st.Stream], st)
}

func (u *unroller) event() int {
	u.out.events++
	return u.out.events - 1
}

// work returns the index of the work of step i on the schedule's rank. Most ranks have the same
// steps.
func (p *programs) work(s *lowering.Schedule, i int) int {
	st := &s.Steps[i]
	k := -1
	if i < len(p.kind) && alike(st, &p.first.Steps[i]) {
		k = p.kind[i]
	}
	if k < 0 {
		k = p.kindOf(s, st)
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
	axes        cost.Axes    // of the mesh, along which it runs
	groups      [][]int      // of ranks that run it, each for itself
	reaches     []cost.Reach // how these lie on nodes
}

func newExchange(s *lowering.Schedule, st *lowering.Step) exchange {
	group := ranksOf(s, st)
	x := exchange{op: st.Op, name: st.Name, ranks: len(group), axes: axesOf(meshOf(s), group)}
	_, x.bytes = graph.Payload(st.ArgTypes()...)
	for _, t := range st.ArgTypes() {
		x.sent = x.sent.Plus(graph.Sent(st.Op, t, x.ranks))
	}
	return x
}
