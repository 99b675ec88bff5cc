// Package schedule lets many requests share the steps of an engine.
//
// A request is a prompt and how to go on from it. Requests arrive at any time and
// stream their tokens. Each step is a batch of at most [Limits].Tokens tokens: first a
// token of every sequence that is being continued, then chunks of the prompts that are
// being read, in the order in which they came. So a sequence that is being continued
// gets a token in every step, and the oldest prompt at least a grain of tokens: nobody
// starves. With a [Limits].PromptShare some steps read no prompts, so that these take their
// share of the time and no more while others are continued, and short prompts need not wait for long ones.
//
// Tenants share slots and room: where one waits that has fewer slots than another, a request of the
// other is paused. Its state is kept, or computed again, so that it gets what it would have got.
//
// What a request gets does not depend on what runs beside it: prompts are cut at
// multiples of the grain only, which must be such that an engine does not mind, and
// each request chooses its tokens by itself.
package schedule

import "fmt"

// Limits say what a step, and what all requests together, may take.
type Limits struct {
	// Slots is how many requests may be under way at the same time.
	Slots int
	// Tokens is how many tokens a step has at most. There must be enough for a
	// token of all sequences but one, and a grain of the last one's prompt.
	Tokens int
	// Grain is what prompts are cut at multiples of; 0 is 1.
	Grain int
	// Rows is how many tokens of prompts whose logits are wanted ([Request.Score]) a step has
	// at most, a grain at least: a row of logits is as long as the vocabulary. 0 is Longest.
	Rows int
	// Context is how many tokens a sequence may have; 0: any number.
	Context int
	// Room is how many tokens all sequences under way may have together, each
	// counted as long as it can become; 0: any number.
	Room int
	// Page is of how many tokens the pages are that sequences have for themselves: each takes Room in
	// whole ones. Room is some of them. 0 is 1.
	Page int
	// Patience is how many steps a request that waits for room lets later ones pass
	// that are content with less. After these nobody passes it any more, so that it
	// begins when enough of those before it have ended. 0: nobody ever passes.
	Patience int
	// PromptShare is how much of the time prompts may have at most while other sequences are
	// continued, which take 1/(1-PromptShare) as long for that; 0: steps always read as much as
	// fits. With one, short prompts are read beside the oldest, which has half of a step's tokens then.
	PromptShare float64
	// Quantum is how many tokens a request is fed before it may be paused, so that a request of a
	// tenant with fewer slots gets its slot; 0: none is paused.
	Quantum int
	// Snapshots bounds the copies of states that are kept for requests without slots: of those
	// that were paused, and of prompts that several requests go on from ([Scheduler.Streams]).
	Snapshots int
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
		return fmt.Errorf("room for %d tokens in pages of %d: it must be some of them", l.Room, l.Page)
	case l.Slots < 1 || l.Grain < 0 || l.Context < 0 || l.Room < 0 || l.Patience < 0 || l.Quantum < 0 || l.Snapshots < 0:
		return fmt.Errorf("%+v: there must be a slot, and nothing may be negative", *l)
	case !(l.PromptShare >= 0 && l.PromptShare < 1):
		return fmt.Errorf("prompts with a share of %v of the time: it must be at least 0, and below 1", l.PromptShare)
	case l.Tokens < l.Slots-1+l.Grain:
		return fmt.Errorf("at most %d tokens per step; with %d slots there must be at least %d: one for each sequence but one, and %d of a prompt",
			l.Tokens, l.Slots, l.Slots-1+l.Grain, l.Grain)
	}
	if l.Rows == 0 {
		l.Rows = l.Longest()
	}
	if l.Rows < l.Grain {
		return fmt.Errorf("at most %d tokens of a step whose logits are wanted; there must be %d, which prompts are cut at multiples of", l.Rows, l.Grain)
	}
	return nil
}

// Longest is how many tokens of a prompt a step takes at most. They always fit beside a
// token of each other sequence, so that prompts are rarely cut otherwise in company
// than alone, and never where this is the grain.
func (l *Limits) Longest() int {
	n := l.Tokens - l.Slots + 1
	return n - n%l.Grain
}
