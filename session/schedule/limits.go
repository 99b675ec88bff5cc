// Package schedule lets many requests share the steps of an engine.
//
// A request is a prompt and its sampling. Requests arrive at any time and stream their tokens. Each
// step is a batch of at most [Limits].Tokens tokens: first one token of every decoding sequence,
// then chunks of prompts, in order of arrival. So each decoding sequence gets a token in every
// step, and the oldest prompt at least a grain of tokens: no request starves. With a
// [Limits].PromptShare some steps have no prefill, so that it takes its share of the time and no
// more while sequences decode, and short prompts need not wait for long ones.
//
// Tenants share slots and room: if a tenant waits that has fewer slots than another, a request of
// the other is paused. Its state is saved or recomputed, so that its tokens are the same.
//
// The tokens of a request do not depend on other requests: prompts are cut at multiples of the
// grain only, for which the engine computes the same bits, and each request has its own sampling.
package schedule

import "fmt"

// Limits bound a step, and all requests together.
type Limits struct {
	// Slots is the number of running requests.
	Slots int
	// Tokens bounds the tokens of a step. It must allow for a token of all sequences but one, and a
	// grain of the last one's prompt.
	Tokens int
	// Grain is the number of tokens at whose multiples prompts are cut; 0: 1.
	Grain int
	// Rows bounds the prompt tokens of a step whose logits are computed ([Request.Score]), at least
	// a grain: a row of logits is as long as the vocabulary. 0: Longest.
	Rows int
	// Context is the maximum length of a sequence in tokens; 0: no bound.
	Context int
	// Room is the capacity of the KV cache in tokens, of which active requests reserve their
	// maximum length; 0: no bound.
	Room int
	// Page is the size of a KV page in tokens. Requests reserve whole pages, and Room is a multiple
	// of it. 0: 1.
	Page int
	// Patience is the number of steps for which later requests may pass one that waits for room.
	// After that none of its tenant's does, so that it starts when enough earlier requests have
	// ended. 0: none passes.
	Patience int
	// PromptShare bounds the share of time for prefill while sequences decode, which take
	// 1/(1-PromptShare) as long then; 0: steps prefill as much as fits. With one, short prompts are
	// prefilled beside the oldest, which gets half of a step's tokens.
	PromptShare float64
	// Quantum is the number of tokens a request runs for before it may be paused for a tenant with
	// fewer slots; 0: none is paused.
	Quantum int
	// Snapshots bounds the saved states of requests without slots: of paused requests, and of
	// prompts that several requests share ([Scheduler.Streams]).
	Snapshots int
	// Trials is the number of sequences that may verify drafts in a step; 0: none may.
	Trials int
}

func (l *Limits) check() error {
	if l.Grain == 0 {
		l.Grain = 1
	}
	if l.Page == 0 {
		l.Page = 1
	}
	switch {
	case l.Page < 1 || l.Room%l.Page != 0:
		return fmt.Errorf("room for %d tokens in pages of %d: it must be a multiple", l.Room, l.Page)
	case l.Slots < 1 || l.Grain < 0 || l.Context < 0 || l.Room < 0 || l.Patience < 0 || l.Quantum < 0 || l.Snapshots < 0 || l.Trials < 0:
		return fmt.Errorf("%+v: there must be at least 1 slot, and no limit may be negative", *l)
	case !(l.PromptShare >= 0 && l.PromptShare < 1):
		return fmt.Errorf("a prompt share of %v; it must be at least 0 and below 1", l.PromptShare)
	case l.Tokens < l.Slots-1+l.Grain:
		return fmt.Errorf("at most %d tokens per step; with %d slots there must be at least %d: one for each sequence but one, and %d of a prompt",
			l.Tokens, l.Slots, l.Slots-1+l.Grain, l.Grain)
	}
	if l.Rows == 0 {
		l.Rows = l.Longest()
	}
	if l.Rows < l.Grain {
		return fmt.Errorf("logits of at most %d prompt tokens per step; there must be at least %d, the grain", l.Rows, l.Grain)
	}
	return nil
}

// Longest returns the largest chunk of a prompt. It always fits beside a token of each other
// sequence, so that prompts are rarely cut differently beside others, and never if this is the
// grain.
func (l *Limits) Longest() int {
	n := l.Tokens - l.Slots + 1
	return n - n%l.Grain
}
