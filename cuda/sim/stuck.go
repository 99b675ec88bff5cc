package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
)

// stuck says why nothing can run.
type stuck struct {
	reason string
	err    error         // of the collectives, if they have failed
	grace  time.Duration // how long it makes sense to wait
}

// lastGrace is how long a rank waits for others that cannot come any more: it
// may just be about to be aborted, too. A GPU would wait forever.
const lastGrace = 2 * time.Second

// timeout is the error for a wait that nothing seems to end.
func (s stuck) timeout(call string, patience time.Duration) error {
	if s.err != nil {
		return s.err
	}
	return &driver.Error{
		Call: call, Text: "nothing can run: " + s.reason, Detail: "CUDA would wait forever",
		Hint: "Ranks must make the same calls in the same order; when one fails, all their communicators must be aborted.",
	}
}

// why follows what an op waits for to the end.
func (d *Driver) why(o *op) stuck {
	seen := map[*op]bool{}
	for !seen[o] {
		seen[o] = true
		if !o.lane.open() {
			o = o.lane.graph
			continue
		}
		head := o.lane.first()
		if !head.free() {
			o = head.after[0]
			continue
		}
		if head.waits > 0 {
			return stuck{reason: fmt.Sprintf("%s on stream %d of device %d waits for another device", head.name, head.lane.role, head.lane.p.info.Index), grace: d.o.Patience}
		}
		if head.parts == nil {
			break
		}
		next, reason := d.missing(head)
		if next == nil {
			return reason
		}
		o = next
	}
	return stuck{reason: fmt.Sprintf("%s on stream %d of device %d waits in a circle", o.name, o.lane.role, o.lane.p.info.Index), grace: d.o.Patience}
}

// missing says what a collective waits for: another op, or a call that does not
// come.
func (d *Driver) missing(o *op) (next *op, reason stuck) {
	for _, p := range o.parts {
		if p.c.g.err != nil {
			return nil, stuck{err: p.c.g.err}
		}
		grace, absent := d.o.Patience, []string{}
		for _, rank := range p.at.wanted {
			switch there, how := p.at.part(rank), p.c.g.members[rank].gone; {
			case how != "":
				absent = append(absent, fmt.Sprintf("rank %d, which has %s", rank, how))
				grace = lastGrace
			case there == nil:
				absent = append(absent, fmt.Sprintf("rank %d, which has not called it", rank))
			case !arrived(there.op):
				next = there.op
			}
		}
		if len(absent) > 0 {
			return nil, stuck{grace: grace, reason: fmt.Sprintf("%s of rank %d on stream %d of device %d waits for %s",
				p.name, p.c.rank, o.lane.role, o.lane.p.info.Index, strings.Join(absent, " and "))}
		}
	}
	if next == nil {
		next = beyond(o)
	}
	if next == nil {
		panic("BUG: a collective waits for nothing")
	}
	return next, stuck{}
}

// beyond is an op that one waits for whose own partners are there: groups of calls run
// together with those that their partners' other calls belong to.
func beyond(o *op) *op {
	all := []*op{o}
	for i := 0; i < len(all); i++ {
		if i > 0 && !arrived(all[i]) {
			return all[i]
		}
		for _, p := range all[i].parts {
			if i > 0 && len(p.at.parts) < len(p.at.wanted) {
				return all[i]
			}
			for _, other := range p.at.parts {
				if !slices.Contains(all, other.op) {
					all = append(all, other.op)
				}
			}
		}
	}
	return nil
}
