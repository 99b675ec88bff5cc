package sim

import (
	"slices"

	"github.com/krait-ml/krait/cuda/driver"
)

// call is what a rank asks for.
type call struct {
	c          *comm
	name       string
	send, recv driver.Ptr
	count      int64
	format     driver.Format
	peer       int // of Send and Recv, or the root of Broadcast
}

// place is where calls of ranks come together: the nth call of all, or the nth from one
// rank to another.
type place struct{ from, to, n int }

// rendezvous is calls that belong together.
type rendezvous struct {
	wanted []int // ranks
	parts  []*part
}

// part is a call on its way.
type part struct {
	*call
	op *op
	at *rendezvous
}

// part is what a rank has brought, or nil.
func (m *rendezvous) part(rank int) *part {
	i := slices.IndexFunc(m.parts, func(p *part) bool { return p.c.rank == rank })
	if i < 0 {
		return nil
	}
	return m.parts[i]
}

// want checks a call and puts it into its stream, or its group.
func (x *comm) want(on driver.Stream, k *call) error {
	if err := x.usable(k.name); err != nil {
		return err
	}
	defer x.mu.Unlock()
	s, ok := on.(*stream)
	switch {
	case !ok || s.primary != x.primary:
		return foreign(k.name, on)
	case s.closed:
		return closedError(k.name, s)
	case s.capture != nil && s.capture.broken != nil:
		return s.capture.invalid(k.name)
	case k.count < 1 || !k.format.Valid():
		return driver.NCCL(k.name, driver.NCCLInvalidArgument).Because("%d elements of %v", k.count, k.format)
	case k.peer < 0 || k.peer >= len(x.g.members):
		return driver.NCCL(k.name, driver.NCCLInvalidArgument).Because("rank %d of %d", k.peer, len(x.g.members))
	}
	k.c = x
	if k.format == driver.TF32 {
		k.format = driver.F32
	}
	sends, recvs := k.sizes()
	if sends > 0 {
		if err := x.owns(k.name, k.send, sends*int64(k.format.Bytes())); err != nil {
			return err
		}
	}
	if recvs > 0 {
		if err := x.owns(k.name, k.recv, recvs*int64(k.format.Bytes())); err != nil {
			return err
		}
	}
	if x.depth == 0 {
		return s.collect(k.name, []*call{k})
	}
	if x.on != nil && x.on != s {
		return driver.NCCL(k.name, driver.NCCLInvalidUsage).Because("a group of calls on several streams is not simulated")
	}
	x.on, x.batch = s, append(x.batch, k)
	return nil
}

// sizes counts the elements that a call reads and writes.
func (k *call) sizes() (sends, recvs int64) {
	ranks := int64(len(k.c.g.members))
	switch k.name {
	case ncclReduceScatter:
		return k.count * ranks, k.count
	case ncclAllGather:
		return k.count, k.count * ranks
	case ncclSend:
		return k.count, 0
	case ncclRecv:
		return 0, k.count
	case ncclBroadcast:
		if k.c.rank != k.peer {
			return 0, k.count
		}
	}
	return k.count, k.count
}

const (
	ncclAllReduce     = "ncclAllReduce"
	ncclReduceScatter = "ncclReduceScatter"
	ncclAllGather     = "ncclAllGather"
	ncclBroadcast     = "ncclBroadcast"
	ncclSend          = "ncclSend"
	ncclRecv          = "ncclRecv"
)

func (x *comm) AllReduce(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
	return x.want(s, &call{name: ncclAllReduce, send: send, recv: recv, count: count, format: f})
}

func (x *comm) ReduceScatter(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
	return x.want(s, &call{name: ncclReduceScatter, send: send, recv: recv, count: count, format: f})
}

func (x *comm) AllGather(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
	return x.want(s, &call{name: ncclAllGather, send: send, recv: recv, count: count, format: f})
}

func (x *comm) Broadcast(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format, root int) error {
	return x.want(s, &call{name: ncclBroadcast, send: send, recv: recv, count: count, format: f, peer: root})
}

func (x *comm) Send(s driver.Stream, buf driver.Ptr, count int64, f driver.Format, peer int) error {
	return x.want(s, &call{name: ncclSend, send: buf, count: count, format: f, peer: peer})
}

func (x *comm) Recv(s driver.Stream, buf driver.Ptr, count int64, f driver.Format, peer int) error {
	return x.want(s, &call{name: ncclRecv, recv: buf, count: count, format: f, peer: peer})
}

// enroll brings an op's calls to their rendezvous. Calls of a communicator on
// several streams have no order but that of events.
func (d *Driver) enroll(o *op) error {
	for _, k := range o.calls {
		x := k.c
		if x.gone != "" {
			continue // of a graph: the call does nothing any more
		}
		m := x.g.rendezvous(k)
		p := &part{call: k, op: o, at: m}
		for _, other := range m.parts {
			if err := k.differs(other.call); err != nil {
				d.wake.Broadcast()
				return x.g.fail(err)
			}
		}
		m.parts = append(m.parts, p)
		o.parts = append(o.parts, p)
	}
	if len(o.parts) > 0 {
		o.parts[0].c.pending++
	}
	return nil
}

