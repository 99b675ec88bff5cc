package sim

import (
	"fmt"
	"maps"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
)

// order finds memory that two pieces of work touch, one of which writes it, where no
// stream, event, graph or wait of the host says which comes first. What runs on a GPU
// may overlap then, and loads of data that stays the same (.nc) may be of before.
//
// Every op has a clock: how many ops of each lane are done before it begins.
type order struct {
	lanes int   // numbered so far
	host  clock // what the host has waited for; all that is put in later comes after it
	ran   map[*primary]clock
	last  accessed         // by the last kernel
	flags map[uint64]clock // by address: what comes before the release there
	seen  []touched
}

// clock has, by lane, how many of its ops are done.
type clock map[int]int

func (c clock) join(o clock) clock {
	if c == nil {
		c = clock{}
	}
	for lane, n := range o {
		c[lane] = max(c[lane], n)
	}
	return c
}

// position is an op in its lane.
type position struct{ lane, number int }

func (c clock) has(p position) bool { return c[p.lane] >= p.number }

// touched is what an op did to memory.
type touched struct {
	name  string
	at    position
	graph *op // that it is part of
	bytes accessed
}

type accessed struct{ loads, stores []ptx.Piece }

func piece(at driver.Ptr, bytes int64) []ptx.Piece {
	if at == 0 {
		return nil
	}
	return []ptx.Piece{{At: uint64(at), End: uint64(at) + uint64(bytes)}}
}

// pieces are the rows of a matrix.
func (x matrix) pieces() (out []ptx.Piece) {
	for i := range x.rows {
		at, n := x.row(i)
		out = append(out, piece(driver.Ptr(at), n)...)
	}
	return out
}

// number gives a lane a number.
func (r *order) number(l *lane) {
	if l.number == 0 {
		r.lanes++
		l.number = r.lanes
	}
}

// pushed orders an op after all that the host has waited for.
func (r *order) pushed(l *lane, o *op) {
	r.number(l)
	o.clock = maps.Clone(r.host)
}

// begins orders an op after what was before it in its lane.
func (r *order) begins(o *op) { o.clock = o.clock.join(o.lane.clock) }

// done orders what comes after an op in its lane after it.
func (r *order) done(o *op) {
	l := o.lane
	o.clock = o.clock.join(l.clock)
	for lane := range o.clock { // those of a graph end with it
		if r.ended(lane, o) {
			delete(o.clock, lane)
		}
	}
	o.clock[l.number] = max(o.clock[l.number], l.clock[l.number]) + 1
	o.place = position{l.number, o.clock[l.number]}
	l.clock = maps.Clone(o.clock)
	r.ran[l.p] = r.ran[l.p].join(o.clock)
}

func (r *order) ended(lane int, o *op) bool {
	for _, l := range o.inner {
		if l.number == lane {
			return true
		}
	}
	return false
}

// replays orders the lanes of a graph after what is before it.
func (r *order) replays(o *op) {
	r.begins(o)
	o.inner = o.replay
	for _, l := range o.inner {
		r.number(l)
		l.clock = maps.Clone(o.clock)
	}
}

// meet orders what comes after any of some ops after all of them.
func (r *order) meet(all []*op) {
	var c clock
	for _, o := range all {
		c = c.join(o.clock).join(o.lane.clock)
	}
	for _, o := range all {
		o.clock = maps.Clone(c)
	}
}

// waited is told what the host has waited for, and whether nothing is left to run.
func (r *order) waited(c clock, idle bool) {
	if r == nil {
		return
	}
	if r.host = r.host.join(c); !idle {
		return
	}
	kept := r.seen[:0]
	for _, t := range r.seen {
		if !t.before(r.host) {
			kept = append(kept, t)
		}
	}
	r.seen = kept
}

// before reports whether all at a clock comes after it.
func (t *touched) before(c clock) bool {
	return c.has(t.at) || t.graph != nil && t.graph.done && c.has(t.graph.place)
}

// position is that of an op that is being run.
func (o *op) position() position {
	return position{o.lane.number, max(o.clock[o.lane.number], o.lane.clock[o.lane.number]) + 1}
}

// releases is told where an op has released to other devices what it did, and what came before.
func (r *order) releases(o *op, at []uint64) {
	if len(at) == 0 {
		return
	}
	c, p := maps.Clone(o.clock).join(o.lane.clock), o.position()
	c[p.lane] = p.number
	for _, flag := range at {
		r.flags[flag] = c
	}
}

// acquires orders an op after what was released where it has acquired.
func (r *order) acquires(o *op, at []uint64) {
	for _, flag := range at {
		o.clock = o.clock.join(r.flags[flag])
	}
}

// check enters what an op touches, and says with what it may overlap.
func (r *order) check(o *op, b accessed) error {
	at := o.position()
	for i := range r.seen {
		t := &r.seen[i]
		if t.before(o.clock) {
			continue
		}
		for _, x := range []struct {
			mine, theirs []ptx.Piece
			how          string
		}{{b.loads, t.bytes.stores, "reads what %s writes"}, {b.stores, t.bytes.loads, "writes what %s reads"}, {b.stores, t.bytes.stores, "writes what %s writes"}} {
			if p, ok := common(x.mine, x.theirs); ok {
				return fmt.Errorf(x.how+", %d bytes at %#x, and nothing orders them: no stream, event, graph or wait of the host", t.name, p.End-p.At, p.At)
			}
		}
	}
	r.seen = append(r.seen, touched{o.name, at, o.lane.graph, b})
	return nil
}

// common finds the first bytes that two lists share.
func common(a, b []ptx.Piece) (ptx.Piece, bool) {
	for len(a) > 0 && len(b) > 0 {
		p := ptx.Piece{At: max(a[0].At, b[0].At), End: min(a[0].End, b[0].End)}
		if p.At < p.End {
			return p, true
		}
		if a[0].End < b[0].End {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return ptx.Piece{}, false
}
