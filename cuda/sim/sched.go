package sim

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
)

// task is a piece of work, which a graph may run many times.
type task struct {
	name  string // of the call
	work  func() error
	cost  time.Duration // on the simulated clock
	calls []*call       // of a collective
	// marker: it marks a place, waits, or is the first half of a product; graphs do
	// not count it.
	marker bool
	about  about // for meters
}

// op is a task in a queue.
type op struct {
	*task
	lane  *lane
	after []*op // what must be done first, besides what is before it in its lane
	done  bool
	at    time.Duration // when it was done
	clock clock         // see order
	place position      // likewise, once it is done
	inner []*lane       // of a graph
	waits int           // for another device: what signals.given was then, and 1; 0: it does not
	chain int           // of launches that wait for each other, the longest that ends here

	parts  []*part // of a collective's calls
	replay []*lane // of a graph, until they are let go
}

// finish marks an op done and forgets what it holds.
func (o *op) finish(at time.Duration) {
	o.done, o.at = true, at
	o.task = &task{name: o.name}
	o.after, o.parts, o.replay = nil, nil, nil
}

// free says whether all that must be done before an op that is first in its
// lane is done.
func (o *op) free() bool {
	o.after = slices.DeleteFunc(o.after, func(b *op) bool {
		if b.done {
			o.chain = max(o.chain, b.chain)
			if b.clock != nil {
				o.clock = o.clock.join(b.clock)
			}
		}
		return b.done
	})
	return len(o.after) == 0
}

// lane is a queue of ops: a stream, or what a graph has of one.
type lane struct {
	p      *primary
	role   int // number of the stream on its device
	queue  []*op
	graph  *op // that the lane is part of; nil for a stream
	number int // of those that the order knows
	clock  clock
	chain  int // the longest that ends in what was done so far
}

// open says whether the lane's ops may run: its graph has been reached.
func (l *lane) open() bool { return l.graph == nil || l.graph.replay == nil }

func (l *lane) first() *op {
	if len(l.queue) == 0 {
		return nil
	}
	return l.queue[0]
}

// scheduler chooses the order of all work of the machine.
type scheduler struct {
	random   *rand.Rand
	wake     sync.Cond // signalled when there is progress
	progress int       // counts it
	order    *order    // nil: not checked
	lanes    []*lane   // that have ops
	seed     uint64
	mood     mood
	changes  int           // of the mood
	fresh    bool          // there were none before, and a new mood is due
	now      time.Duration // simulated clock
	signals  signals
}

// mood is how the scheduler is unkind for a while.
type mood struct {
	kind         moodKind
	device, role int    // the stream that it is about
	op           *op    // of that stream
	salt         uint64 // of the ranks of the other streams; 0: they have none
	until        int    // progress
}

type moodKind int

const (
	starve     moodKind = iota // one stream comes last
	starveRole                 // streams of one number come last, on all devices
	prefer                     // one stream comes first
	preferRole                 // streams of one number come first
	delay                      // one stream comes first up to an op, which comes last
	shuffle                    // anything goes
	moods
)

// steadiness is how long a mood lasts, if the lanes do not run dry before: long
// enough for a stream to fall far behind.
const steadiness = 256

// change chooses a mood. To starve one stream finds most missing waits, if it
// is the right one: every other mood does that, to one stream after the other,
// from seed to seed and from time to time.
func (s *scheduler) change() {
	turn := int(s.seed%(1<<20)) + s.changes
	s.changes++
	victim, kind := s.lanes[turn/2%len(s.lanes)], starve
	if turn%2 == 1 {
		victim, kind = s.lanes[s.random.IntN(len(s.lanes))], moodKind(s.random.IntN(int(moods)))
	}
	s.mood = mood{
		kind: kind, device: victim.p.info.Index, role: victim.role,
		op: victim.queue[s.random.IntN(len(victim.queue))], until: s.progress + steadiness,
	}
	if s.random.IntN(2) == 0 {
		s.mood.salt = s.random.Uint64() | 1
	}
	s.fresh = false
}

// lateness ranks a lane: of those that may run, the lowest does.
func (m mood) lateness(l *lane) uint64 {
	rank := (uint64(l.p.info.Index)<<32 | uint64(l.role) + 1) * m.salt >> 2
	role := l.role == m.role
	one := role && l.p.info.Index == m.device
	switch {
	case m.kind == starve && one, m.kind == starveRole && role, m.kind == prefer && !one, m.kind == preferRole && !role:
		return 1<<62 | rank
	case m.kind == delay && l.first() == m.op:
		return 2<<62 | rank
	case m.kind == delay && !one:
		return 1<<62 | rank
	case m.kind == shuffle:
		return 0
	}
	return rank
}

