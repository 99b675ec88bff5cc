package comm

import (
	"fmt"
	"sync/atomic"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// remote is the Comm of a rank in a process of its own: it sends each other rank of a group the
// stretches of its operands that this needs. One rank sums each element, in the order of the ranks,
// so that all have the same bits as ranks that share memory.
type remote struct {
	*Group
	step    atomic.Int64 // current; atomic, since another goroutine may stop it
	gave    []uint32     // by rank: messages to it in the step so far
	got     []uint32     // and from it
	parties map[lowering.Group]*party
	summer
}

// party is a rank's place in a group.
type party struct {
	*remote
	group       lowering.Group
	rank, ranks int       // in the group
	came        []Message // by place in the group, of the current exchange
}

// party is the rank's place in a group.
func (c *remote) party(g lowering.Group) *party {
	p := c.parties[g]
	if p == nil {
		p = &party{remote: c, group: g, rank: g.Index(c.Rank()), ranks: g.Size, came: make([]Message, g.Size)}
		if p.rank < 0 {
			panic(fmt.Sprintf("BUG: rank %d takes part in a collective of %+v", c.Rank(), g))
		}
		c.parties[g] = p
	}
	return p
}

// Begin begins a step.
func (c *remote) Begin() {
	c.step.Add(1)
	clear(c.gave)
	clear(c.got)
	for _, p := range c.parties {
		for r := range p.came {
			p.done(r) // of a step that was stopped
		}
	}
}

// Stop ends the step on all ranks.
func (c *remote) Stop(err error) {
	step := c.step.Load()
	if !c.stop(step, err) {
		return
	}
	c.p.toAll(func() Message {
		m := textMessage(stop, c.number, err.Error())
		m.setStep(step)
		return m
	})
}

// Stopped reports whether the step was stopped, or everything.
func (c *remote) Stopped() bool { return c.stopped.Load() >= c.step.Load() || c.p.Err() != nil }

// Err is the first error of the step.
func (c *remote) Err() error {
	if err := c.p.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Load() < c.step.Load() {
		return nil
	}
	return c.err
}

// Run takes part in a collective.
func (c *remote) Run(x *Collective) error {
	f, ok := byMessages[x.way()]
	if !ok {
		panic("BUG: ranks in several processes do not know " + x.Op.Name)
	}
	if c.Stopped() {
		return c.Err()
	}
	return f(c.party(x.group(c.Ranks())), x)
}

// byMessages has the collectives.
var byMessages = map[way]func(*party, *Collective) error{
	{from: graph.Partial, to: graph.Replicated}: (*party).sumForAll,
	{from: graph.Sharded, to: graph.Replicated}: (*party).gather,
	{from: graph.Partial, to: graph.Sharded}:    (*party).sumOwn,
	{passes: true}:                              (*party).pass,
}

// pass: the first rank sends all that it has to the second.
func (c *party) pass(x *Collective) error {
	if c.rank == 0 {
		c.give(1, allOf(x.Args))
		return nil
	}
	to := allOf(x.Results)
	if n := to.bytes(); n > 0 {
		if err := c.want(0, n); err != nil {
			return err
		}
	}
	c.unpack(0, to)
	return nil
}

// allOf visits whole tensors, row by row.
func allOf(list []kernels.Tensor) walk { return part(list, 1, 0) }

// sumForAll: each rank sums its part of the elements and sends the result to all.
func (c *party) sumForAll(x *Collective) error {
	mine := part(x.Args, c.ranks, c.rank)
	if err := c.exchange(func(r int) walk { return part(x.Args, c.ranks, r) }, func(int) walk { return mine }); err != nil {
		return err
	}
	to := part(x.Results, c.ranks, c.rank)
	c.add(x, mine, to)
	if err := c.exchange(func(int) walk { return to }, func(r int) walk { return part(x.Results, c.ranks, r) }); err != nil {
		return err
	}
	for r := range c.came {
		c.unpack(r, part(x.Results, c.ranks, r))
	}
	return nil
}

// sumOwn: each rank sums what it keeps.
func (c *party) sumOwn(x *Collective) error {
	whole := func(r int) walk { return inWhole(x.Args, x.Parts[r]) }
	mine := whole(c.rank)
	if err := c.exchange(whole, func(int) walk { return mine }); err != nil {
		return err
	}
	c.add(x, mine, inPart(x.Results, x.Args, x.Parts[c.rank]))
	return nil
}

// gather: each rank sends its part to all.
func (c *party) gather(x *Collective) error {
	mine := inPart(x.Args, x.Results, x.Parts[c.rank])
	whole := func(r int) walk { return inWhole(x.Results, x.Parts[r]) }
	if err := c.exchange(func(int) walk { return mine }, whole); err != nil {
		return err
	}
	for i := range x.Results {
		from, to := &x.Args[i], &x.Results[i]
		x.Parts[c.rank].Each(to.Rows(), to.Cols, func(row, whole, partRow, part, n int) {
			to.Copy(row*to.Stride+whole, from, partRow*from.Stride+part, n)
		})
	}
	for r := range c.came {
		c.unpack(r, whole(r))
	}
	return nil
}

// inWhole visits a rank's pieces in whole tensors.
func inWhole(list []kernels.Tensor, parts graph.Pieces) walk {
	return func(visit func(t *kernels.Tensor, at, n int)) {
		for i := range list {
			t := &list[i]
			parts.Each(t.Rows(), t.Cols, func(row, col, _, _, n int) { visit(t, row*t.Stride+col, n) })
		}
	}
}

// inPart visits a rank's pieces in its shards.
func inPart(list, whole []kernels.Tensor, parts graph.Pieces) walk {
	return func(visit func(t *kernels.Tensor, at, n int)) {
		for i := range list {
			t := &list[i]
			parts.Each(whole[i].Rows(), whole[i].Cols, func(_, _, row, col, n int) { visit(t, row*t.Stride+col, n) })
		}
	}
}

// walk visits stretches of tensors, in their order in a message.
type walk func(visit func(t *kernels.Tensor, at, n int))

// part is a rank's even share of the elements of each tensor.
func part(list []kernels.Tensor, ranks, rank int) walk {
	return func(visit func(t *kernels.Tensor, at, n int)) {
		for i := range list {
			t := &list[i]
			evenly(t, ranks, rank, func(row, col, n int) { visit(t, row*t.Stride+col, n) })
		}
	}
}

// wire writes or reads a message, stretch by stretch.
type wire struct {
	data []byte
	at   int
}

// next is the memory of the next n elements.
func (w *wire) next(d graph.DType, n int) kernels.Tensor {
	size := d.Bytes()
	w.at = (w.at + size - 1) / size * size
	b := w.data[w.at:][:d.RowBytes(n)]
	w.at += len(b)
	if d == graph.I32 {
		return kernels.Tensor{DType: d, I32: operand.View[int32](b)}
	}
	return operand.Floats(d, b)
}

// bytes is the size of the stretches in a message.
func (f walk) bytes() int {
	at := 0
	f(func(t *kernels.Tensor, _, n int) {
		size := t.DType.Bytes()
		at = (at+size-1)/size*size + t.DType.RowBytes(n)
	})
	return at
}

// pack writes the stretches to a message.
func (f walk) pack(m Message) {
	w := wire{data: m.carried()}
	f(func(t *kernels.Tensor, at, n int) {
		view := w.next(t.DType, n)
		view.Copy(0, t, at, n)
	})
}

// unpack reads them from one.
func (f walk) unpack(m Message) {
	w := wire{data: m.carried()}
	f(func(t *kernels.Tensor, at, n int) {
		view := w.next(t.DType, n)
		t.Copy(at, &view, 0, n)
	})
}

// exchange sends each rank its stretches, and waits for those of this rank. It sends no empty
// message.
func (c *party) exchange(give, want func(rank int) walk) error {
	for r := range c.ranks {
		if f := give(r); r != c.rank {
			c.give(r, f)
		}
	}
	for r := range c.ranks {
		if n := want(r).bytes(); r != c.rank && n > 0 {
			if err := c.want(r, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// give sends stretches to a rank of the group.
func (c *party) give(to int, f walk) {
	n := f.bytes()
	if n == 0 {
		return
	}
	m := newMessage(piece, c.number, n)
	m.setStep(c.step.Load())
	rank := c.group.At(to)
	c.gave[rank]++
	m.setSeq(c.gave[rank])
	f.pack(m)
	c.sent.Add(int64(n))
	c.p.link.Send(rank, m)
}

// want waits for the next message of a rank of the group. It drops messages of stopped steps.
func (c *party) want(place, n int) error {
	from := c.group.At(place)
	c.got[from]++
	for {
		m, err := c.await(&c.pieces[from], 0, from, true, c.Stopped)
		switch {
		case err != nil:
			return err
		case m == nil:
			return c.Err()
		case m.step() < c.step.Load():
			Recycle(m)
			continue
		case m.step() > c.step.Load() || m.seq() != c.got[from] || len(m.carried()) != n:
			err := fmt.Errorf("BUG: rank %d sent %d bytes in message %d of step %d, where rank %d expects %d in message %d of step %d",
				from, len(m.carried()), m.seq(), m.step(), c.Rank(), n, c.got[from], c.step.Load())
			c.p.fail(err, err)
			return err
		}
		c.came[place] = m
		return nil
	}
}

// add sums the received stretches and this rank's, and writes the sums to those of another walk.
func (c *party) add(x *Collective, mine, to walk) {
	var places []place
	to(func(t *kernels.Tensor, at, _ int) { places = append(places, place{t, at}) })
	wires := make([]wire, c.ranks)
	views := make([]kernels.Tensor, c.ranks)
	for r, m := range c.came {
		if m != nil {
			wires[r].data = m.carried()
		}
	}
	mine(func(t *kernels.Tensor, at, n int) {
		for r := range views {
			if r != c.rank {
				views[r] = wires[r].next(t.DType, n)
			}
		}
		c.sum(c.ranks, n, x.F32, func(r int) (*kernels.Tensor, int) {
			if r == c.rank {
				return t, at
			}
			return &views[r], 0
		}, func(done int, sum []float32) { places[0].Write(places[0].at+done, sum) })
		places = places[1:]
	})
	for r := range c.came {
		c.done(r)
	}
}

// place is an element of a tensor.
type place struct {
	*kernels.Tensor
	at int
}

// unpack copies the received stretches of a rank to their tensors.
func (c *party) unpack(r int, f walk) {
	if c.came[r] == nil {
		return
	}
	f.unpack(c.came[r])
	c.done(r)
}

// done recycles the message of a rank.
func (c *party) done(r int) {
	if c.came[r] != nil {
		Recycle(c.came[r])
		c.came[r] = nil
	}
}
