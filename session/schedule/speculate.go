package schedule

import (
	"cmp"
	"sync"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/session/draft"
)

// Speculative decoding: a step takes a sequence's last token and drafts after it, on trial, and
// computes the logits after each. Row i has the bits of a step that was fed i drafts, so the token
// chosen from it is the text's if all drafts before are. The first draft that is not the token
// chosen ends the trial, and the engine rolls the sequence back to the tokens that count. No text
// depends on drafts.

// trial is the drafts of a request in a step, and the tokens that come of them.
type trial struct {
	tokens []int // the last token chosen, and drafts
	limit  int   // drafts that fit the step and the request's room
	count  int   // tokens chosen so far
	open   bool  // the next row follows tokens of the text
	bad    error // from the row after the tokens chosen: it has none

	mu    sync.Mutex // the engine calls the picks of all rows at once
	picks []pick     // by row; empty: the engine chooses
}

// pick is a choice on the host that waits for those of the rows before.
type pick struct {
	of     func(logits []float32, chosen int32) int32
	logits []float32 // nil: the engine has not called it
	chosen int32
}

// drafts returns the number of drafts.
func (t *trial) drafts() int { return max(len(t.tokens)-1, 0) }

// reset ends the trial of the last step. The next may have as many drafts as the request has room
// for.
func (r *request) reset() {
	t := &r.trial
	t.tokens, t.limit = t.tokens[:0], min(exec.MaxTrial, r.most-r.chosen)-1
}

// draft makes drafts for the next step.
func (s *Scheduler) draft() {
	q := &s.queue
	left := budget{q.Tokens, q.Slots - 1 + q.Rows}
	decoding := 0
	s.drafting = s.drafting[:0]
	for _, p := range s.parts {
		p.reset()
		left.tokens, left.rows = left.tokens-p.tokens, left.rows-p.rows()
		if p.prefills() {
			continue
		}
		decoding++
		if q.Room > 0 {
			p.trial.limit = min(p.trial.limit, p.held-p.prompt-p.chosen)
		}
		if p.Draft != nil && p.row && p.trial.limit > 0 && len(s.drafting) < q.Trials && p.look() {
			s.drafting = append(s.drafting, p.request)
		}
	}
	q.pace.limit(decoding, s.drafting)
	for _, r := range s.drafting {
		t := &r.trial
		n := min(t.limit, left.tokens, left.rows)
		if n <= 0 {
			continue
		}
		t.tokens = r.Draft.Draft(append(t.tokens, r.out[len(r.out)-1]), n)
		t.tokens = t.tokens[:min(len(t.tokens), 1+n)]
		left.tokens, left.rows = left.tokens-t.drafts(), left.rows-t.drafts()
	}
}

// readsHidden returns the drafter of a request if it reads hidden states.
func (r *request) readsHidden() draft.HiddenReader {
	d, _ := r.Draft.(draft.HiddenReader)
	return d
}

// readHidden gives drafters the hidden states of a step.
func (s *Scheduler) readHidden(r *exec.Results) error {
	if !s.hidden {
		return nil
	}
	t, err := r.Output(exec.HiddenOutput)
	if err != nil {
		return err
	}
	first := 0
	for i, p := range s.parts {
		n := len(s.batch.Sequences[i].Tokens)
		if d := p.readsHidden(); d != nil {
			p.tellDrafter()
			for j := range n {
				d.ReadHidden(p.fed+j, t.Row(first+j))
			}
		}
		first += n
	}
	return nil
}

// tellDrafter gives the drafter the tokens that it has not read.
func (r *request) tellDrafter() {
	if r.read == 0 {
		r.Draft.Read(r.Prompt...)
		r.read = r.prompt
	}
	r.Draft.Read(r.out[r.read-r.prompt:]...)
	r.read = r.prompt + len(r.out)
}

// look has the drafter look at the tokens so far, and reports whether it has a guess.
func (r *request) look() bool {
	r.tellDrafter()
	for i := range r.odds {
		r.odds[i].fade()
	}
	r.grade = r.Draft.Grade()
	return r.grade >= 0
}

