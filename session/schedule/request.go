package schedule

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait/exec"
)

// Request is a prompt that is to be continued, once. Choose and Accept are called by
// the goroutine that runs the steps: they must be quick, and may keep what they need
// without locks.
type Request struct {
	// Prompt is at least one token, all of the engine's vocabulary. It is not copied.
	Prompt []int
	// Tenant names the sender. Tenants share slots, time and KV pages; requests of one tenant run in
	// the order of arrival.
	Tenant string
	// Salt is whose a cache keeps it as: it finds what has the same salt only.
	Salt string
	// MaxTokens is how many tokens are chosen at most, at least 1.
	MaxTokens int
	// Choose says how the next token is chosen; once for each.
	Choose func() exec.Choice
	// Score says how the logits after the token of the prompt at an index are looked at, for each
	// but the last: by its Pick, whose token nobody takes. Then the whole prompt is prefilled, without a prefix hit, and there is no Fetch. nil: only the logits after
	// the last one are computed.
	Score func(at int) exec.Choice
	// Forced are the first tokens after the prompt, in the place of those that are chosen:
	// for measurements that replay what is known. It may be nil, and is not copied.
	Forced []int
	// Accept gets each token that was chosen, and reports whether it is the last.
	Accept func(id int) (last bool)
	// Final returns, after Accept, how many of the chosen tokens are certain to be in the text: fewer
	// than all while a stop string may still remove the rest. The cache keeps a snapshot there, and
	// admits no more of a request that Accept ends. Final returns the number of all tokens, that number
	// less one, or its last result. nil: all are certain.
	Final func() int
	// Fetch returns the state of a prefix of the prompt that was prefilled elsewhere. The goroutine
	// that reads the tokens calls it once the request has a slot and room. nil: the scheduler
	// prefills the prompt.
	Fetch func() (Beginning, error)
	// OnBegin is called when the request, or the one whose prompt it shares, gets a slot, by the
	// goroutine that reads the tokens. It may be nil.
	OnBegin func()
	// OnFork is called before the first token if another request of [Scheduler.Streams] prefilled the
	// prompt, with the index of that request. It may be nil.
	OnFork func(index int)
	// OnEnd is called when the request has ended well, and its slot, which is about to be
	// freed, has what came of all tokens but the last that was chosen. It may be nil.
	OnEnd func(slot int) error
	// OnCached is told how many tokens of the prompt need not be read, since a cache
	// had them, by whoever reads the tokens. It may be nil.
	OnCached func(tokens int)
	// OnPrompt is told how many tokens of the prompt have been read, after each chunk,
	// by whoever reads the tokens. It may be nil.
	OnPrompt func(read int)
}

// Beginning is the state of a prefix of a prompt that was prefilled elsewhere.
type Beginning interface {
	// Begin restores the state to the new sequence of a slot, and returns the length of the prefix in
	// tokens: fewer than the prompt's.
	Begin(slot int) (fed int, err error)
	// Free releases the state if Begin was not called.
	Free()
}

// Token is a token that was chosen.
type Token struct {
	ID int
	At time.Time // when; whoever is slow gets it later
}

// request is a Request from its arrival to its end.
type request struct {
	job
	Request
	*stream
	ctx    context.Context
	outer  context.Context // of whoever reads it
	cancel context.CancelFunc
	unhook func() bool // from ctx
	slot   int         // while it is under way, and the last one while it is paused
	out    []int       // what was chosen
	full   error       // what it ends with where it gets less than it asks for
	saved  *snapshot   // while it is paused
	forked bool        // its state is that after the prompt, which another read
	told   bool        // that it has a slot
	index  int         // in the list of Streams

	fetching, fetched bool      // its Fetch is under way, or has returned
	from              Beginning // and what it brought
	failed            error
}

// Stream runs a request while its tokens are read. It arrives when reading begins, waits
// until there are a slot and room, and gives them back before reading ends. An error is
// the last that comes: that of a step that the request was in, that of ctx, or
// [exec.ErrClosed]. Who stops reading stops the request.
func (s *Scheduler) Stream(ctx context.Context, q Request) iter.Seq2[Token, error] {
	return s.Streams(ctx, []Request{q})[0]
}

