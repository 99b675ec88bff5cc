package schedule

import (
	"cmp"
	"time"
)

// snapshot is the state of a sequence, for a paused request or for forks of a prompt.
type snapshot struct {
	Saved
	users int // requests
}

// pause takes the slot of a request. Its state is saved, or recomputed if there is no memory for
// it.
func (s *Scheduler) pause(r *request) {
	s.done.Paused++
	if s.queue.snapshots == s.queue.Snapshots {
		s.restart(r)
		return
	}
	saved, err := s.engine.Save(r.slot)
	if err != nil { // there is less memory than planned: save no more
		s.queue.Snapshots = s.queue.snapshots
		s.restart(r)
		return
	}
	r.saved = &snapshot{saved, 1}
	s.queue.snapshots++
	s.queue.pause(r)
	if err := s.engine.Free(r.slot); err != nil {
		s.end(r, err)
	}
}

// resume restores a paused request, or a fork, to its new slot.
func (s *Scheduler) resume(r *request, was int) {
	err := r.saved.Restore(r.slot)
	switch {
	case s.cache == nil:
	case r.forked:
		s.cache.Fork(r.slot, r.Salt, r.Prompt)
	default:
		s.cache.Move(was, r.slot)
	}
	forked := r.forked
	r.forked = false
	s.release(r)
	switch {
	case err != nil:
		s.end(r, err)
	case forked:
		s.see(r, false) // its first token was accepted before it had a slot
	}
}

// release frees the saved state of a request without a slot.
func (s *Scheduler) release(r *request) {
	if r.saved.users--; r.saved.users == 0 {
		r.saved.Free()
		s.queue.snapshots--
	}
	r.saved = nil
}

// restart takes the slot, if any, and the room of a request, and queues it: its state is recomputed
// later, to the same bits.
func (s *Scheduler) restart(r *request) {
	s.done.Restarted++
	s.remember(r, false)
	if r.saved != nil {
		s.release(r)
	} else {
		s.queue.pause(r)
		if err := s.engine.Free(r.slot); err != nil {
			s.end(r, err)
			return
		}
	}
	s.queue.restart(r)
}

// fork starts the requests that share a request's prompt, each with its chosen token, or ends them
// if the step failed.
func (s *Scheduler) fork(r *request, chosen []int32, failed error, now time.Time) {
	if len(r.forks) == 0 {
		return
	}
	var state *snapshot
	if failed == nil {
		saved, err := s.engine.Save(r.slot)
		state, failed = &snapshot{saved, 1}, err
	}
	for i, f := range s.queue.fork(r) {
		if failed != nil {
			s.end(f, cmp.Or(f.ctx.Err(), failed))
			continue
		}
		f.chosen, f.forked, f.slot = 1, true, -1
		if f.OnFork != nil {
			f.OnFork(r.index)
		}
		f.saved = state
		state.users++
		s.accept(f, chosen[i], now)
	}
	if state == nil {
		s.queue.snapshots--
	} else if state.users--; state.users == 0 {
		if state.Saved != nil {
			state.Free()
		}
		s.queue.snapshots--
	}
}
