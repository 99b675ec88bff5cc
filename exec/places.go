package exec

import (
	"sync"

	"github.com/krait-ml/krait/lowering"
)

// States that are kept lie in slots of their own, beyond those of sequences.

// slabBytes is for how many bytes of states slots are made at once, if one takes less.
const slabBytes = 1 << 20

// places are these slots. Like pages they are given back while steps run.
type places struct {
	mu   sync.Mutex
	n    int // slots in all
	free []int
}

func newPlaces(slots int) *places { return &places{n: slots} }

// take is a free slot, or -1.
func (p *places) take() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return -1
	}
	slot := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return slot
}

func (p *places) put(slot int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, slot)
}

// add takes in slots that were made, until there are n.
func (p *places) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; p.n < n; p.n++ {
		p.free = append(p.free, p.n)
	}
}

// place is a slot for states that are kept, of a model that has some.
func (e *Engine) place() (int, error) {
	most := int64(0) // that a rank has of a slot
	for _, s := range e.schedules {
		most = max(most, s.Bytes[lowering.State])
	}
	if slot := e.kept.take(); slot >= 0 {
		return slot, nil
	}
	n := e.kept.n + int(max(1, slabBytes/most))
	if err := e.machine.KeepSlots(n); err != nil {
		return 0, err
	}
	e.kept.add(n)
	return e.kept.take(), nil
}