// Streams is Stream of several requests of the same Prompt, Salt and Tenant. The prompt is prefilled once and forked. The requests arrive when the caller first reads one of
// them, and the caller must read each.
func (s *Scheduler) Streams(ctx context.Context, list []Request) []iter.Seq2[Token, error] {
	enter := sync.OnceValues(func() ([]*request, error) { return s.enter(ctx, list) })
	out := make([]iter.Seq2[Token, error], len(list))
	for i := range list {
		out[i] = func(yield func(Token, error) bool) {
			entered, err := enter()
			if err != nil {
				yield(Token{}, err)
				return
			}
			more, err := s.read(entered[i], yield)
			if more && err != nil {
				yield(Token{}, err)
			}
		}
	}
	return out
}

// read hands on what a request gets, and returns when the request has ended: without
// more where nobody wants it.
func (s *Scheduler) read(r *request, yield func(Token, error) bool) (more bool, err error) {
	defer r.wait()
	defer r.cancel()
	for list, err := r.take(nil); ; list, err = r.take(list) {
		if len(list) == 0 {
			return true, err
		}
		for _, e := range list {
			if err := r.outer.Err(); err != nil {
				return true, err
			}
			if e.tell != nil {
				e.tell(e.read)
			} else if !yield(e.Token, nil) {
				return false, nil
			}
		}
	}
}

// enter lets requests of one prompt arrive, unless one can never run.
func (s *Scheduler) enter(ctx context.Context, list []Request) ([]*request, error) {
	all := make([]*request, len(list))
	for i, q := range list {
		all[i] = &request{job: job{prompt: len(q.Prompt), most: q.MaxTokens, scored: q.Score != nil}, Request: q, stream: newStream(), outer: ctx, index: i}
		if err := s.limits.admits(all[i]); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, r := range all {
		r.ctx, r.cancel = context.WithCancel(ctx)
		r.unhook = context.AfterFunc(r.ctx, s.interrupt)
	}
	forks := s.limits.forks(all[0])
	for from := 0; from < len(all); from += 1 + forks {
		to := min(from+1+forks, len(all))
		if err := s.arrive(all[from], slices.Clone(all[from+1:to])...); err != nil {
			for _, r := range all[from:] {
				r.cancel()
				r.stream.end(err)
			}
			break
		}
	}
	return all, nil
}

// forks is how many requests go on from a prompt together: a step has a row for each.
func (l *Limits) forks(r *request) int {
	n := l.Rows - 1
	if r.scored {
		n -= l.Grain
	}
	if l.Snapshots == 0 {
		n = 0
	}
	return max(n, 0)
}

// admits checks a request, and cuts it to what a sequence may have.
func (l *Limits) admits(r *request) error {
	switch {
	case r.prompt == 0:
		return errors.New("no tokens: an empty prompt has no next token")
	case r.most < 1:
		return fmt.Errorf("at most %d tokens are to be chosen; it must be at least 1", r.most)
	case r.Score != nil && r.Fetch != nil:
		return errors.New("the logits of a prompt are wanted that was read elsewhere: only of what is read here there are any")
	case l.Context > 0 && r.prompt > l.Context:
		return l.tooLong(r.prompt)
	case l.Context > 0 && r.most > l.Context-r.prompt+1:
		r.most, r.full = l.Context-r.prompt+1, l.tooLong(l.Context+1)
	}
	if l.Room > 0 && r.most > l.Room-r.prompt+1 {
		return fmt.Errorf("a prompt of %d tokens and up to %d that follow; there is room for %d in all: ask for fewer", r.prompt, r.most, l.Room)
	}
	return nil
}

func (l *Limits) tooLong(tokens int) error {
	return fmt.Errorf("a sequence of %d tokens; the attention caches have room for %d: open the model with more context", tokens, l.Context)
}
