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
	programs  []*program // by rank
	works     []cost.Work
	exchanges []exchange
	rater     *cost.Rater
	profile   *cost.Profile
	nodes     cost.Arrangement
	slow      []float64 // by rank
	slowLink  float64

	// Of the current batch: the times of all rows, and of the rows of a piece, which has one of two
	// lengths, the second longer by one.
	takes  [3]takes
	pieces int

	ranks   []rankClock
	meets   []meeting // of collectives
	met     float64   // the most seconds of kernels of a rank when all met last
	flights []flight  // collectives in transit
	now     float64   // the time to which they were advanced
	record  func(exec.Event)
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
	at     [streams]float64
	next   [streams]int
	came   [streams]bool // to the collective that is next
	events []float64     // when they happened; not a number: not yet
	busy   float64       // seconds of kernels
}

// meeting is a collective where ranks come together.
type meeting struct {
	came  int
	start float64 // when the last one came
	end   float64 // not a number: it has not ended
}

// flight is a collective whose ranks are all there.
type flight struct {
	meeting int
	travel  *cost.Travel
	left    float64 // seconds that its bytes take alone
	from    float64 // when they begin to travel
}

// batch computes the times of all steps for a batch.
func (c *clock) batch(z graph.Sizes, graphs bool) {
	s := c.reader.first
	c.unroll(s.PieceCount(int(z.Tokens)))
	c.takes[0].fill(c, z, graphs)
	if s.PieceTokens == 0 {
		return
	}
	y := z
	y.Tokens /= int64(c.pieces)
	c.takes[1].fill(c, y, graphs)
	y.Tokens++
	c.takes[2].fill(c, y, graphs)
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
func (c *clock) of(st *step) *takes {
	all := &c.takes[0]
	if st.Loop == 0 {
		return all
	}
	n := c.reader.first.Piece(int(all.sizes.Tokens), st.piece).Len
	return &c.takes[1+n-int(c.takes[1].sizes.Tokens)]
}

// start resets all streams to a time.
func (c *clock) start(at float64) {
	for r := range c.ranks {
		k := &c.ranks[r]
		k.at, k.next, k.came, k.busy = [streams]float64{at, at}, [streams]int{}, [streams]bool{}, 0
		for i := range k.events {
			k.events[i] = math.NaN()
		}
	}
	for i := range c.meets {
		c.meets[i] = meeting{end: math.NaN()}
	}
	c.flights, c.now, c.met = c.flights[:0], at, 0
}

// run runs a batch's step from a time on, and returns when the last rank is done.
func (c *clock) run(at float64, runs func(serves []int, rank int) bool) (end float64, err error) {
	c.start(at)
	for {
		done := true
		for r := range c.ranks {
			done = c.rank(r, runs) && done
		}
		if done {
			break
		}
		if len(c.flights) == 0 {
			return 0, errors.New("the ranks wait for each other for ever: a collective that not all take part in, or an event that is not recorded")
		}
		c.land()
	}
	for i := range c.ranks {
		end = max(end, c.ranks[i].at[0], c.ranks[i].at[1])
	}
	return max(end, at), nil
}

// rank runs a rank's streams as far as possible, and reports whether they have ended.
func (c *clock) rank(r int, runs func([]int, int) bool) (done bool) {
	for moved := true; moved; {
		moved, done = false, true
		for s := range lowering.Stream(streams) {
			steps := c.programs[r].steps[s]
			for next := &c.ranks[r].next[s]; *next < len(steps); *next++ {
				if !c.step(r, &steps[*next], runs) {
					done = false
					break
				}
				moved = true
			}
		}
	}
	return done
}

// step takes a step on its stream, and reports whether the stream can go on.
func (c *clock) step(r int, st *step, runs func([]int, int) bool) bool {
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
		c.tell(r, st, *at, when)
		*at = max(*at, when)
	case lowering.Collective:
		return c.meet(r, st, at)
	default:
		if !runs(st.For, r) {
			break
		}
		took := c.of(st).seconds[st.work] * c.slow[r]
		if c.inSum(st) {
			took -= c.of(st).launch * c.slow[r]
		}
		c.tell(r, st, *at, *at+took)
		*at += took
		k.busy += took
	}
	return true
}

