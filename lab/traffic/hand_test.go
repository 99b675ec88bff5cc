package traffic

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/session/admit"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/krait-ml/krait/session/schedule"
)

// round is a clock of round numbers: a step takes 10 ms and 1 ms for each token, a trial keep and
// replay.
type round struct{ keep, replay float64 }

func (round) Step(z graph.Sizes) (float64, error)           { return 0.010 + 0.001*float64(z.Tokens), nil }
func (r round) Trial(int, int) (keep, replay float64)       { return r.keep, r.replay }
func one(slots, tokens int) Server                          { return many(1, slots, tokens) }
func (s Server) with(change func(*Server)) (changed Server) { change(&s); return s }
func many(number, slots, tokens int) Server {
	return Server{Number: number, Ranks: 1, Clock: round{}, Limits: schedule.Limits{Slots: slots, Tokens: tokens, Trials: slots}}
}

// traceOf makes a trace from requests such as "20 5/3": at 20 ms a prompt of 5 tokens, to which 3
// are generated. Prompts with a letter, as in "0 8/1 a", begin as others with that letter,
// and with a number after it ("0 8/1 a5") in that many tokens only.
func traceOf(t *testing.T, text string) (trace []prefix.Request) {
	t.Helper()
	for i, part := range strings.Split(text, ", ") {
		var at float64
		var prompt, output, shared int
		var letter rune
		n, err := fmt.Sscanf(part, "%g %d/%d %c%d", &at, &prompt, &output, &letter, &shared)
		switch n {
		case 3:
			shared = 0
		case 4:
			shared = prompt
		case 5:
		default:
			t.Fatalf("%q: %v", part, err)
		}
		var b prefix.Builder
		b.Append(100_000_000+1_000_000*int32(letter), shared)
		b.Append(1_000_000*int32(i+1), prompt-shared)
		b.Append(int32(500_000_000+1_000_000*i), output)
		trace = append(trace, prefix.Request{At: at / 1000, Tokens: b.Tokens(), InputLen: prompt})
	}
	return trace
}

// told writes an outcome as the milliseconds of its tokens, or its error.
func told(o *load.Outcome) string {
	if o.Err != nil {
		return o.Err.Kind
	}
	at := o.First.Sub(wall(0)).Seconds()
	text := fmt.Sprint(math.Round(at*1e9) / 1e6)
	for _, gap := range o.Gaps {
		at += gap
		text += fmt.Sprint(" ", math.Round(at*1e9)/1e6)
	}
	if o.Cached > 0 {
		text += fmt.Sprintf(" (%d)", o.Cached)
	}
	return text
}

// attention and hybrid are prefix caches that never evict: of KV caches, and of states as well, of
// which prompts leave those at multiples of 4 tokens.
func attention(s *Server) {
	s.Policy, s.Capacity, s.Model = "lru", 1<<40, prefix.Model{FLOPsPerToken: 1, CacheBytes: 1}
}

func hybrid(s *Server) {
	attention(s)
	s.Model.StateBytes, s.Model.Grain = 1, 4
}

// slow is a link of 5 ms and 1 ms per token.
var slow = Link{Latency: 0.005, Bandwidth: 1000, Bytes: func(tokens int) int64 { return int64(tokens) }}