// push puts an op at the end of a lane.
func (s *scheduler) push(l *lane, o *op) {
	o.lane = l
	if s.order != nil {
		s.order.pushed(l, o)
	}
	s.fresh = s.fresh || len(s.lanes) == 0
	if len(l.queue) == 0 {
		s.lanes = append(s.lanes, l)
	}
	l.queue = append(l.queue, o)
	s.progress++
	s.wake.Broadcast()
}

// sweep removes lanes that are empty.
func (s *scheduler) sweep() {
	s.lanes = slices.DeleteFunc(s.lanes, func(l *lane) bool { return len(l.queue) == 0 })
}

// step runs one op of those that may run, and says whether there was one.
func (d *Driver) step() bool {
	if len(d.lanes) > 0 && (d.fresh || d.progress > d.mood.until) {
		d.change()
	}
	var best []*op
	var rank uint64
	for _, l := range d.lanes {
		o := l.first()
		if !o.free() || o.parts != nil && d.arrived(o) == nil || o.waits > d.signals.given {
			continue
		}
		if late := d.mood.lateness(l); best == nil || late < rank {
			best, rank = append(best[:0], o), late
		} else if late == rank {
			best = append(best, o)
		}
	}
	if best == nil {
		return false
	}
	o := best[d.random.IntN(len(best))]
	d.run(o)
	if o.waits > d.signals.given {
		return d.step()
	}
	d.progress++
	d.wake.Broadcast()
	return true
}

// run runs an op that is first in its lane.
func (d *Driver) run(o *op) {
	switch {
	case o.lane.p.lost != nil:
	case o.parts != nil:
		d.exchange(d.arrived(o))
		return
	case o.replay != nil:
		if d.order != nil {
			d.order.replays(o)
		}
		for _, l := range o.replay {
			o.after = append(o.after, l.queue[len(l.queue)-1])
			l.chain = max(o.chain, o.lane.chain)
			d.lanes = append(d.lanes, l)
		}
		o.replay = nil // it is done when they are
		d.fresh = true
		return
	case o.work != nil:
		o.chain = max(o.chain, o.lane.chain)
		switch err := d.look(o); {
		case err == errWaits:
			o.waits = d.signals.given + 1
			return
		case err != nil:
			o.lane.p.lose(o.name, err)
			return
		}
	}
	d.complete(o)
}

// look runs the work of an op, and counts and looks for what it may overlap with where
// that is asked for.
func (d *Driver) look(o *op) error {
	if d.order == nil {
		return d.count(o)
	}
	d.order.begins(o)
	d.order.last = o.about.touches
	if err := d.count(o); err != nil || o.marker {
		return err
	}
	d.order.acquires(o, d.signals.of(o).Acquired)
	if err := d.order.check(o, d.order.last); err != nil {
		return err
	}
	d.order.releases(o, d.signals.of(o).Released)
	return nil
}

// complete takes an op that has run from its lane.
func (d *Driver) complete(o *op) {
	d.now += o.cost
	if !o.about.Kernel || len(d.signals.of(o).Released) > 0 {
		d.signals.given++
	}
	o.lane.chain = max(o.lane.chain, o.chain)
	o.chain = o.lane.chain
	if d.order != nil {
		d.order.done(o)
	}
	o.finish(d.now)
	o.lane.queue = o.lane.queue[1:]
	d.sweep()
}

// until runs work until o is done. Where nothing can run it waits for other
// threads to bring what is missing, but not forever.
func (p *primary) until(call string, o *op) error {
	idle, seen := time.Now(), p.progress
	for !o.done && p.lost == nil && !p.gone {
		if p.step() {
			p.mu.Unlock() // others may want to put in work
			p.mu.Lock()
			continue
		}
		if seen != p.progress {
			idle, seen = time.Now(), p.progress
		}
		why := p.why(o)
		left := time.Until(idle.Add(min(p.o.Patience, why.grace)))
		if left <= 0 {
			return why.timeout(call, p.o.Patience)
		}
		alarm := time.AfterFunc(left, p.ring)
		p.wake.Wait()
		alarm.Stop()
	}
	switch {
	case p.lost != nil:
		return again(p.lost, call)
	case p.gone:
		return driver.CUDA(call, driver.InvalidContext).Because("device %d was closed meanwhile", p.info.Index)
	}
	p.order.waited(o.clock, len(p.lanes) == 0)
	return nil
}

func (d *Driver) ring() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wake.Broadcast()
}
