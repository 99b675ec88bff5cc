package schedule

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/krait-ml/krait/exec"
)

// Over pipeline stages, decoding sequences run in as many batches as there are stages, in turns: a
// batch runs again as soon as its own tokens are chosen, while other stages run the others. So no
// stage waits for the end of a step. Texts do not depend on it, as they do not depend on company.
//
// While batches are in turns, nothing else may use the engine. They end, each after its step, when
// a request ends, is cancelled or arrives, when one lacks room, or after some rounds.

// rounds bounds the steps of a batch in turns. Other callers of the engine wait for them. The end
// leaves stages idle for as long as a batch takes from the first to the last.
const rounds = 32

// Pipeline is an [Engine] that runs batches of decode in turns.
type Pipeline interface {
	// Turns is how many batches of some sequences StepInTurns should have.
	Turns(sequences int) int
	// StepInTurns runs batches of sequences with one token each in turns, until next, which gets
	// the results of each, returns false for all: see [exec.Engine.StepInTurns].
	StepInTurns(ctx context.Context, list []*exec.Batch, next func(i int, r *exec.Results, err error) (again bool)) error
}

// turning is the batches that run in turns.
type turning struct {
	groups  []group
	steps   int // most of each
	arrived int // requests before they began
	ends    bool
	after   []func() // what waits for the end
}

// group is a batch.
type group struct {
	parts []part
	batch exec.Batch
	runs  bool
	steps int // so far
}

// turns is in how many batches the parts of a step run in turns; 1: as one step. All running
// requests must decode, without drafts.
func (s *Scheduler) turns() int {
	p, ok := s.engine.(Pipeline)
	if !ok || s.manual || len(s.parts) < 2 {
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parts) < len(s.queue.running) || slices.ContainsFunc(s.parts, func(p part) bool { return p.prefills() || !p.row || p.Draft != nil }) {
		return 1
	}
	return p.Turns(len(s.parts))
}

// stepInTurns runs the parts of a step in n batches, over and over. It reports whether any ran: if
// not, the step remains to be run.
func (s *Scheduler) stepInTurns(n int, begun time.Time) (ran bool) {
	t := s.divide(n)
	list := make([]*exec.Batch, n)
	for i := range t.groups {
		list[i] = &t.groups[i].batch
	}
	err := s.engine.(Pipeline).StepInTurns(s.ctx, list, func(i int, r *exec.Results, err error) bool { return s.turn(t, &t.groups[i], r, err) })
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := 0
	for i := range t.groups {
		g := &t.groups[i]
		if steps = max(steps, g.steps); g.runs && lost(err) {
			s.settleParts(g.parts, nil, err)
		}
	}
	if s.turning = nil; steps == 0 && !lost(err) {
		return false
	}
	s.queue.took(s.parts, s.now().Sub(begun)/time.Duration(max(1, steps)))
	for _, f := range t.after {
		f()
	}
	clear(s.parts)
	s.parts = s.parts[:0]
	return true
}

// divide divides the parts of a step in n groups.
func (s *Scheduler) divide(n int) *turning {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &turning{groups: make([]group, n), steps: rounds, arrived: s.queue.count}
	if len(s.queue.waiting) > 0 { // one may have to be paused for those
		t.steps = min(rounds, cmp.Or(s.queue.Quantum, rounds))
	}
	for i := range t.groups {
		g := &t.groups[i]
		g.parts = slices.Clone(s.parts[i*len(s.parts)/n : (i+1)*len(s.parts)/n])
		g.runs = true
		g.fill()
	}
	s.turning = t
	return t
}

// fill makes the batch of a group.
func (g *group) fill() {
	b := &g.batch
	b.Sequences, b.Choices = b.Sequences[:0], b.Choices[:0]
	for _, p := range g.parts {
		b.Sequences = append(b.Sequences, exec.Sequence{Slot: p.slot, Tokens: p.next()})
		b.Choices = append(b.Choices, p.Choose(nil))
	}
}

// turn gives the requests of a group their tokens, and reports whether the group runs again.
func (s *Scheduler) turn(t *turning, g *group, r *exec.Results, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.runs = false
	g.steps++
	s.settleParts(g.parts, r.Tokens, err)
	t.ends = t.ends || s.closed || s.queue.count > t.arrived || g.steps == t.steps
	for _, p := range g.parts {
		t.ends = t.ends || p.ctx.Err() != nil || s.queue.stalled(p.request)
	}
	if t.ends {
		return false
	}
	g.runs = true
	g.fill()
	return true
}

// next is the token that a decoding request feeds next.
func (r *request) next() []int { return r.out[r.fed-r.prompt:][:1] }

// later reports whether batches run in turns, after which f is called: it needs the engine. The
// request runs no more before that.
func (s *Scheduler) later(f func()) bool {
	t := s.turning
	if t != nil {
		t.ends, t.after = true, append(t.after, f)
	}
	return t != nil
}
