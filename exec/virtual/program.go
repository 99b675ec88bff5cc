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
	c.reader = &programs{c: c, list: list, first: list[0], known: map[workKey]int{}, kinds: map[string]int{},
		exchange: map[[2]int]int{}, groups: map[lowering.Group]int{}, unrolled: map[int]*unrolled{}}
	c.reader.read()
	c.batches = []*batch{{unrolled: c.unroll(1)}}
	c.ranks = make([]rankClock, len(list))
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

	exchange map[[2]int]int         // the clock's, by stage and place among its collectives
	groups   map[lowering.Group]int // numbers them
	unrolled map[int]*unrolled      // by the number of pieces that loops run
}

// unrolled are the programs of all ranks for some pieces.
type unrolled struct {
	pieces   int
	programs []*program // by rank
	meetings []meetings
	known    map[place]int // of meetings
}

// meetings is where the ranks of a group come together: one of its collectives.
type meetings struct {
	lowering.Group
	group  int    // its number
	ranks  uint64 // a bit for each
	passes bool   // tensors between stages
}

// place is a collective of a group: which one.
type place struct {
	lowering.Group
	n int
}

// meeting is the number of the next collective of a group.
func (u *unrolled) meeting(g lowering.Group, n int, p *programs, passes bool) int {
	at, ok := u.known[place{g, n}]
	if ok {
		return at
	}
	m := meetings{Group: g, passes: passes}
	if m.group, ok = p.groups[g]; !ok {
		m.group = len(p.groups)
		p.groups[g] = m.group
	}
	for i := range g.Size {
		m.ranks |= 1 << g.At(i)
	}
	u.meetings = append(u.meetings, m)
	u.known[place{g, n}] = len(u.meetings) - 1
	return len(u.meetings) - 1
}

// mostUnrolled bounds the cache of unrolled programs.
const mostUnrolled = 4

// unroll returns the programs for a number of pieces of loops.
func (c *clock) unroll(pieces int) *unrolled {
	p := c.reader
	u, ok := p.unrolled[pieces]
	if !ok {
		if len(p.unrolled) == mostUnrolled {
			clear(p.unrolled)
		}
		u = &unrolled{pieces: pieces, known: map[place]int{}}
		for _, s := range p.list {
			u.programs = append(u.programs, p.program(s, pieces, u))
		}
		p.unrolled[pieces] = u
	}
	return u
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
func (p *programs) program(s *lowering.Schedule, pieces int, all *unrolled) *program {
	out := &program{schedule: s}
	u := unroller{p, out, all, map[lowering.Group]int{}, map[int]int{}, map[int]int{}, map[int]int{}}
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
	out  *program
	all  *unrolled
	came map[lowering.Group]int // its collectives so far
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
		u.collective(&st, at)
	default:
		st.work, st.with = u.work(u.out.schedule, at), u.with[at]
	}
	u.out.steps[st.Stream] = append(u.out.steps[st.Stream], st)
}

// collective numbers an exchange and where it meets other ranks.
func (u *unroller) collective(st *step, at int) {
	s := u.out.schedule
	key := [2]int{s.Stage, st.exchange}
	x, ok := u.exchange[key]
	if !ok {
		x = len(u.c.exchanges)
		u.exchange[key], u.c.exchanges = x, append(u.c.exchanges, newExchange(s, st.Step))
	}
	if st.exchange = x; s.Replica == 0 {
		u.c.exchanges[x].join(ranksOf(s, st.Step))
	}
	if k, ok := s.Then(at); ok {
		u.with[k] = x + 1
	}
	g := s.Group(st.Step)
	st.meeting = u.all.meeting(g, u.came[g], u.programs, st.Op == lowering.Send || st.Op == lowering.Receive)
	u.came[g]++
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
	types := s.Payload(st)
	_, x.bytes = graph.Payload(types...)
	for _, t := range types {
		x.sent = x.sent.Plus(graph.Sent(st.Op, t, x.ranks))
	}
	if st.Op == lowering.Send || st.Op == lowering.Receive { // one of the two sends all
		x.sent = x.sent.Times(graph.Const(int64(x.ranks)))
	}
	return x
}
