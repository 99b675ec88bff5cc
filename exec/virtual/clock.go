package virtual

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// clock keeps the time of every stream of every rank.
type clock struct {
	reader    *programs
	works     []cost.Work
	exchanges []exchange
	rater     *cost.Rater
	profile   *cost.Profile
	nodes     cost.Arrangement
	slow      []float64 // by rank
	slowLink  float64

	batches []*batch // of the current step, in the order in which each rank runs them

	ranks   []rankClock
	met     []float64 // by group of ranks: the most seconds of kernels of one when all met last
	flights []flight  // collectives in transit
	crowds  []float64 // of each, for follow
	now     float64   // the time to which they were advanced
	record  func(exec.Event)
}

// batch is one that goes through the ranks of a replica.
type batch struct {
	*unrolled
	replica int
	after   []*batch // from whose end on the first stage runs it, after the host's part of a step
	open    int      // ranks of the replica that have not run it
	end     float64  // when the last of those that have was done

	// The times of all rows, and of the rows of a piece, which has one of two lengths, the second
	// longer by one.
	takes [3]takes
	meets []meeting // of collectives
}

// takes has the times of steps for some sizes.
type takes struct {
	sizes   graph.Sizes
	seconds []float64     // by work
	launch  float64       // of them, what a launch costs by itself
	travels []cost.Travel // by exchange
}

// rankClock is a rank in the middle of a step.
type rankClock struct {
	batch  int // that it runs
	at     [streams]float64
	next   [streams]int
	came   [streams]bool // to the collective that is next
	events []float64     // when they happened; not a number: not yet
	busy   float64       // seconds of kernels
	idle   float64       // seconds that it waited for other stages
}

// meeting is a collective where ranks come together.
type meeting struct {
	came  int
	start float64 // when the last one came
	end   float64 // not a number: it has not ended
}

// flight is a collective whose ranks are all there.
type flight struct {
	meet   *meeting
	ranks  uint64 // a bit for each that takes part
	travel *cost.Travel
	left   float64 // seconds that its bytes take alone
	from   float64 // when they begin to travel
}

// batch sets the n-th batch of the step, and computes the times of all of its steps.
func (c *clock) batch(n int, z graph.Sizes, graphs bool) *batch {
	for len(c.batches) <= n {
		c.batches = append(c.batches, &batch{})
	}
	c.batches = c.batches[:n+1]
	b, s := c.batches[n], c.reader.first
	b.replica, b.after = 0, b.after[:0]
	b.unrolled = c.unroll(s.PieceCount(int(z.Tokens)))
	b.takes[0].fill(c, z, graphs)
	if s.PieceTokens == 0 {
		return b
	}
	y := z
	y.Tokens /= int64(b.pieces)
	b.takes[1].fill(c, y, graphs)
	y.Tokens++
	b.takes[2].fill(c, y, graphs)
	return b
}

func (t *takes) fill(c *clock, z graph.Sizes, graphs bool) {
	t.sizes, t.seconds, t.travels = z, t.seconds[:0], t.travels[:0]
	t.launch = c.rater.Launch(graphs)
	for i := range c.works {
		t.seconds = append(t.seconds, c.rater.Time(&c.works[i], z, graphs))
	}
	for i := range c.exchanges {
		x := c.exchanges[i].travel(c.profile, z)
		t.travels = append(t.travels, x.Slowed(c.slowLink))
	}
}

// of returns the times for a step: of all rows, or of those of its piece.
func (b *batch) of(st *step) *takes {
	all := &b.takes[0]
	if st.Loop == 0 {
		return all
	}
	n := b.programs[0].schedule.Piece(int(all.sizes.Tokens), st.piece).Len
	return &b.takes[1+n-int(b.takes[1].sizes.Tokens)]
}

// start resets all ranks to a time.
func (c *clock) start(at float64) {
	c.ranks = slices.Grow(c.ranks[:0], len(c.reader.list))[:len(c.reader.list)]
	for r := range c.ranks {
		k := &c.ranks[r]
		k.batch, k.busy, k.idle = -1, 0, 0
		k.at = [streams]float64{at, at}
		c.next(r)
	}
	for _, b := range c.batches {
		b.end, b.open = 0, 0
		for _, s := range c.reader.list {
			if s.Replica == b.replica {
				b.open++
			}
		}
		b.meets = slices.Grow(b.meets[:0], len(b.meetings))[:len(b.meetings)]
		for i := range b.meets {
			b.meets[i] = meeting{end: math.NaN()}
		}
	}
	c.met = slices.Grow(c.met[:0], len(c.reader.groups))[:len(c.reader.groups)]
	clear(c.met)
	c.flights, c.now = c.flights[:0], at
}

