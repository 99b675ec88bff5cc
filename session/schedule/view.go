package schedule

import "github.com/krait-ml/krait/exec/state"

// Underway is how far a request has come that has a slot.
type Underway struct {
	Slot   int // its number
	Number int // of the request, in the order of arrival
	Prompt int // tokens
	Read   int // of them, that the engine has or a cache had
	Cached int // of Read, those that were not computed again
	Chosen int // tokens so far
	Most   int // that it may choose
}

// Underway lists the requests that have slots, the oldest first.
func (s *Scheduler) Underway() []Underway {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Underway, 0, len(s.queue.running))
	for _, r := range s.queue.running {
		out = append(out, Underway{state.SlotIndex(r.slot), r.number, r.prompt, min(r.fed, r.prompt), r.cached, r.chosen, r.most})
	}
	return out
}