// fillTrial makes the trial of a part, with a row for each token.
func (s *Scheduler) fillTrial(r *request, q *exec.Sequence) {
	t := &r.trial
	t.count, t.open, t.bad, t.picks = 0, true, nil, t.picks[:0]
	q.Trial, q.Tokens, q.Rows = true, t.tokens, rowNumbers[:len(t.tokens)]
	for i := range t.tokens {
		c := r.Choose(t.tokens[1 : 1+i])
		if c.Pick != nil {
			t.picks = append(t.picks, pick{of: c.Pick})
			c.Pick = func(logits []float32, chosen int32) int32 {
				s.picked(r, i, logits, chosen)
				return chosen
			}
		}
		s.choose = append(s.choose, c)
	}
}

// rowNumbers are the rows of a trial.
var rowNumbers = func() (n []int) {
	for i := range exec.MaxTrial {
		n = append(n, i)
	}
	return n
}()

// picked takes the tokens that the host picks of the rows whose logits are there. A row is picked
// after the tokens before it are accepted, so that penalties, masks and stop strings are those of
// its place in the text, and not at all after a wrong draft.
func (s *Scheduler) picked(r *request, row int, logits []float32, chosen int32) {
	t := &r.trial
	t.mu.Lock()
	defer t.mu.Unlock()
	t.picks[row].logits, t.picks[row].chosen = logits, chosen
	for t.open && t.picks[t.count].logits != nil {
		p := &t.picks[t.count]
		s.try(r, p.of(p.logits, p.chosen))
	}
}

// try takes the token chosen from the next row of a trial.
func (s *Scheduler) try(r *request, chosen int32) {
	t := &r.trial
	if t.bad = r.add(chosen); t.bad != nil {
		t.open = false
		return
	}
	t.count++
	t.open = t.count < len(t.tokens) && !r.last && r.out[len(r.out)-1] == t.tokens[t.count] && !s.keeps(r)
}

// verify takes the tokens of a step's trials, and settles the trials in the engine.
func (s *Scheduler) verify() {
	s.kept, s.unsettled = s.kept[:0], nil
	row := 0
	for i := range s.parts {
		p := &s.parts[i]
		n := p.rows()
		t := &p.trial
		if t.drafts() > 0 {
			chosen := s.chosen[row:][:n]
			for t.open && (len(t.picks) == 0 || chosen[t.count] < 0) { // the engine calls no pick of a bad row
				s.try(p.request, chosen[t.count])
			}
			if t.count > 0 {
				s.kept = append(s.kept, exec.Kept{Slot: p.slot, Tokens: t.count})
			}
		}
		row += n
	}
	if len(s.kept) > 0 {
		s.unsettled = s.engine.Settle(s.ctx, s.kept)
	}
}

// conclude advances a request by its trial.
func (s *Scheduler) conclude(p part, now time.Time) {
	t := &p.trial
	if s.unsettled != nil && t.count > 0 {
		s.end(p.request, cmp.Or(p.ctx.Err(), s.unsettled))
		return
	}
	drafts, right := t.drafts(), t.right(p.out)
	p.odds[p.grade].saw(right, min(t.count, drafts))
	s.done.count(p.Draft.Kind(), drafts, right)
	if p.OnDrafts != nil {
		p.put(event{tokens: drafts, call: func(int) { p.OnDrafts(drafts, right) }})
	}
	p.tokens = t.count
	s.done.Tokens += int64(t.count)
	p.feed()
	s.tell(p.request, t.count, now)
	if t.bad != nil {
		s.end(p.request, t.bad)
	}
}

// Drafts counts drafts of a kind.
type Drafts struct {
	Trials, Tokens int64 // steps of sequences with drafts, and the drafts
	Accepted       int64 // of Tokens, those that are in the text
}

func (l *Load) count(kind string, drafts, right int) {
	d := l.Drafts[kind]
	d.Trials++
	d.Tokens += int64(drafts)
	d.Accepted += int64(right)
	if l.Drafts == nil {
		l.Drafts = map[string]Drafts{}
	}
	l.Drafts[kind] = d
}

// right returns how many drafts are tokens of the text.
func (t *trial) right(out []int) int {
	if t.count == 0 {
		return 0
	}
	out = out[len(out)-t.count:]
	for i, id := range t.tokens[1:] {
		if i == len(out) || out[i] != id {
			return i
		}
	}
	return t.drafts()
}