// hand are schedules that were worked out by hand, from the rules of docs/scheduling.md,
// docs/routing.md and docs/prefix-cache.md. Tokens come at the milliseconds of want, by request,
// with the tokens that hit in parentheses; a step of n tokens takes 10+n ms.
var hand = []struct {
	name, requests, want string
	Options
}{
	// A step of 5 tokens gives the first, steps of 1 the others.
	{"one token", "0 5/1", "15", Options{Decode: one(4, 100)}},
	{"one request", "0 5/3", "15 26 37", Options{Decode: one(4, 100)}},
	// Chunks of 4, 4 and 2: 14 + 14 + 12.
	{"chunks", "0 10/2", "40 51", Options{Decode: one(1, 4)}},
	// A step may have 6 tokens, but a prompt is cut at multiples of 4.
	{"grain", "0 10/1", "40", Options{Decode: one(1, 6).with(func(s *Server) { s.Limits.Grain = 4 })}},
	// 8 tokens, then 2.
	{"two together", "0 5/2, 0 3/2", "18 30, 18 30", Options{Decode: one(4, 100)}},
	// The second comes during the step from 15 to 26, and is in that of 1 + 3 tokens after it.
	{"during a step", "0 5/3, 20 3/1", "15 26 40, 40", Options{Decode: one(4, 100)}},
	// It comes when a step ends, and is in the next: 1 + 3 tokens.
	{"at the end of a step", "0 5/2, 15 3/1", "15 29, 29", Options{Decode: one(4, 100)}},
	// 15 + 11, and then 13.
	{"one slot", "0 5/2, 1 3/1", "15 26, 39", Options{Decode: one(1, 100)}},
	// The third gets the slot of the second at 18, and 1 + 2 tokens take 13.
	{"two slots", "0 5/3, 0 3/1, 0 2/1", "18 31 42, 18, 31", Options{Decode: one(2, 100)}},
	// With 6 tokens per step: 1 + 5, twice, and then the first alone.
	{"chunks beside tokens", "0 5/4, 1 10/1", "15 31 47 58, 47", Options{Decode: one(2, 6)}},
	// With 6 tokens per step, of which a chunk has at most 5: 5 + 1, then 3 + 3.
	{"a full step", "0 8/1, 0 4/1", "32, 32", Options{Decode: one(2, 6)}},
	// Nothing happens from 15 to 100.
	{"a pause", "0 5/1, 100 5/1", "15, 115", Options{Decode: one(4, 100)}},
	// Times count from the first request.
	{"a late trace", "5000 5/1, 5100 5/1", "15, 115", Options{Decode: one(4, 100)}},
	// The first two share a step and end with it, at their first tokens: 18, and then 14.
	{"three at a time", "0 4/1, 0 4/1, 0 4/1", "18, 18, 32", Options{Decode: one(2, 8)}},
	// A chunk ends with the prompt: 14 + 14. The next has chunks of 4 and 1: 14 + 11.
	{"chunks to the token", "0 8/1, 0 5/1", "28, 53", Options{Decode: one(1, 4)}},
	// Five arrive one by one at 2 slots. The steps: 0–13 a; 13–28 a, b (1+4, 15); b ends at 28;
	// 28–42 a, c (1+3, 14); c ends; 42–56 a, d (1+3): both end; 56–68 e (2).
	{"five", "0 3/4, 5 4/1, 20 3/1, 30 3/1, 45 2/1", "13 28 42 56, 28, 42, 56, 68", Options{Decode: one(2, 100)}},
	// One client sends the next when the last has ended: at 0, 26 and 52.
	{"closed loop", "0 5/2, 0 5/2, 0 5/2", "15 26, 41 52, 67 78", Options{Decode: one(4, 100), Load: load.Load{Concurrency: 1}}},
	// The third is sent at 20, when the first has ended, and is in the next step: 1 + 5 tokens.
	{"two clients", "0 5/1, 0 5/2, 0 5/1", "20, 20 36, 36", Options{Decode: one(4, 100), Load: load.Load{Concurrency: 2}}},

	// Of 16 tokens of KV cache two take 5+4-1 = 8 each, so that the third is rejected.
	{"no room", "0 5/4, 0 5/4, 0 3/2", "20 32 44 56, 20 32 44 56, status 429", Options{Decode: one(4, 100).with(func(s *Server) { s.Limits.Room = 16 })}},
	// They fill the room exactly. The last comes at the time at which they end, before they have.
	{"room to the token", "0 5/4, 0 5/4, 0 1/1, 56 3/2", "20 32 44 56, 20 32 44 56, status 429, status 429", Options{Decode: one(4, 100).with(func(s *Server) { s.Limits.Room = 16 })}},
	// It comes when they have ended.
	{"room again", "0 5/4, 0 5/4, 60 3/2", "20 32 44 56, 20 32 44 56, 73 84", Options{Decode: one(4, 100).with(func(s *Server) { s.Limits.Room = 16 })}},
	// It comes when the last step of both begins, and needs 4 of 0 tokens.
	{"room too early", "0 5/4, 0 5/4, 44 3/2", "20 32 44 56, 20 32 44 56, status 429", Options{Decode: one(4, 100).with(func(s *Server) { s.Limits.Room = 16 })}},
	// 20+10-1 tokens never fit 16.
	{"never room", "0 20/10", "status 400", Options{Decode: one(4, 100).with(func(s *Server) { s.Limits.Room = 16 })}},
	// One runs, one waits, and the queue is full.
	{"full queue", "0 5/1, 0 3/1, 0 3/1", "15, 28, status 429", Options{Decode: one(1, 100).with(func(s *Server) { s.Queue.Requests = 1 })}},
	// The fourth comes while the second runs and none waits.
	{"queue again", "0 5/1, 0 3/1, 0 2/1, 20 2/1", "15, 28, status 429, 40", Options{Decode: one(1, 100).with(func(s *Server) { s.Queue.Requests = 1 })}},
	// Each takes 6 of 10 tokens.
	{"queued tokens", "0 5/1, 0 5/1", "15, status 429", Options{Decode: one(4, 100).with(func(s *Server) { s.Queue = admit.Limits{Tokens: 10} })}},

	// From 15 on the first decodes. A step without the second's prompt is measured, 11 ms, then its
	// prompt of 20 tokens has a step with the token of the first: 31 ms, of which 20 are prefill.
	{"half for prompts", "0 5/5, 1 20/1", "15 26 57 68 79, 57", Options{Decode: one(4, 100).with(func(s *Server) { s.Limits.PromptShare = 0.5 })}},
	// A step has 1 + 11 tokens, 22 ms, of which 11 are prefill and 11 decode: nothing is owed, and
	// the last 9 follow at once.
	{"half, in chunks", "0 5/6, 1 20/1", "15 26 48 68 79 90, 68", Options{Decode: one(2, 12).with(func(s *Server) { s.Limits.PromptShare = 0.5 })}},
	// A step has 1 + 10 tokens, 21 ms: 10 of prefill ask for 30 of decode, of which the step had 11.
	// The other 19 are two steps.
	{"a quarter for prompts", "0 5/6, 1 20/1", "15 26 47 58 69 90, 90", Options{Decode: one(2, 11).with(func(s *Server) { s.Limits.PromptShare = 0.25 })}},

	// Steps have 10 tokens, of which the oldest prompt has half: 5 + 5, then 7 + 3, then 8.
	{"short beside long", "0 20/1, 0 8/1", "58, 40", Options{Decode: one(3, 10).with(func(s *Server) { s.Limits.PromptShare = 0.5 })}},

	// Each server has one: 15 and 11 ms; 13 ms.
	{"two servers", "0 5/2, 0 3/1", "15 26, 13", Options{Decode: many(2, 4, 100)}},
	// Work is 4 per prompt token and 16 per token: the first server has 416, the second 56, and the
	// third request joins it: 15 tokens.
	{"least work", "0 100/1, 0 10/1, 0 5/1", "110, 25, 25", Options{Decode: many(2, 4, 200)}},
	// A token to come counts as 4 of a prompt: the first server has 4 + 48, the second 80 + 16.
	{"work of answers", "0 1/3, 0 20/1, 0 1/1", "12 23 34, 30, 12", Options{Decode: many(2, 4, 200)}},
	// Both servers are idle, and it is the second one's turn, which has nothing cached.
	{"turns", "0 8/1 a, 100 8/1 a", "18, 118", Options{Decode: many(2, 4, 200).with(attention)}},
	// Each server takes one that runs and one that waits. The fifth is rejected by both.
	{"both full", "0 5/1, 0 5/1, 0 5/1, 0 5/1, 0 5/1", "15, 15, 30, 30, status 429", Options{Decode: many(2, 1, 100).with(func(s *Server) { s.Queue.Requests = 1 })}},
	// The second server has less work (40 against 416) but is full, so the fourth goes to the first.
	{"second try", "0 100/1, 0 1/1, 0 1/1, 0 1/1", "110, 11, 22, 121", Options{Decode: many(2, 1, 100).with(func(s *Server) { s.Queue.Requests = 1 })}},

	// All but the token that gives the first one is cached.
	{"cached", "0 8/2 a, 100 8/2 a", "18 29, 111 122 (7)", Options{Decode: one(4, 100).with(attention)}},
	// The first three tokens are another's, and 5 remain.
	{"partly cached", "0 3/1 a, 100 8/1 a", "13, 115 (3)", Options{Decode: one(4, 100).with(attention)}},
	// Both begin before either has ended, and nothing is cached.
	{"together, uncached", "0 8/1 a, 0 8/1 a", "26, 26", Options{Decode: one(4, 100).with(attention)}},
	// A prompt of 10 leaves a state after 8, where its chunk ends: 18 + 12. The second begins there.
	{"states", "0 10/1 a, 100 10/1 a", "30, 112 (8)", Options{Decode: one(4, 100).with(hybrid)}},
	// A prompt of 8 leaves a state after 4, as one token must be left to compute, and its text ends at
	// 8: 14 + 14. The same prompt again begins at 4.
	{"states to the token", "0 8/1 a, 100 8/1 a", "28, 114 (4)", Options{Decode: one(4, 100).with(hybrid)}},
	// Of the second prompt the first 9 tokens are known, and there is no state before them: it leaves
	// one after 8, where others may diverge, and one after 16. The steps are 8, 8 and 2 tokens.
	{"branch", "0 20/1 a, 100 18/1 a9", "40, 148", Options{Decode: one(4, 100).with(hybrid)}},
	// The third begins at that state: 8, and 1 of 9 tokens.
	{"after a branch", "0 20/1 a, 100 18/1 a9, 200 17/1 a9", "40, 148, 229 (8)", Options{Decode: one(4, 100).with(hybrid)}},
	// 64 tokens are 4 blocks, which the router has sent to the first server: it has less work with
	// the second request, though the other one's turn has come.
	{"where it is cached", "0 64/1 a, 200 64/1 a", "74, 211 (63)", Options{Decode: many(2, 4, 100).with(attention)}},

	// The first server has the prefix, and 816 of work with the third request: 832 with the fourth,
	// for which nothing is to prefill. The second one has 416, and 688 with its 256 bytes.
	{"cached where it is busy", "0 64/1 a, 100 100/1, 100 200/1, 101 64/1 a", "74, 210, 310, 284", Options{Decode: many(2, 4, 300).with(attention)}},
	// The first server would have 152 of work, and the other 160. But it holds 21 tokens, and 11 more
	// are over 30, so that the third request shares the first step of the second: 2 + 10 tokens.
	{"more work, but room", "0 20/1, 0 2/6, 0 10/1", "30, 22 33 44 55 66 77, 22", Options{Decode: many(2, 4, 100).with(func(s *Server) { s.Queue.Tokens = 30 })}},
	// One runs, one waits, and the third client's requests are rejected, of which it sends the next at
	// once.
	{"a client after a rejection", "0 5/2, 0 5/2, 0 5/2, 0 5/2", "15 26, 41 52, status 429, status 429", Options{Decode: one(1, 100).with(func(s *Server) { s.Queue.Requests = 1 }), Load: load.Load{Concurrency: 3}}},
	// From 100 on a prompt of 12 has chunks of 5, 5 and 2. Of the third request 7 tokens are cached,
	// and the eighth shares the second chunk's step: 16 ms.
	{"a hit beside chunks", "0 8/1 a, 100 12/1, 101 8/1 a", "28, 143, 131 (7)", Options{Decode: one(2, 6).with(attention)}},

	// 5 tokens are prefilled by 15 and arrive at 25; the last of the prompt takes 11.
	{"prefill server", "0 6/2", "36 47", Options{Decode: one(4, 100), Prefill: one(4, 100), Link: slow}},
	// Both are prefilled by 20. States move one after the other, to 30 and 40, where a step runs
	// until 41.
	{"one link", "0 6/1, 0 6/1", "41, 52", Options{Decode: one(4, 100), Prefill: one(4, 100), Link: slow}},
	// Each has a prefill server and link of its own, and they arrive together: 2 tokens.
	{"two links", "0 6/1, 0 6/1", "37, 37", Options{Decode: one(4, 100), Prefill: many(2, 4, 100), Link: slow}},
	// The prompt of the second is not sent before it has the slot, at 47: 15 + 10 + 11 later.
	{"slot during prefill", "0 6/2, 0 6/1", "36 47, 83", Options{Decode: one(1, 100), Prefill: one(4, 100), Link: slow}},
	// Nothing is left to prefill.
	{"prompt of one token", "0 1/1", "11", Options{Decode: one(4, 100), Prefill: one(4, 100), Link: slow}},
	// 9 tokens are prefilled by 19, and arrive by 33. Of the second prompt's, 8 are cached on the
	// prefill server: 1 token, 11 ms, from 100 on. All 9 move: 14 ms.
	{"cached at the prefill server", "0 10/1 a, 100 10/1 a", "44, 136 (8)", Options{Decode: one(4, 100), Prefill: one(4, 100).with(attention), Link: slow}},

	// 10 tokens are prefilled by 20, and arrive at 30 and 40, where the first has a step until 41.
	{"a token during a transfer", "0 6/3, 0 6/2", "41 53 65, 53 65", Options{Decode: one(4, 100), Prefill: one(4, 100), Link: slow}},
	// The state after all 10 tokens, where the first ended, is deeper than that after 8.
	{"next turn", "0 10/1 a, 100 12/1 a", "30, 112 (10)", Options{Decode: one(4, 100).with(hybrid)}},

	// The first and third are on the first server of each role, prefilled by 20, and arrive at 30 and
	// 40, where the first's step runs until 41. The second arrives at 25 on servers of its own.
	{"two of each role", "0 6/2, 0 6/2, 0 6/1", "41 53, 36 47, 53", Options{Decode: many(2, 4, 100), Prefill: many(2, 4, 100), Link: slow}},
	// The first is prefilled by 29 and arrives by 53, so that its answer begins at 64 and its prompt is
	// no work from then on. The others come during the step until 108, and each gets a prefill server:
	// 15 ms, and 10 to arrive at 133, where a step runs until 141. With the first they are 3 tokens.
	{"work of prompts", "0 20/12, 100 6/1, 100 6/1", "64 75 86 97 108 119 130 141 154 165 176 187, 154, 154", Options{Decode: one(4, 100), Prefill: many(2, 4, 100), Link: slow}},
	// The first has the slot from the beginning, and the second waits in the queue until 36.
	{"full queue of a decode server", "0 6/1, 0 6/1, 0 6/1", "36, 72, status 429", Options{Decode: one(1, 100).with(func(s *Server) { s.Queue.Requests = 1 }), Prefill: one(4, 100), Link: slow}},

	// The first step of decode is measured without a draft. Then steps of 2 tokens, and 2 ms to keep
	// states, give 2 tokens each.
	{"right drafts", "0 5/6", "15 26 40 40 54 54", Options{Decode: one(1, 100).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Drafts: 1, Acceptance: 1}},
	// Each gives 1 token, with 3 ms to replay it; three of them seem to pay, and none fits the last.
	{"wrong drafts", "0 5/6", "15 26 43 60 77 88", Options{Decode: one(1, 100).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Drafts: 1}},
	// Steps have 4 tokens, a token and a draft of each, and 2 ms to keep states.
	{"drafts of two", "0 5/6, 0 3/6", "18 30 46 46 62 62, 18 30 46 46 62 62", Options{Decode: one(2, 100).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Drafts: 1, Acceptance: 1}},
	// At 40 a chunk of 5 fills the step: no draft. At 56 its last 4 leave room for one, and the last
	// token needs none.
	{"drafts beside chunks", "0 5/8, 27 9/1", "15 26 40 40 56 74 74 85, 74", Options{Decode: one(2, 6).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Drafts: 1, Acceptance: 1}},
}