// next lets a rank go on with its next batch.
func (c *clock) next(r int) {
	k, replica := &c.ranks[r], c.reader.list[r].Replica
	for k.batch++; k.batch < len(c.batches) && c.batches[k.batch].replica != replica; k.batch++ {
	}
	if k.batch == len(c.batches) {
		return
	}
	end := max(k.at[0], k.at[1])
	k.at, k.next, k.came = [streams]float64{end, end}, [streams]int{}, [streams]bool{}
	n := c.batches[k.batch].programs[r].events
	k.events = slices.Grow(k.events[:0], n)[:n]
	for i := range k.events {
		k.events[i] = math.NaN()
	}
}

// run runs the batches of a step from a time on, and returns when the last rank is done.
func (c *clock) run(at float64, runs func(serves []int, rank int) bool) (end float64, err error) {
	c.start(at)
	for {
		done, moved := true, false
		for r := range c.ranks {
			d, m := c.rank(r, runs)
			done, moved = d && done, m || moved
		}
		if done {
			break
		}
		if moved { // a rank may wait for one that has moved since
			continue
		}
		if len(c.flights) == 0 {
			return 0, errors.New("the ranks wait for each other for ever: a collective that not all take part in, or an event that is not recorded")
		}
		c.land()
	}
	for i := range c.ranks {
		end = max(end, c.ranks[i].at[0], c.ranks[i].at[1])
	}
	end = max(end, at)
	for i := range c.ranks {
		c.ranks[i].idle += end - max(c.ranks[i].at[0], c.ranks[i].at[1])
	}
	return end, nil
}

// rank runs a rank's streams as far as possible, and reports whether its batches have ended, and
// whether a step ran.
func (c *clock) rank(r int, runs func([]int, int) bool) (done, moved bool) {
	k := &c.ranks[r]
	for k.batch < len(c.batches) {
		b := c.batches[k.batch]
		if !c.begins(r, b) {
			return false, moved
		}
		m, ended := c.steps(r, b, runs)
		moved = moved || m
		if !ended {
			return false, moved
		}
		b.end = max(b.end, k.at[0], k.at[1])
		b.open--
		moved = true
		c.next(r)
	}
	return true, moved
}

// begins reports whether a rank may run a batch: one of the first stage, once those have ended that
// it comes after.
func (c *clock) begins(r int, b *batch) bool {
	k, from := &c.ranks[r], 0.0
	if c.reader.list[r].Stage > 0 {
		return true
	}
	for _, x := range b.after {
		if x.open > 0 {
			return false
		}
		from = max(from, x.end+c.profile.Overhead.Step.Value)
	}
	k.idle += max(0, from-max(k.at[0], k.at[1]))
	for s := range k.at {
		k.at[s] = max(k.at[s], from)
	}
	return true
}

// steps runs the steps of a batch on a rank as far as possible.
func (c *clock) steps(r int, b *batch, runs func([]int, int) bool) (moved, done bool) {
	for again := true; again; {
		again, done = false, true
		for s := range lowering.Stream(streams) {
			steps := b.programs[r].steps[s]
			for next := &c.ranks[r].next[s]; *next < len(steps); *next++ {
				if !c.step(r, b, &steps[*next], runs) {
					done = false
					break
				}
				again, moved = true, true
			}
		}
	}
	return moved, done
}

// step takes a step on its stream, and reports whether the stream can go on.
func (c *clock) step(r int, b *batch, st *step, runs func([]int, int) bool) bool {
	k := &c.ranks[r]
	at := &k.at[st.Stream]
	switch st.Kind {
	case lowering.Record:
		k.events[st.event] = *at
	case lowering.Wait:
		when := k.events[st.event]
		if math.IsNaN(when) {
			return false
		}
		c.tell(r, b, st, *at, when)
		*at = max(*at, when)
	case lowering.Collective:
		return c.meet(r, b, st, at)
	default:
		if !runs(st.For, r) {
			break
		}
		took := b.of(st).seconds[st.work] * c.slow[r]
		if b.inSum(st) {
			took -= b.of(st).launch * c.slow[r]
		}
		c.tell(r, b, st, *at, *at+took)
		*at += took
		k.busy += took
	}
	return true
}

