package schedule

import "github.com/krait-ml/krait/exec/state"

// Active is the progress of a running request.
type Active struct {
	Slot   int // index
	Number int // of the request, in the order of arrival
	Prompt int // tokens
	Read   int // of them, prefilled or cached
	Cached int // of Read, hits of the prefix cache
	Chosen int // tokens generated
	Most   int // tokens to generate at most
}

// Active lists the running requests, the oldest first.
func (s *Scheduler) Active() []Active {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Active, 0, len(s.queue.running))
	for _, r := range s.queue.running {
		out = append(out, Active{state.SlotIndex(r.slot), r.number, r.prompt, min(r.fed, r.prompt), r.cached, r.chosen, r.most})
	}
	return out
}
