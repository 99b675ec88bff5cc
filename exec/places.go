package exec

import "github.com/krait-ml/krait/lowering"

// States that are kept lie in slots of their own, beyond those of sequences: a pool, in
// which each has one owner.

// KeptSlab is for how many bytes of states that are kept a rank makes places at once, if one
// takes less.
const KeptSlab = 1 << 20

// place takes a slot for states that are kept, of a model that has some.
func (e *Engine) place() (int32, error) {
	if place := e.kept.take(); place >= 0 {
		return place, nil
	}
	most := int64(0) // that a rank has of a slot
	for _, s := range e.schedules {
		most = max(most, s.Bytes[lowering.State])
	}
	n := len(e.kept.refs) + int(max(1, KeptSlab/most))
	if err := e.machine.KeepSlots(e.Slots() + n); err != nil {
		return 0, err
	}
	e.kept.add(n)
	return e.kept.take(), nil
}

// keptSlot is the machine's slot of states that are kept.
func (e *Engine) keptSlot(s *KeptStates) int { return e.Slots() + int(s.place) }

// KeptUse is how many places for states that are kept there are, and how many are free.
func (e *Engine) KeptUse() (places, free int) {
	e.kept.mu.Lock()
	defer e.kept.mu.Unlock()
	return len(e.kept.refs), len(e.kept.free)
}