// inSum reports whether the launch of a collective over peer memory, in one shot, does the step as
// well.
func (b *batch) inSum(st *step) bool {
	if st.with == 0 {
		return false
	}
	a := b.of(st).travels[st.with-1].Algorithm
	return a != nil && a.Name == "one_shot"
}

// meet adds a rank to a collective, and reports whether that has ended.
func (c *clock) meet(r int, b *batch, st *step, at *float64) bool {
	m, of, k := &b.meets[st.meeting], b.meetings[st.meeting], &c.ranks[r]
	if !math.IsNaN(m.end) {
		if of.passes {
			k.idle += max(0, m.start-*at)
		}
		c.tell(r, b, st, *at, m.end)
		*at, k.came[st.Stream] = m.end, false
		return true
	}
	if !k.came[st.Stream] {
		k.came[st.Stream] = true
		m.start = max(m.start, *at)
		if m.came++; m.came == of.Size {
			m.start += c.straggle(&of)
			t := &b.of(st).travels[st.exchange]
			c.flights = append(c.flights, flight{m, of.ranks, t, t.Moving(), m.start + t.Latency()})
		}
	}
	return false
}

// straggle is how long the slowest rank of a group keeps the others waiting, as kernels' times vary
// around the clock's averages.
func (c *clock) straggle(of *meetings) float64 {
	if of.Size == 1 || of.passes {
		return 0
	}
	busy := 0.0
	for i := range of.Size {
		busy = max(busy, c.ranks[of.At(i)].busy)
	}
	since := busy - c.met[of.group]
	c.met[of.group] = busy
	return since * c.profile.Link.Straggle.Value
}

// land advances the collectives in transit until the first of them ends. Each has a latency of its
// own; those past it share the links of the ranks that they have in common evenly. No other can
// begin before one ends, since all streams wait.
func (c *clock) land() {
	for {
		first, ends, begins := -1, math.Inf(1), math.Inf(1)
		for i := range c.flights {
			f := &c.flights[i]
			if f.from > c.now {
				begins = min(begins, f.from)
			} else if end := c.now + f.left*c.crowd(f); end < ends {
				first, ends = i, end
			}
		}
		if first >= 0 && ends <= begins {
			c.follow(ends)
			c.flights[first].meet.end = ends
			c.flights = slices.Delete(c.flights, first, first+1)
			return
		}
		if first < 0 {
			c.now = begins
			continue
		}
		c.follow(begins)
	}
}

// crowd counts the collectives in transit that share a rank with one, itself among them.
func (c *clock) crowd(f *flight) (n float64) {
	for i := range c.flights {
		if g := &c.flights[i]; g.from <= c.now && g.ranks&f.ranks != 0 {
			n++
		}
	}
	return n
}

// follow advances the collectives in transit to a time.
func (c *clock) follow(to float64) {
	c.crowds = c.crowds[:0]
	for i := range c.flights {
		c.crowds = append(c.crowds, c.crowd(&c.flights[i]))
	}
	for i := range c.flights {
		if f := &c.flights[i]; f.from <= c.now {
			f.left -= (to - c.now) / c.crowds[i]
			if f.left < 1e-12*f.travel.Moving() { // a rounding error
				f.left = 0
			}
		}
	}
	c.now = to
}

// tell records what a rank did, or how long it waited.
func (c *clock) tell(r int, b *batch, st *step, from, to float64) {
	if c.record == nil || st.Kind == lowering.Wait && to <= from {
		return
	}
	e := exec.Event{Rank: r, Stream: st.Stream, Kind: st.Kind, Name: st.Name, Start: from, End: to}
	switch st.Kind {
	case lowering.Collective:
		e.Bytes = int64(c.exchanges[st.exchange].bytes.Float(b.of(st).sizes))
	case lowering.Launch, lowering.Relayout:
		e.Bytes = int64(c.works[st.work].Moved(b.of(st).sizes))
	}
	if st.Op != nil {
		e.Op = st.Op.Name
	}
	c.record(e)
}

// travelled is the number of seconds in which some collective was in transit.
func (c *clock) travelled() (sum float64) {
	var order []meeting
	for _, b := range c.batches {
		order = append(order, b.meets...)
	}
	slices.SortFunc(order, func(a, b meeting) int { return cmp.Compare(a.start, b.start) })
	until := 0.0
	for _, m := range order {
		if math.IsNaN(m.end) { // of another replica
			continue
		}
		sum += max(0, m.end-max(m.start, until))
		until = max(until, m.end)
	}
	return sum
}