// inSum reports whether the launch of a collective over peer memory, in one shot, does the step as
// well.
func (c *clock) inSum(st *step) bool {
	if st.with == 0 {
		return false
	}
	a := c.of(st).travels[st.with-1].Algorithm
	return a != nil && a.Name == "one_shot"
}

// meet adds a rank to a collective, and reports whether that has ended.
func (c *clock) meet(r int, st *step, at *float64) bool {
	m, came := &c.meets[st.meeting], &c.ranks[r].came[st.Stream]
	if !math.IsNaN(m.end) {
		c.tell(r, st, *at, m.end)
		*at, *came = m.end, false
		return true
	}
	if !*came {
		*came = true
		m.start = max(m.start, *at)
		if m.came++; m.came == len(c.ranks) {
			m.start += c.straggle()
			t := &c.of(st).travels[st.exchange]
			c.flights = append(c.flights, flight{st.meeting, t, t.Moving(), m.start + t.Latency()})
		}
	}
	return false
}

// straggle is how long the slowest rank keeps the others waiting, as kernels' times vary around the
// clock's averages.
func (c *clock) straggle() float64 {
	if len(c.ranks) == 1 {
		return 0
	}
	busy := slices.MaxFunc(c.ranks, func(a, b rankClock) int { return cmp.Compare(a.busy, b.busy) }).busy
	since := busy - c.met
	c.met = busy
	return since * c.profile.Link.Straggle.Value
}

// land advances the collectives in transit until the first of them ends. Each has a latency of its
// own; those past it share the link evenly. No other can begin before one ends, since all streams
// wait.
func (c *clock) land() {
	for {
		crowd, begins := 0.0, math.Inf(1)
		for i := range c.flights {
			if from := c.flights[i].from; from <= c.now {
				crowd++
			} else {
				begins = min(begins, from)
			}
		}
		if crowd == 0 {
			c.now = begins
			continue
		}
		first, ends := 0, math.Inf(1)
		for i := range c.flights {
			if f := &c.flights[i]; f.from <= c.now {
				if end := c.now + f.left*crowd; end < ends {
					first, ends = i, end
				}
			}
		}
		if ends <= begins {
			c.follow(ends, crowd)
			c.meets[c.flights[first].meeting].end = ends
			c.flights = slices.Delete(c.flights, first, first+1)
			return
		}
		c.follow(begins, crowd)
	}
}

// follow advances the collectives in transit to a time.
func (c *clock) follow(to, crowd float64) {
	for i := range c.flights {
		if f := &c.flights[i]; f.from <= c.now {
			f.left -= (to - c.now) / crowd
			if f.left < 1e-12*f.travel.Moving() { // a rounding error
				f.left = 0
			}
		}
	}
	c.now = to
}

// tell records what a rank did, or how long it waited.
func (c *clock) tell(r int, st *step, from, to float64) {
	if c.record == nil || st.Kind == lowering.Wait && to <= from {
		return
	}
	e := exec.Event{Rank: r, Stream: st.Stream, Kind: st.Kind, Name: st.Name, Start: from, End: to}
	switch st.Kind {
	case lowering.Collective:
		e.Bytes = int64(c.exchanges[st.exchange].bytes.Float(c.of(st).sizes))
	case lowering.Launch, lowering.Relayout:
		e.Bytes = int64(c.works[st.work].Moved(c.of(st).sizes))
	}
	if st.Op != nil {
		e.Op = st.Op.Name
	}
	c.record(e)
}

// travelled is the number of seconds in which some collective was in transit.
func (c *clock) travelled() (sum float64) {
	order := slices.SortedFunc(slices.Values(c.meets), func(a, b meeting) int { return cmp.Compare(a.start, b.start) })
	until := 0.0
	for _, m := range order {
		sum += max(0, m.end-max(m.start, until))
		until = max(until, m.end)
	}
	return sum
}
