package exec

import (
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/kernels"
)

// comm is how a rank takes part in collectives. All ranks call the same methods
// in the same order; each call returns when the rank's result is there and its
// operands may be written again, or with the error for which the ranks stop.
type comm interface {
	allReduce(x *exchange) error
	allGather(x *exchange) error
	reduceScatter(x *exchange) error

	stop(err error) // ends the turn of all ranks
	stopped() bool
}

// rendezvous is where ranks that share memory meet.
type rendezvous struct {
	ranks   int
	mu      sync.Mutex
	turn    sync.Cond
	arrived int
	round   int
	err     error
	halt    atomic.Bool // err is set
	posted  []*exchange // by rank
}

func newRendezvous(ranks int) *rendezvous {
	r := &rendezvous{ranks: ranks, posted: make([]*exchange, ranks)}
	r.turn.L = &r.mu
	return r
}

// reset begins a turn; no rank may be under way.
func (r *rendezvous) reset() {
	r.arrived, r.err = 0, nil
	r.halt.Store(false)
}

// wait returns when all ranks have called it, or one has stopped.
func (r *rendezvous) wait() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	if r.arrived++; r.arrived == r.ranks {
		r.arrived = 0
		r.round++
		r.turn.Broadcast()
		return nil
	}
	for round := r.round; round == r.round; {
		if r.err != nil {
			return r.err
		}
		r.turn.Wait()
	}
	return nil
}

// stop lets all who wait go, with the first error.
func (r *rendezvous) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		r.halt.Store(true)
		r.turn.Broadcast()
	}
}

func (r *rendezvous) stopped() bool { return r.halt.Load() }

// failure is the first error of the turn.
func (r *rendezvous) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// shared is the comm of a rank whose memory the others can reach: what a rank
// posts stays as it is until all have met again.
type shared struct {
	*rendezvous
	rank      int
	acc, term [256]float32 // sums under way
}

// meet posts x and waits for the others; they may then read what is posted.
func (c *shared) meet(x *exchange) error {
	c.posted[c.rank] = x
	return c.wait()
}

// allReduce: each rank sums its part of the elements and writes the result to
// all, so that all have the same bits.
func (c *shared) allReduce(x *exchange) error {
	if err := c.meet(x); err != nil {
		return err
	}
	for i := range x.args {
		y := &x.args[i]
		elems := y.Rows() * y.Cols
		end := (c.rank + 1) * elems / c.ranks
		for at := c.rank * elems / c.ranks; at < end; {
			row, col := at/y.Cols, at%y.Cols
			n := min(end-at, y.Cols-col)
			c.sum(i, row, col, n, func(col int, sum []float32) {
				for _, p := range c.posted {
					to := &p.results[i]
					to.Write(row*to.Stride+col, sum)
				}
			})
			at += n
		}
	}
	return c.wait()
}

// reduceScatter: each rank sums what it keeps.
func (c *shared) reduceScatter(x *exchange) error {
	if err := c.meet(x); err != nil {
		return err
	}
	from, to := &x.args[0], &x.results[0]
	x.parts[c.rank].Each(from.Rows(), from.Cols, func(row, whole, partRow, part, n int) {
		c.sum(0, row, whole, n, func(col int, sum []float32) {
			to.Write(partRow*to.Stride+part+col-whole, sum)
		})
	})
	return c.wait()
}

// allGather: each rank copies the parts of all.
func (c *shared) allGather(x *exchange) error {
	if err := c.meet(x); err != nil {
		return err
	}
	to := &x.results[0]
	for r, p := range c.posted {
		from := &p.args[0]
		x.parts[r].Each(to.Rows(), to.Cols, func(row, whole, partRow, part, n int) {
			copyElems(to, row*to.Stride+whole, from, partRow*from.Stride+part, n)
		})
	}
	return c.wait()
}

// sum adds n elements of operand i of all ranks, rank 0 first, some at a time.
// They are added in the format in which they travel, or in f32.
func (c *shared) sum(i, row, col, n int, put func(col int, sum []float32)) {
	for end := col + n; col < end; col += len(c.acc) {
		a := c.acc[:min(len(c.acc), end-col)]
		for r, p := range c.posted {
			t := &p.args[i]
			at := row*t.Stride + col
			if r == 0 {
				t.Read(a, at)
				continue
			}
			b := c.term[:len(a)]
			t.Read(b, at)
			for k, v := range b {
				a[k] += v
			}
			if !p.acc32 {
				kernels.Round(t.DType, a)
			}
		}
		put(col, a)
	}
}
