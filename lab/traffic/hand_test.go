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

	// Odd ones. A trace without outputs asks for a token of each, and its text is the prompt.
	{"no output", "0 8/0 a, 100 8/0 a", "18, 111 (7)", Options{Decode: one(4, 100).with(attention)}},
	// Steps have 5 tokens and chunks 4. The prompt of 5 is a chunk and a token: 1 + 4, and 1 + 1.
	{"a chunk and a token", "0 2/4, 3 5/2", "12 27 39 51, 39 51", Options{Decode: one(2, 5)}},
	// All three are idle. They take turns, and the fourth begins the second round.
	{"a round of turns", "0 5/1, 0 5/1, 0 5/1, 0 5/1", "20, 15, 15, 20", Options{Decode: many(3, 4, 100)}},
	// Both have 48 of work, the first by one request and the second by two. The fourth joins the
	// first, though it is the second one's turn: 9 tokens and 4.
	// Request 0 has its first token, so that its server has a prompt less to prefill.
	{"a prompt is over", "0 10/9, 1 1/1, 50 10/9, 55 1/1", "20 31 42 53 64 76 87 98 109, 12, 70 81 92 103 114 125 136 147 158, 76", Options{Decode: many(2, 4, 100)}},
	// Both have one request, of which the first has been there for longer.
	{"equals, the last turn of which was first", "0 10/9, 1 1/1, 30 10/9, 60 1/1", "20 31 42 53 64 76 87 98 109, 12, 50 61 72 83 94 105 116 127 138, 76", Options{Decode: many(2, 4, 100)}},
	{"equal work, fewer requests", "0 8/1, 0 2/1, 0 2/1, 0 1/1", "19, 14, 14, 19", Options{Decode: many(2, 4, 100)}},
	// In pages of 4 they take 8, 4, 8 and 4 of 16 tokens: the third does not fit, and the fourth
	// does.
	{"room in pages", "0 5/2, 0 4/1, 0 4/2, 0 1/4", "20 32, 20, status 429, 20 32 43 54", Options{Decode: one(4, 100).with(func(s *Server) { s.Limits.Room, s.Limits.Page = 16, 4 })}},
	// 13+5-1 tokens are 5 pages of 4, one more than there is; 13+4-1 are all of them.
	{"the last page", "0 13/5, 0 13/4", "status 400, 23 34 45 56", Options{Decode: one(4, 100).with(func(s *Server) { s.Limits.Room, s.Limits.Page = 16, 4 })}},
	// A request that can never run is rejected at once, and its client sends the next.
	{"a client after a refusal", "0 20/10, 0 5/1", "status 400, 15", Options{Decode: one(4, 100).with(func(s *Server) { s.Limits.Room = 16 }), Load: load.Load{Concurrency: 1}}},
	// More clients than requests.
	{"clients without requests", "0 5/1, 0 3/1", "18, 18", Options{Decode: one(4, 100), Load: load.Load{Concurrency: 9}}},
	// No other server can run what one can never run, and the router asks none: it is the first
	// one's turn, which has the prefix.
	{"turn after a refusal", "0 8/1 a, 50 20/10, 100 8/1 a", "18, status 400, 111 (7)", Options{Decode: many(2, 4, 200).with(func(s *Server) { attention(s); s.Limits.Room = 16 })}},
	// Of 15 tokens the router knows no block of 64 bytes, and gives them to the next server; 16 are
	// one.
	{"less than a block", "0 15/1 a, 100 15/1 a", "25, 125", Options{Decode: many(2, 4, 100).with(attention)}},
	{"a block", "0 16/1 a, 100 16/1 a", "26, 111 (15)", Options{Decode: many(2, 4, 100).with(attention)}},

	// The prompt of 12 hits 10 at 113, beside a sequence that decodes: chunks of 5 tokens, then 1,
	// where a state is kept after 16, and then 4.
	{"a hit, chunks and a mark beside decode", "0 10/1 a, 100 3/8, 105 20/2 a10", "40, 113 129 141 156 168 179 190 201, 156 168 (10)", Options{Decode: one(2, 6).with(hybrid)}},
	// 16 tokens fit both prompts, and the first is still there at 200.
	{"cache to the token", "0 8/1 a, 100 8/1 b, 200 8/1 a", "18, 118, 211 (7)", Options{Decode: one(4, 100).with(func(s *Server) { attention(s); s.Capacity = 16 })}},
	// One token less, and the second evicts the first, as the third does the second.
	{"cache less a token", "0 8/1 a, 100 8/1 b, 200 8/1 a, 300 8/1 a", "18, 118, 218, 311 (7)", Options{Decode: one(4, 100).with(func(s *Server) { attention(s); s.Capacity = 15 })}},
	// The second shares 4 tokens, and its other 4 evict those of the first.
	{"a branch that evicts", "0 8/1 a, 100 8/1 a4, 200 8/1 a", "18, 114 (4), 214 (4)", Options{Decode: one(4, 100).with(func(s *Server) { attention(s); s.Capacity = 10 })}},
	// The answer that ends at 40 is in the cache for the request that comes at that time.
	{"a hit at its end", "0 8/3 a, 40 8/1 a", "18 29 40, 51 (7)", Options{Decode: one(4, 100).with(attention)}},
	// It comes when the last step begins, and hits nothing: 1 + 8 tokens.
	{"a hit too early", "0 8/3 a, 29 8/1 a", "18 29 48, 48", Options{Decode: one(4, 100).with(attention)}},

	// Steps of prompts beside decode have at most 128 of their tokens: 1 + 128, 139 ms, for which
	// 117 ms of decode are owed, of which three steps of 11 are left. Then the other 72 tokens.
	{"a long prompt beside decode", "0 5/6, 1 200/1", "15 26 165 176 187 198, 280", Options{Decode: one(2, 300).with(func(s *Server) { s.Limits.PromptShare = 0.5 })}},
	// Steps have 10 tokens, 5 of them the oldest prompt's: 5 + 2 + 3, then 6 + 4, then 8 and 1.
	{"three prompts", "0 20/1, 0 6/1, 0 3/1", "69, 40, 20", Options{Decode: one(3, 10).with(func(s *Server) { s.Limits.PromptShare = 0.5 })}},

	// Both are prefilled by 20, and their states take 50 ms each, whatever their size. The third
	// has nothing to prefill, and has ended long before.
	{"a link slower than decode", "0 6/2, 0 6/2, 0 1/2", "81 92, 131 142, 11 22", Options{Decode: one(4, 100), Prefill: one(4, 100), Link: Link{Latency: 0.05}}},
	// The prefill server has one slot: 15 and 30, and 10 ms each.
	{"one slot for prefill", "0 6/1, 0 6/1", "36, 51", Options{Decode: one(4, 100), Prefill: one(1, 100), Link: slow}},
	// 9 tokens in chunks of 4, 4 and 1 by 39; they arrive at 53.
	{"chunks for prefill", "0 10/1", "64", Options{Decode: one(4, 100), Prefill: one(1, 4), Link: slow}},
	// The prefill server has too little memory for 5 tokens: the decode server takes all 6.
	{"too long for prefill", "0 6/2", "16 27", Options{Decode: one(4, 100), Prefill: one(4, 100).with(func(s *Server) { s.Limits.Room = 4 }), Link: slow}},
	// A client of both roles sends the second at 47.
	{"a client of roles", "0 6/2, 0 6/1", "36 47, 83", Options{Decode: one(4, 100), Prefill: one(4, 100), Link: slow, Load: load.Load{Concurrency: 1}}},
	// A state arrives at 25, when a step ends, and its token is in the next: 1 + 1.
	{"an arrival at the end of a step", "0 6/1, 3 1/3", "37, 14 25 37", Options{Decode: one(4, 100), Prefill: one(4, 100), Link: slow}},
	// The router does not know that a prompt of one token needs no prefill, and gives it the second
	// prefill server. So the third has its turn at the first, which has 6 of its 7 tokens: 11 ms,
	// and 12 to move all of them.
	{"turn of one token", "0 8/1 a, 100 1/1, 200 8/1 a", "40, 111, 234 (6)", Options{Decode: one(4, 100), Prefill: many(2, 4, 100).with(attention), Link: slow}},

	// After the step that is measured, two drafts pay, and both are right: 13 ms and 2. The last
	// token needs none.
	{"two right drafts", "0 5/6", "15 26 41 41 41 52", Options{Decode: one(1, 100).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Drafts: 2, Acceptance: 1}},
	// Of the third token on, one draft fits the text, and it is wrong: 12 ms, 2 and 3.
	{"a wrong draft", "0 5/4", "15 26 43 54", Options{Decode: one(1, 100).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Drafts: 2}},
	// A text of three tokens has no room for a draft.
	{"no room for drafts", "0 5/3", "15 26 37", Options{Decode: one(1, 100).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Drafts: 4, Acceptance: 1}},
	// Steps have 2 tokens: chunks of 2, 2 and 1, and then a token and a draft.
	{"drafts that fill steps", "0 5/6", "35 46 60 60 74 74", Options{Decode: one(1, 2).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Drafts: 3, Acceptance: 1}},

	// From 30 on two sequences decode beside a prompt of 16 in chunks of 10 and 6: 2 + 10, 22 ms, less
	// 12 alone are 10 of prefill, which a step of 12 has paid; then 2 + 6.
	{"half, beside two", "0 4/6, 0 4/6, 20 16/1", "18 30 52 70 82 94, 18 30 52 70 82 94, 70", Options{Decode: one(3, 12).with(func(s *Server) { s.Limits.PromptShare = 0.5 })}},
	// Chunks of 7 beside a token: 7 ms of prefill ask for 21 of decode, of which the step has 11 and
	// the next one the rest.
	{"a quarter, in chunks", "0 3/8, 5 21/2", "13 24 42 53 71 82 100 112, 100 112", Options{Decode: one(2, 8).with(func(s *Server) { s.Limits.PromptShare = 0.25 })}},
	// Steps of 1 + 2 tokens are less than 9 tenths prefill. The ninth has none, to measure it: 11 ms.
	{"at least one in nine alone", "0 2/14, 1 22/1", "12 23 36 49 62 75 88 101 114 127 138 151 164 177, 177", Options{Decode: one(2, 3).with(func(s *Server) { s.Limits.PromptShare = 0.9 })}},
	// The first ends at 26, so that nothing bounds the chunks of the second: 11 and 9.
	{"a share of nothing", "0 5/2, 1 20/1", "15 26, 66", Options{Decode: one(2, 12).with(func(s *Server) { s.Limits.PromptShare = 0.5 })}},
	// The oldest has 4 of 9 tokens and the second the other 5: 4 + 5, then 4 + 5 of the third, then 7,
	// as the two other slots may need a token each.
	{"equal prompts beside a long one", "0 15/1, 0 5/1, 0 5/1", "55, 19, 38", Options{Decode: one(3, 9).with(func(s *Server) { s.Limits.PromptShare = 0.5 })}},
	// Chunks have at most 3 of 5 tokens: 3 + 2, then 1 + 3 + 1, then 1 + 3.
	{"three in small steps", "0 7/1, 0 2/2, 0 4/1", "44, 15 30, 44", Options{Decode: one(3, 5)}},
	// Beside a chunk of 8 there is one token, and prompts are cut at multiples of 4: 8, then 2 + 6.
	{"less than a grain left", "0 10/2, 0 6/1", "36 47, 36", Options{Decode: one(2, 9).with(func(s *Server) { s.Limits.Grain = 4 })}},
	// Each slot that becomes free gets the next: 2 + 2, then 1 + 2 and 1 + 2.
	{"slots in turn", "0 2/1, 0 2/3, 0 2/1, 0 2/1", "14, 14 27 40, 27, 40", Options{Decode: one(2, 100)}},

	// Both clients' requests end at 56, and the third needs 12 of 20 tokens in pages of 4.
	{"a client when room is free", "0 5/4, 0 5/4, 0 9/2", "20 32 44 56, 20 32 44 56, 75 86", Options{Decode: one(4, 100).with(func(s *Server) { s.Limits.Room, s.Limits.Page = 20, 4 }), Load: load.Load{Concurrency: 2}}},
	// 8 + 8 + 3 of 20 tokens are admitted, and at 25 all three are still there.
	{"queued tokens of three", "0 5/3, 0 5/3, 0 2/1, 25 2/1", "15 26 37, 52 63 74, 86, status 429", Options{Decode: one(1, 100).with(func(s *Server) { s.Queue.Tokens = 20 })}},
	// No server ever has 13 tokens; the second request fits.
	{"never as many queued tokens", "0 5/8, 0 5/2", "status 400, 15 26", Options{Decode: one(4, 100).with(func(s *Server) { s.Queue.Tokens = 12 })}},
	// Work is 64, 44 and 52. The third joins the second, which then has 12 of 12 tokens. The fourth
	// would have less work on the first, which has 10 of 12: both reject it.
	{"tokens of two servers", "0 8/2, 0 3/2, 0 5/2, 0 4/2", "18 29, 18 30, 18 30, status 429", Options{Decode: many(2, 4, 100).with(func(s *Server) { s.Queue.Tokens = 12 })}},

	// The third client's request joins the first, whose turn was before, and ends at 20, when both
	// servers have 32 of work and a request. The second one's last turn is now the earlier: its step
	// runs until 26. Then it has 28 of work, and the last request joins that: 3 + 4 tokens.
	{"clients of two servers", "0 5/2, 0 5/2, 0 5/1, 0 3/1, 0 4/1", "20 31, 15 26, 20, 43, 43", Options{Decode: many(2, 4, 100), Load: load.Load{Concurrency: 3}}},
	// All three have the same work at 2, and the first one's turn was first. At 16 it has a request,
	// and of the other two the second one's was.
	{"turns of three", "0 5/1, 0 5/1, 0 5/1, 2 5/1, 16 3/1", "15, 15, 15, 30, 29", Options{Decode: many(3, 1, 100)}},
	// At 60 the first's prompt of 40 is over, and both have 96 of work: the first one's turn was first.
	{"a long prompt that is over", "0 40/6, 1 2/6, 60 1/1", "50 61 73 84 95 106, 13 24 35 46 57 68, 73", Options{Decode: many(2, 4, 100)}},
	// At 30 it is not, and the third request joins the second: 256 against 96.
	{"a long prompt under way", "0 40/6, 1 2/6, 30 1/1", "50 61 72 83 94 105, 13 24 35 47 58 69, 47", Options{Decode: many(2, 4, 100)}},
	// The second takes the other server's turn, and the third the first one. The fourth has its prefix
	// there, 28 + 16 of work against 56 + 272, and waits for the slot.
	{"cached behind another", "0 64/1 a, 100 10/1, 100 3/1, 100 64/1 a", "74, 120, 113, 124 (63)", Options{Decode: many(2, 1, 200).with(func(s *Server) { attention(s); s.Queue.Requests = 1 })}},
	// Each finds the block that the one before has sent there.
	{"one client of two caches", "0 16/1 a, 0 16/1 a, 0 16/1 a", "26, 37 (15), 48 (15)", Options{Decode: many(2, 4, 100).with(attention), Load: load.Load{Concurrency: 1}}},

	// The first leaves states after 12, before its last token, and after 14. The second shares 12.
	{"a hit at the mark", "0 13/2 a, 100 16/1 a12", "33 44, 114 (12)", Options{Decode: one(4, 100).with(hybrid)}},
	// Chunks of 5, 3 up to the mark after 8, and 4. The second shares 7, has marks after 4 and 12, and
	// steps of 4, 5, 3 and 3. The third begins at its first mark: 4 up to the mark after 8, and 1.
	{"marks in chunks", "0 12/1 a, 200 15/1 a7, 300 9/1 a5", "42, 255, 325 (4)", Options{Decode: one(2, 6).with(hybrid)}},
	// Each text takes 8 tokens and states after 4 and 8. Both fit 20 bytes, and the third begins at 4.
	{"states that fit", "0 8/1 a, 100 8/1 b, 200 8/1 a", "28, 128, 214 (4)", Options{Decode: one(4, 100).with(func(s *Server) { hybrid(s); s.Capacity = 20 })}},
	// One byte less: of the first text's states, which are as old, that after 4 goes, as it was made
	// first. The one after 8 leaves no token to compute.
	{"the state that does not fit", "0 8/1 a, 100 8/1 b, 200 8/1 a", "28, 128, 228", Options{Decode: one(4, 100).with(func(s *Server) { hybrid(s); s.Capacity = 19 })}},

	// 9 tokens are prefilled up to the mark after 8, and then 1: 29; they arrive by 43. The second
	// begins at 8.
	{"states at the prefill server", "0 10/1 a, 100 10/1 a", "54, 136 (8)", Options{Decode: one(4, 100), Prefill: one(4, 100).with(hybrid), Link: slow}},
	// 16 of 17 tokens are prefilled, and the router knows their block: 15 of them hit, and all move.
	{"a block at a prefill server", "0 17/1 a, 200 17/1 a", "58, 243 (15)", Options{Decode: one(4, 100), Prefill: many(2, 4, 100).with(attention), Link: slow}},
	// The prefill server has room for 3 tokens but not for 7, which the decode server takes itself. The
	// others arrive at 21, where a step runs until 29.
	{"one too long for prefill", "0 8/2, 0 4/2", "18 29, 40 51", Options{Decode: one(4, 100), Prefill: one(4, 100).with(func(s *Server) { s.Limits.Room = 4 }), Link: slow}},
	// The second is prefilled by 32, and waits for the link until 35 and for its bytes until 42.
	{"short behind long on the link", "0 11/1, 0 3/1", "46, 57", Options{Decode: one(4, 100), Prefill: one(1, 100), Link: slow}},
	// The third gets the first's slot at 41, is prefilled by 56, and arrives at 66.
	{"slots of two decode servers", "0 6/1, 0 6/1, 0 6/1", "41, 51, 77", Options{Decode: many(2, 1, 100), Prefill: one(4, 100), Link: slow}},
	// The second client's third request goes to the server that has ended, at 52.
	{"clients of two decode servers", "0 6/2, 0 6/2, 0 6/1", "41 52, 51 62, 88", Options{Decode: many(2, 4, 100), Prefill: one(4, 100), Link: slow, Load: load.Load{Concurrency: 2}}},

	// As without roles, after a prefill by 15 and a transfer by 25: a step with the last token of the
	// prompt, one without drafts, and two with one.
	{"drafts after a transfer", "0 6/6", "36 47 61 61 75 75", Options{Decode: one(4, 100).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Prefill: one(4, 100), Link: slow, Drafts: 1, Acceptance: 1}},
	// They arrive at 30 and 40. At 41 the second's last token is beside the first's, at 53 a step of
	// two is measured, and at 65 each has a draft: 4 tokens and 2 ms. The last token needs none.
	{"drafts of two after transfers", "0 6/5, 0 6/5", "41 53 65 81 81, 53 65 81 81 92", Options{Decode: one(4, 100).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Prefill: one(4, 100), Link: slow, Drafts: 1, Acceptance: 1}},
	// Both drafts are wrong, and replayed together: 14, 2 and 3 ms.
	{"wrong drafts of two", "0 5/4, 0 5/4", "20 32 51 63, 20 32 51 63", Options{Decode: one(2, 100).with(func(s *Server) { s.Clock = round{0.002, 0.003} }), Drafts: 1}},
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

// TestLongAnswers: the router takes an answer for at most 4,096 tokens, so that two long ones are
// equal work, and a third request goes to the server whose turn it is.
func TestLongAnswers(t *testing.T) {
	r, err := Run(t.Context(), Options{Trace: traceOf(t, "0 1/6000, 0 1/5000, 0 1/1"), Decode: many(2, 4, 100)})
	if err != nil || r.Servers[0].Requests != 2 || r.Servers[1].Requests != 1 {
		t.Errorf("%+v, %v, want 2 and 1 requests", r, err)
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