// TestByHand: schedules are exactly those that were worked out by hand.
func TestByHand(t *testing.T) {
	for _, c := range hand {
		o := c.Options
		o.Trace = traceOf(t, c.requests)
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for i := range r.Outcomes {
			got = append(got, told(&r.Outcomes[i]))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %s: tokens at %s, want %s", c.name, c.requests, text, c.want)
		}
	}
}

// TestSizes: steps count the tokens before theirs, also those that were cached or rolled back.
func TestSizes(t *testing.T) {
	sizes := func(tokens, cached, pairs int64) graph.Sizes {
		return graph.Sizes{Tokens: tokens, Seqs: 1, Rows: tokens, Cached: cached, Pairs: pairs}
	}
	first := sizes(8, 8, 36)
	first.Rows = 1
	for name, c := range map[string]struct {
		requests string
		Options
		want []graph.Sizes
	}{
		// 7 of the second prompt's 8 tokens are cached.
		"cached": {"0 8/2 a, 100 8/2 a", Options{Decode: one(1, 100).with(attention)}, []graph.Sizes{first, sizes(1, 9, 9), sizes(1, 8, 8), sizes(1, 9, 9)}},
		// A draft is wrong, so that the next step follows the token before it.
		"drafts": {"0 8/4", Options{Decode: one(1, 100), Drafts: 1}, []graph.Sizes{first, sizes(1, 9, 9), sizes(2, 11, 21), sizes(1, 11, 11)}},
	} {
		var got []graph.Sizes
		o := c.Options
		o.Trace, o.Schedule = traceOf(t, c.requests), func(s Step) { got = append(got, s.Sizes) }
		if _, err := Run(t.Context(), o); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}
