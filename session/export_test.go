package session

import (
	"github.com/krait-ml/krait/session/cache"
	"github.com/krait-ml/krait/session/schedule"
)

// Stepper is what a session's scheduler runs steps by.
type Stepper = stepper

// Cache returns the prefix cache; nil: none.
func (s *Session) Cache() *cache.Cache { return s.cache }

// Through replaces the scheduler's engine and prefix cache. No request may have run.
func (s *Session) Through(e schedule.Engine, c schedule.Cache, o Options) (err error) {
	l := s.limits(o)
	s.scheduler, err = schedule.New(e, l, c)
	return err
}

// Grain returns the tokens at multiples of which prompts are cut.
func (s *Session) Grain(o Options) int { return s.limits(o).Grain }

func (s *Session) limits(o Options) schedule.Limits {
	o.Slots = s.engine.Slots()
	l := stepLimits(&o, s.engine.Schedules(), s.model.Vocab)
	l.Context, l.PromptShare = s.engine.Context(), o.PromptShare
	l.Quantum, l.Snapshots = quantum, snapshotsPerSlot*s.engine.Slots()
	l.Room, l.Page, l.Trials = s.plan.Room, s.plan.PageTokens, o.Trials
	return l
}
