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
	"github.com/krait-ml/krait/session/draft"
)

// Request is a prompt and how to continue it. The goroutine that runs the steps calls Choose,
// Accept and Final: they must be quick, and need no locks among themselves.
type Request struct {
	// Prompt is at least one token, all of the engine's vocabulary. It is not copied.
	Prompt []int
	// Tenant names the sender. Tenants share slots, time and KV pages; requests of one tenant run
	// in the order of arrival.
	Tenant string
	// Salt separates the prefix cache: only prefixes of the same salt hit.
	Salt string
	// Breakpoints are numbers of prompt tokens after which the prefix cache should keep a state, and
	// Messages those after which messages of a conversation end, up to the last.
	Breakpoints, Messages []int
	// MaxTokens bounds the tokens generated; at least 1.
	MaxTokens int
	// Choose returns how the token after drafts is chosen, as if they were the next tokens of the
	// text. It is called for each token with no drafts, and again for tokens whose drafts were
	// wrong. The Pick of a choice is called once the drafts before it are accepted.
	Choose func(drafts []int) exec.Choice
	// Draft guesses tokens, which the next step verifies; nil: none does. Neither it nor Eager
	// changes the tokens. The scheduler closes it.
	Draft draft.Drafter
	// Eager verifies all drafts that fit a step, whether they pay or not.
	Eager bool
	// Score returns a choice for each prompt token but the last: its Pick gets the logits after the
	// token, and its result is dropped. The whole prompt is prefilled then, without a prefix hit,
	// and Fetch must be nil. nil: only the logits after the last token are computed.
	Score func(at int) exec.Choice
	// Forced replaces the first chosen tokens, for measurements that replay a text. It is not
	// copied.
	Forced []int
	// Accept gets each chosen token, and reports whether it is the last.
	Accept func(id int) (last bool)
	// Final returns, after Accept, how many of the chosen tokens are certain to be in the text:
	// fewer than all while a stop string may still remove the rest. The cache keeps a snapshot
	// there, and admits no more of a request that Accept ends. Final returns the number of all
	// tokens, that number less one, or its last result. nil: all are certain.
	Final func() int
	// Fetch returns the state of a prefix of the prompt that was prefilled elsewhere. The goroutine
	// that reads the tokens calls it once the request has a slot and room. nil: the scheduler
	// prefills the prompt.
	Fetch func() (Beginning, error)
	// OnBegin is called when the request, or the one whose prompt it shares, gets a slot, by the
	// goroutine that reads the tokens, with the time of that. It may be nil.
	OnBegin func(at time.Time)
	// OnFork is called before the first token if another request of [Scheduler.Streams] prefilled
	// the prompt, with the index of that request. It may be nil.
	OnFork func(index int)
	// OnEnd is called when the request ends without an error, before its slot is freed: the slot
	// has the state after all tokens but the last. It may be nil.
	OnEnd func(slot int) error
	// OnCached gets the number of prompt tokens that hit the prefix cache, in the goroutine that
	// reads the tokens. It may be nil.
	OnCached func(tokens int)
	// OnDrafts gets the number of drafts of a step, and of those that are in the text, before the
	// tokens of the step, in the goroutine that reads the tokens. It may be nil.
	OnDrafts func(drafts, accepted int)
	// OnPrompt gets the number of prompt tokens prefilled, after each chunk, in the goroutine that
	// reads the tokens. It may be nil.
	OnPrompt func(tokens int)
}

// Beginning is the state of a prefix of a prompt that was prefilled elsewhere.
type Beginning interface {
	// Begin restores the state to the new sequence of a slot, and returns the length of the prefix
	// in tokens: fewer than the prompt's.
	Begin(slot int) (fed int, err error)
	// Free releases the state if Begin was not called.
	Free()
}

// Token is a generated token.
type Token struct {
	ID int
	At time.Time // when it was chosen
}

// request is an active or queued Request.
type request struct {
	job
	Request
	*stream
	ctx    context.Context
	outer  context.Context // of the reader
	cancel context.CancelFunc
	unhook func() bool // from ctx
	slot   int         // while it runs, and the last one while it is paused
	out    []int       // chosen tokens
	last   bool        // Accept said so of the last of them
	full   error       // its error at the end if it gets fewer tokens than MaxTokens
	saved  *snapshot   // while it is paused
	forked bool        // saved is the state after the prompt, which another prefilled
	told   bool        // OnBegin was queued
	index  int         // in the list of Streams

	trial trial
	read  int // tokens of the prompt and of out that the drafter was given
	grade int // of its guess
	odds  [draft.Grades]odds
	pays  int // scratch of pace

	fetching, fetched bool      // Fetch runs, or has returned
	from              Beginning // its result
	failed            error
}

// Stream runs a request while its tokens are read. The request is queued when reading begins, waits
// for a slot and room, and frees them before reading ends. The last element may be an error: of a
// step, of ctx, or [exec.ErrClosed]. Leaving the loop stops the request.
func (s *Scheduler) Stream(ctx context.Context, q Request) iter.Seq2[Token, error] {
	return s.Streams(ctx, []Request{q})[0]
}

// Streams is Stream for several requests of the same Prompt, Salt and Tenant. The prompt is
// prefilled once and forked. The requests are queued when the caller first reads one of them, and
// the caller must read each.
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

// read yields the tokens of a request until it ends; more is false if the reader stopped.
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
			if e.call != nil {
				e.call(e.tokens)
			} else if !yield(e.Token, nil) {
				return false, nil
			}
		}
	}
}

// enter queues requests of one prompt, unless one can never run.
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
		if err := s.add(all[from], slices.Clone(all[from+1:to])...); err != nil {
			for _, r := range all[from:] {
				r.cancel()
				r.stream.end(err)
			}
			break
		}
	}
	return all, nil
}

// forks returns how many requests can share a prefill: a step has a row for each.
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

// admits checks a request, and cuts it to the context.
func (l *Limits) admits(r *request) error {
	switch {
	case r.prompt == 0:
		return errors.New("no tokens: an empty prompt has no next token")
	case r.most < 1:
		return fmt.Errorf("MaxTokens is %d; it must be at least 1", r.most)
	case r.Score != nil && r.Fetch != nil:
		return errors.New("a request has both Score and Fetch; logits exist only of prompts that are prefilled here")
	case l.Context > 0 && r.prompt > l.Context:
		return l.tooLong(r.prompt)
	case l.Context > 0 && r.most > l.Context-r.prompt+1:
		r.most, r.full = l.Context-r.prompt+1, l.tooLong(l.Context+1)
	}
	if l.Room > 0 && r.most > l.Room-r.prompt+1 {
		return fmt.Errorf("a prompt of %d tokens and up to %d more; the KV cache has room for %d: ask for fewer", r.prompt, r.most, l.Room)
	}
	return nil
}

func (l *Limits) tooLong(tokens int) error {
	return fmt.Errorf("a sequence of %d tokens; the KV cache has room for %d: open the model with more context", tokens, l.Context)
}