// rendezvous is where a call belongs by its number.
func (g *group) rendezvous(k *call) *rendezvous {
	x := k.c
	at, wanted := place{from: -1, to: -1, n: x.calls}, []int(nil)
	switch k.name {
	case ncclSend:
		at, wanted = place{x.rank, k.peer, x.sends[k.peer]}, []int{x.rank, k.peer}
		x.sends[k.peer]++
	case ncclRecv:
		at, wanted = place{k.peer, x.rank, x.recvs[k.peer]}, []int{k.peer, x.rank}
		x.recvs[k.peer]++
	default:
		for rank := range g.members {
			wanted = append(wanted, rank)
		}
		x.calls++
	}
	m := g.open[at]
	if m == nil {
		m = &rendezvous{wanted: wanted}
		g.open[at] = m
	}
	if len(m.parts)+1 == len(wanted) {
		delete(g.open, at) // no other member comes
	}
	return m
}

// differs says how two calls of a rendezvous do not fit.
func (k *call) differs(other *call) error {
	pair := k.name == ncclSend || k.name == ncclRecv
	if (k.name == other.name || pair) && k.count == other.count && k.format == other.format && (pair || k.peer == other.peer) {
		return nil
	}
	return driver.NCCL(k.name, driver.NCCLInvalidUsage).Because("rank %d calls %s of %d %v (root %d) where rank %d calls %s of %d %v (root %d)",
		k.c.rank, k.name, k.count, k.format, k.peer, other.c.rank, other.name, other.count, other.format, other.peer)
}

// arrived says whether an op could run, for all that its own device knows.
func arrived(o *op) bool { return !o.done && o.lane.open() && o.lane.first() == o && o.free() }

// arrived returns all ops that run together with o, or nil if they are not all
// there.
func (d *Driver) arrived(o *op) []*op {
	all := []*op{o}
	for i := 0; i < len(all); i++ {
		if !arrived(all[i]) {
			return nil
		}
		for _, p := range all[i].parts {
			if p.c.g.err != nil || len(p.at.parts) < len(p.at.wanted) {
				return nil
			}
			for _, other := range p.at.parts {
				if other.c.gone != "" || other.op.parts == nil {
					return nil
				}
				if !slices.Contains(all, other.op) {
					all = append(all, other.op)
				}
			}
		}
	}
	return all
}

// exchange runs collectives to which all have come. If memory faults, it is the rank's
// own, and the others are left waiting.
func (d *Driver) exchange(all []*op) {
	var at []*rendezvous
	for _, o := range all {
		for _, p := range o.parts {
			if !slices.Contains(at, p.at) {
				at = append(at, p.at)
			}
		}
	}
	for _, m := range at {
		if p, err := d.move(m); err != nil {
			p.c.lose(p.name, err)
			return
		}
	}
	if d.order != nil {
		d.order.meet(all)
	}
	for _, o := range all {
		o.parts[0].c.pending--
		d.complete(o)
	}
}

// move does the work of a rendezvous, or says whose memory is at fault.
func (d *Driver) move(m *rendezvous) (at *part, err error) {
	parts := slices.Clone(m.parts)
	slices.SortFunc(parts, func(a, b *part) int { return a.c.rank - b.c.rank })
	sent := make([][]byte, len(parts))
	for i, p := range parts {
		if sends, _ := p.sizes(); sends > 0 {
			b, err := d.mem.Slice(uint64(p.send), sends*int64(p.format.Bytes()))
			if err != nil {
				return p, err
			}
			sent[i] = slices.Clone(b)
		}
	}
	for i, p := range parts {
		_, recvs := p.sizes()
		if recvs == 0 {
			continue
		}
		b, err := d.mem.SliceForWrite(uint64(p.recv), recvs*int64(p.format.Bytes()))
		if err != nil {
			return p, err
		}
		p.receive(b, sent, parts, i)
	}
	return nil, nil
}

// receive fills a part's result. Sums are in f32, in the order of the ranks, so
// that all ranks get the same bits.
func (p *part) receive(b []byte, sent [][]byte, parts []*part, rank int) {
	size := p.format.Bytes()
	switch p.name {
	case ncclAllReduce:
		store(p.format, b, total(p.format, sent, 0, int(p.count)))
	case ncclReduceScatter:
		store(p.format, b, total(p.format, sent, rank*int(p.count), int(p.count)))
	case ncclAllGather:
		for i, from := range sent {
			copy(b[i*int(p.count)*size:], from)
		}
	case ncclBroadcast:
		copy(b, sent[p.peer])
	case ncclRecv:
		for i, other := range parts {
			if other.name == ncclSend {
				copy(b, sent[i])
			}
		}
	}
}

// total sums count elements of all ranks, from the given one on.
func total(f driver.Format, sent [][]byte, from, count int) []float32 {
	sum, term := make([]float32, count), make([]float32, count)
	size := f.Bytes()
	for i, b := range sent {
		load(f, b[from*size:], term)
		if i == 0 {
			copy(sum, term)
			continue
		}
		for j, x := range term {
			sum[j] += x
		}
	}
	return sum
}
