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
	{passes: true}:                              (*seat).pass,
}

// pass: the receiver copies what the sender has.
func (c *seat) pass(x *Collective) {
	for i := range x.Results { // of which the sender has none
		to, from := &x.Results[i], &c.posted[0].Args[i]
		for row := range to.Rows() {
			to.Copy(row*to.Stride, from, row*from.Stride, to.Cols)
		}
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
