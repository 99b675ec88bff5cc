// Package balance chooses the machine that gets a request: the one that would have the least work,
// with what its prefix cache is expected to hold. The router and simulations of traffic use it.
package balance

import "slices"

// AnswerBytes is the work of decoding a token, in bytes of prompts to prefill: a decoded token
// needs a step of its own, where a prompt's tokens share steps.
const AnswerBytes = 16

// MostTokens bounds the tokens that an answer is expected to have: clients ask for far more than
// they get.
const MostTokens = 4096

// Need is the work of a request.
type Need struct {
	Blocks []uint64 // hashes of the prompt's prefixes ([Blocks]); nil: nothing to prefill
	Bytes  int      // of the prompt
	Tokens int      // of the answers
}

// Load is a machine's active requests.
type Load struct {
	Running int
	Work    int64 // bytes of prompts to prefill, and AnswerBytes for each token to decode
	Seen    Prefixes
	turn    int // of its last request
}

// Work is what a machine has to do for a request.
type Work struct{ prompt, answer int64 }

// Of returns the work of a request on the machine.
func (l *Load) Of(n Need) int64 {
	return int64(n.Bytes-l.Seen.Match(n.Blocks)) + int64(n.Tokens)*AnswerBytes
}

// Add assigns a request to the machine. Turns count the requests of all machines.
func (l *Load) Add(n Need, turn int) Work {
	w := Work{answer: int64(n.Tokens) * AnswerBytes}
	w.prompt = l.Of(n) - w.answer
	l.Running++
	l.Work += w.prompt + w.answer
	l.Seen.Add(n.Blocks)
	l.turn = turn
	return w
}

// Prefilled ends the prompt of a request, whose answer has begun.
func (l *Load) Prefilled(w *Work) {
	l.Work -= w.prompt
	w.prompt = 0
}

// Remove ends a request of that work.
func (l *Load) Remove(w Work) {
	l.Running--
	l.Work -= w.prompt + w.answer
}

// Choice is the best machine so far. The zero Choice has none.
type Choice[M comparable] struct {
	Best M

	last bool
	rank [3]int64
	any  bool
}

// Offer considers a machine for a request. One that comes last is chosen only if all do. Of equals
// the one with fewer requests is chosen, or else the one whose last request came first: it has done
// more of its work. New machines take turns in the order in which they are offered.
func (c *Choice[M]) Offer(m M, l *Load, n Need, last bool) {
	rank := [3]int64{l.Work + l.Of(n), int64(l.Running), int64(l.turn)}
	if !c.any || c.last && !last || c.last == last && slices.Compare(rank[:], c.rank[:]) < 0 {
		*c = Choice[M]{m, last, rank, true}
	}
}
