package comm

import (
	"sync/atomic"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// shared is the Comm of a rank whose memory the others can reach: a rank's operands stay unchanged
// until all of its group have arrived a second time.
type shared struct {
	*rendezvous
	number int          // of the rank in the world
	step   atomic.Int64 // current; atomic, since another goroutine may stop it
	seats  map[lowering.Group]*seat
	summer
}

// seat is a rank's place in a group.
type seat struct {
	*shared
	*meeting
	group       lowering.Group
	rank, ranks int         // in the group
	round       int64       // whose end the rank waits for
	over        func() bool // it has ended, or the step was stopped
}

// Run posts the rank's side and waits for the others of its group; all may then read it, until they
// have arrived a second time.
func (c *shared) Run(x *Collective) error {
	s := c.seat(x.group(c.Ranks()))
	if x.way().passes {
		return s.pass(x)
	}
	s.posted[s.rank] = x
	if err := s.wait(); err != nil {
		return err
	}
	f, ok := collectives[x.way()]
	if !ok {
		panic("BUG: ranks that share memory do not know " + x.Op.Name)
	}
	f(s, x)
	return s.wait()
}

// collectives has the work of a rank between the two rendezvous.
var collectives = map[way]func(*seat, *Collective){
	{from: graph.Partial, to: graph.Replicated}: (*seat).sumForAll,
	{from: graph.Sharded, to: graph.Replicated}: (*seat).gather,
	{from: graph.Partial, to: graph.Sharded}:    (*seat).sumOwn,
}

// inTransit is the messages from the first rank of a group to the second that this has not taken.
type inTransit struct {
	list []Message
	n    atomic.Int64 // how many there are
}

// takeFirst is the first of the messages in transit.
func (s *seat) takeFirst() Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.passed.list[0]
	s.passed.list = append(s.passed.list[:0], s.passed.list[1:]...)
	s.passed.n.Add(-1)
	return m
}

// pass: the sender leaves a copy, and does not wait for the receiver.
func (c *seat) pass(x *Collective) error {
	if c.Stopped() {
		return c.Err()
	}
	if c.rank == 0 {
		f := allOf(x.Args)
		m := newMessage(piece, 0, f.bytes())
		m.setStep(c.shared.step.Load())
		f.pack(m)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.passed.list = append(c.passed.list, m)
		c.passed.n.Add(1)
		c.waiters[c.group.At(1)].Wake()
		return nil
	}
	for {
		c.waiters[c.number].Wait(func() bool { return c.passed.n.Load() > 0 || c.Stopped() })
		if c.Stopped() {
			return c.Err()
		}
		m := c.takeFirst()
		if m.step() == c.shared.step.Load() { // else of a step that was stopped
			allOf(x.Results).unpack(m)
			Recycle(m)
			return nil
		}
		Recycle(m)
	}
}

// sumForAll: each rank sums its part of the elements and writes the result to
// all, so that all have the same bits.
func (c *seat) sumForAll(x *Collective) {
	for i := range x.Args {
		evenly(&x.Args[i], c.ranks, c.rank, func(row, col, n int) {
			c.sum(i, row, col, n, func(col int, sum []float32) {
				for _, p := range c.posted {
					to := &p.Results[i]
					to.Write(row*to.Stride+col, sum)
				}
			})
		})
	}
}

// evenly visits a rank's even share of the elements of a tensor, row by row.
func evenly(t *kernels.Tensor, ranks, rank int, visit func(row, col, n int)) {
	elems := t.Rows() * t.Cols
	end := (rank + 1) * elems / ranks
	for at := rank * elems / ranks; at < end; {
		row, col := at/t.Cols, at%t.Cols
		n := min(end-at, t.Cols-col)
		visit(row, col, n)
		at += n
	}
}

// sumOwn: each rank sums what it keeps.
func (c *seat) sumOwn(x *Collective) {
	for i := range x.Args {
		from, to := &x.Args[i], &x.Results[i]
		x.Parts[c.rank].Each(from.Rows(), from.Cols, func(row, whole, partRow, part, n int) {
			c.sum(i, row, whole, n, func(col int, sum []float32) {
				to.Write(partRow*to.Stride+part+col-whole, sum)
			})
		})
	}
}

// gather: each rank copies the parts of all.
func (c *seat) gather(x *Collective) {
	for i := range x.Results {
		to := &x.Results[i]
		for r, p := range c.posted {
			from := &p.Args[i]
			x.Parts[r].Each(to.Rows(), to.Cols, func(row, whole, partRow, part, n int) {
				to.Copy(row*to.Stride+whole, from, partRow*from.Stride+part, n)
			})
		}
	}
}

// sum adds n elements of operand i of all ranks, which begin in a row at a column.
func (c *seat) sum(i, row, col, n int, put func(col int, sum []float32)) {
	of := func(r int) (*kernels.Tensor, int) {
		t := &c.posted[r].Args[i]
		return t, row*t.Stride + col
	}
	c.shared.summer.sum(c.ranks, n, c.posted[c.rank].F32, of, func(done int, sum []float32) { put(col+done, sum) })
}
