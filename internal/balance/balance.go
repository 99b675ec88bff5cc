// Package balance chooses the machine that gets a request: the one that would have the least work,
// with what its prefix cache is expected to hold. The router and simulations of traffic use it.
package balance

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
}

// Of returns the work of a request on the machine.
func (l *Load) Of(n Need) int64 {
	return int64(n.Bytes-l.Seen.Match(n.Blocks)) + int64(n.Tokens)*AnswerBytes
}

// Add assigns a request to the machine, and returns its work.
func (l *Load) Add(n Need) (work int64) {
	work = l.Of(n)
	l.Running++
	l.Work += work
	l.Seen.Add(n.Blocks)
	return work
}

// Remove ends a request of that work.
func (l *Load) Remove(work int64) {
	l.Running--
	l.Work -= work
}

// Choice is the best machine so far. The zero Choice has none.
type Choice[M comparable] struct {
	Best M

	work    int64
	running int
	last    bool
	any     bool
}

// Offer considers a machine for a request. One that comes last is chosen only if all do. Of equals
// the one with fewer requests is chosen, or else the first offered.
func (c *Choice[M]) Offer(m M, l *Load, n Need, last bool) {
	work := l.Work + l.Of(n)
	if !c.any || c.last && !last || c.last == last && (work < c.work || work == c.work && l.Running < c.running) {
		*c = Choice[M]{m, work, l.Running, last, true}
	}
}
