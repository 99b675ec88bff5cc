package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
)

// group is the ranks that have joined under one id.
type group struct {
	members []*comm // by rank; nil until it has joined
	joined  int
	err     error // that all members get
	open    map[place]*rendezvous
}

// fail ends the group for all, with the first error.
func (g *group) fail(err error) error {
	if g.err == nil {
		g.err = err
	}
	return g.err
}

// comm is a rank's communicator.
type comm struct {
	*primary
	g      *group
	rank   int
	gone   string // how it left: "aborted its communicator"
	closed bool

	calls        int   // of all ranks, so far
	sends, recvs []int // so far, by peer
	pending      int   // ops that are not done

	depth int // of GroupStart
	batch []*call
	on    *stream // of the batch
}

// UniqueID names a group.
func (d *Driver) UniqueID() (id driver.UniqueID, err error) {
	if d.o.NoNCCL {
		return id, notInstalled("NCCL")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts.ids++
	binary.LittleEndian.PutUint64(id[:], uint64(d.counts.ids))
	d.groups[id] = &group{open: map[place]*rendezvous{}}
	return id, nil
}

// Join waits until all ranks have joined.
func (d *Driver) Join(ctx context.Context, c driver.Context, id driver.UniqueID, ranks, rank int) (driver.Collectives, error) {
	const call = "ncclCommInitRank"
	if d.o.NoNCCL {
		return nil, notInstalled("NCCL")
	}
	on, ok := c.(*contextHandle)
	if !ok || on.Driver != d {
		return nil, foreign(call, c)
	}
	if err := on.enterAlone(call); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	g := d.groups[id]
	if g == nil {
		return nil, driver.NCCL(call, driver.NCCLInvalidArgument).Because("the id is not from UniqueID")
	}
	x := &comm{primary: on.primary, g: g, rank: rank, sends: make([]int, max(ranks, 0)), recvs: make([]int, max(ranks, 0))}
	if err := g.admit(x, ranks); err != nil {
		d.wake.Broadcast()
		return nil, err
	}
	d.wake.Broadcast()
	stop := context.AfterFunc(ctx, d.ring)
	defer stop()
	for g.joined < ranks && g.err == nil && ctx.Err() == nil {
		d.wake.Wait()
	}
	switch {
	case g.err != nil:
		return nil, g.err
	case g.joined < ranks:
		g.members[rank], g.joined = nil, g.joined-1
		return nil, &driver.Error{Call: call, Text: fmt.Sprintf("rank %d of %d gave up waiting for the others", rank, ranks), Cause: context.Cause(ctx)}
	}
	on.made(x, "communicator of rank %d of %d", rank, ranks)
	return x, nil
}

// admit adds a rank, if it fits to those that are there.
func (g *group) admit(x *comm, ranks int) error {
	const call = "ncclCommInitRank"
	switch {
	case g.err != nil:
		return g.err
	case ranks < 1 || x.rank < 0 || x.rank >= ranks:
		return driver.NCCL(call, driver.NCCLInvalidArgument).Because("rank %d of %d", x.rank, ranks)
	case g.members == nil:
		g.members = make([]*comm, ranks)
	case len(g.members) != ranks:
		return g.fail(driver.NCCL(call, driver.NCCLInvalidArgument).Because("rank %d joins a group of %d ranks, and another rank one of %d", x.rank, ranks, len(g.members)))
	case g.members[x.rank] != nil:
		return g.fail(driver.NCCL(call, driver.NCCLInvalidArgument).Because("two ranks are rank %d", x.rank))
	}
	for _, m := range g.members {
		if m != nil && m.primary == x.primary {
			return g.fail(driver.NCCL(call, driver.NCCLInvalidUsage).Because("Duplicate GPU detected: rank %d and rank %d both on device %d", x.rank, m.rank, x.info.Index))
		}
	}
	g.members[x.rank] = x
	g.joined++
	return nil
}

// usable begins a call of the rank.
func (x *comm) usable(call string) error {
	if err := x.enter(call); err != nil {
		return err
	}
	var err error
	switch {
	case x.closed || x.gone != "":
		err = driver.NCCL(call, driver.NCCLInvalidArgument).Because("this rank %s", x.gone)
	case x.g.err != nil:
		err = x.g.err
	default:
		return nil
	}
	x.mu.Unlock()
	return err
}

// GroupStart lets calls wait for GroupEnd.
func (x *comm) GroupStart() error {
	if err := x.usable("ncclGroupStart"); err != nil {
		return err
	}
	defer x.mu.Unlock()
	x.depth++
	return nil
}

func (x *comm) GroupEnd() error {
	const name = "ncclGroupEnd"
	if err := x.usable(name); err != nil {
		return err
	}
	defer x.mu.Unlock()
	if x.depth == 0 {
		return driver.NCCL(name, driver.NCCLInvalidUsage).Because("without GroupStart")
	}
	if x.depth--; x.depth > 0 || len(x.batch) == 0 {
		return nil
	}
	batch, on := x.batch, x.on
	x.batch, x.on = nil, nil
	return on.collect(name, batch)
}

// collect puts calls into the stream as one op.
func (s *stream) collect(name string, calls []*call) error {
	var bytes int64
	for _, c := range calls {
		bytes += c.count * int64(c.format.Bytes())
	}
	t := &task{name: name, calls: calls, cost: 5*time.Microsecond + transfer(bytes)}
	if s.capture != nil {
		s.capture.add(s, t, s.tail)
		return nil
	}
	o := &op{task: t, lane: s.lane}
	if err := s.enroll(o); err != nil {
		return err
	}
	s.push(s.lane, o)
	return nil
}

// AsyncError reports what happened to the group.
func (x *comm) AsyncError() error {
	const call = "ncclCommGetAsyncError"
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.g.err != nil {
		return x.g.err
	}
	for _, m := range x.g.members {
		if m.gone != "" && !m.closed {
			return driver.NCCL(call, driver.NCCLRemoteError).Because("rank %d %s", m.rank, m.gone)
		}
	}
	return nil
}

// Abort lets the rank's pending calls end without effect.
func (x *comm) Abort() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.live, x)
	if x.gone != "" {
		return nil
	}
	x.gone = "aborted its communicator"
	x.batch, x.depth = nil, 0
	for _, l := range x.lanes {
		x.void(l)
	}
	x.progress++
	x.wake.Broadcast()
	return nil
}

// void lets the rank's calls in a lane, and in its graphs, do nothing.
func (x *comm) void(l *lane) {
	for _, o := range l.queue {
		if len(o.parts) > 0 && o.parts[0].c == x {
			o.parts, o.work = nil, nil
		}
		for _, inner := range o.replay {
			x.void(inner)
		}
	}
}

// Close needs all calls to be done.
func (x *comm) Close() error {
	const call = "ncclCommDestroy"
	if err := x.enter(call); err != nil {
		if x.lost != nil {
			x.Abort()
		}
		return err
	}
	defer x.mu.Unlock()
	switch {
	case x.closed || x.gone != "":
		return driver.NCCL(call, driver.NCCLInvalidArgument).Because("this rank %s", x.gone)
	case x.pending > 0:
		return driver.NCCL(call, driver.NCCLInvalidUsage).Because("rank %d has calls that are not done", x.rank)
	}
	x.closed, x.gone = true, "closed its communicator"
	delete(x.live, x)
	return nil
}
