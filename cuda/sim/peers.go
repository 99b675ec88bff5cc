package sim

import (
	"fmt"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
)

// Calls that allocate, free or load wait for what runs on devices that may use each
// other's memory, as those of a group do. A collective that waits for this device
// runs on for as long as it is not called here; a thread that waits for it in turn
// never gets to calling it.

// enterWithPeers is enterAlone for such calls.
func (p *primary) enterWithPeers(call string) error {
	err := p.enterAlone(call)
	if err == nil {
		if err = p.quiet(call); err != nil {
			p.mu.Unlock()
		}
	}
	return err
}

// lateness is how long a device that comes late waits for others to get ahead.
const lateness = 2 * time.Millisecond

// quiet returns when no collective waits for the device, and with an error when one
// goes on doing so.
func (p *primary) quiet(call string) error {
	if p.o.Late == p.info.Index+1 {
		p.waitUntil(lateness, func() bool { return p.awaited() != "" })
	}
	grace := min(p.o.Patience, lastGrace)
	if p.awaited() == "" || p.waitUntil(grace, func() bool { return p.awaited() == "" || p.lost != nil || p.gone }) {
		return p.allow(call)
	}
	return &driver.Error{
		Call: call, Text: fmt.Sprintf("device %d waits for all devices of its group, and %s", p.info.Index, p.awaited()), Detail: "CUDA would wait forever",
		Hint: "Allocate, free and load on all devices before any of them begins with collectives.",
	}
}

// awaited says which collective waits for a rank of the device, or "".
func (p *primary) awaited() string {
	for _, l := range p.lanes {
		if o := l.first(); l.p != p && l.p.peers[p] && o != nil && o.waits > 0 {
			return fmt.Sprintf("%s on device %d waits for another device", o.name, l.p.info.Index)
		}
	}
	for _, g := range p.groups {
		if g.err != nil {
			continue
		}
		for _, m := range g.open {
			for _, rank := range m.wanted {
				if x := g.members[rank]; x == nil || x.primary != p || x.gone != "" || m.part(rank) != nil {
					continue
				}
				for _, there := range m.parts {
					if there.c.gone == "" && there.op.parts != nil {
						return fmt.Sprintf("%s of rank %d on device %d waits for rank %d, which has not called it", there.name, there.c.rank, there.c.info.Index, rank)
					}
				}
			}
		}
	}
	return ""
}

// waitUntil waits until ok, for a while at most. It gives the lock away meanwhile.
func (d *Driver) waitUntil(most time.Duration, ok func() bool) bool {
	end := time.Now().Add(most)
	for !ok() {
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		alarm := time.AfterFunc(left, d.ring)
		d.wake.Wait()
		alarm.Stop()
	}
	return true
}
