package traffic

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/balance"
	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/session/admit"
	"github.com/krait-ml/krait/session/schedule"
)

// bytesPerToken is the text of a token of a prompt, by which the router estimates work.
const bytesPerToken = 4

// visit is a request on its way.
type visit struct {
	s            *simulation
	i            int // in the trace
	out          *load.Outcome
	prompt, most int
	x            *server // that answers
	work         balance.Work
	ticket       *admit.Ticket
	from         *server // that prefills; nil: x does
	fromWork     balance.Work
}

// send sends request i to a server, as the router does: one whose queue is full leaves it to
// another one, once. A prompt of one token has a prefill server, too, which does nothing.
func (s *simulation) send(i int) {
	v := &visit{s: s, i: i, out: &s.outcomes[i]}
	t := &s.Trace[i]
	v.prompt, v.most = t.InputLen, max(1, t.Tokens.Len()-t.InputLen)
	v.out.Sent, v.out.Prompt, v.out.Counted = wall(s.now), v.prompt, true
	n := balance.Need{Blocks: s.blocksOf(t), Bytes: bytesPerToken * v.prompt, Tokens: min(v.most, balance.MostTokens)}
	if len(s.prefill.servers) > 0 {
		prompt := balance.Need{Blocks: n.Blocks, Bytes: n.Bytes}
		n.Blocks, n.Bytes = nil, 0
		v.from, v.fromWork = s.prefill.take(prompt, nil)
	}
	var tried *server
	for range 2 {
		if v.x, v.work = s.decode.take(n, tried); v.x == nil {
			break
		}
		if v.enter() {
			return
		}
		v.x.load.Remove(v.work)
		if v.out.Err.Kind != fullQueue {
			break
		}
		tried = v.x
	}
	v.leave()
}

// enter queues the request at its server. If that rejects it, the outcome has the error.
func (v *visit) enter() bool {
	tickets, err := v.x.queue.Enter("", []admit.Text{{Prompt: v.prompt, Max: v.most}})
	if err == nil {
		v.ticket = tickets[0]
		if err = v.x.enter(v.request(v.prompt, v.most), v); err == nil {
			v.out.Err = nil
			return true
		}
		v.ticket.Leave(0)
	}
	v.out.Err, v.out.Ended = rejected(err), wall(v.s.now)
	return false
}

// fullQueue is the kind of failure that the router retries.
const fullQueue = "status 429"

// rejected returns the failure of a request that a server rejects.
func rejected(err error) *load.Failure {
	kind := "status 400"
	if e, ok := err.(*admit.Error); ok && e.Kind == admit.Full {
		kind = fullQueue
	}
	return &load.Failure{Kind: kind, Message: err.Error()}
}

// request returns the request for a scheduler. Its salt is its number, by which a prefix cache
// finds its tokens in the trace: the scheduler's are all 0, as steps do not depend on them.
func (v *visit) request(prompt, most int) schedule.Request {
	q := schedule.Request{
		Prompt:    v.s.zeros(prompt),
		Salt:      strconv.Itoa(v.i),
		MaxTokens: most,
		Choose:    func([]int) exec.Choice { return exec.Choice{} },
		Accept:    func(int) bool { return false },
		OnBegin:   func(time.Time) { v.ticket.Begin() },
		OnCached:  func(tokens int) { v.out.Cached += tokens },
	}
	if v.from != nil && prompt > 1 {
		q.Fetch = func() (schedule.Beginning, error) { panic("BUG: a Fetch of a Stepper is called") }
	}
	if v.s.Drafts > 0 {
		q.Draft = &drafter{rand.New(rand.NewPCG(v.s.Seed, uint64(v.i))), v.s.Drafts, v.s.Acceptance}
	}
	return q
}

// Token gets a token at the end of a step.
func (v *visit) Token(t schedule.Token) {
	if v.out.Tokens++; v.out.Tokens == 1 {
		v.out.First = t.At
		v.x.load.Prefilled(&v.work)
		v.prefilled()
	} else {
		v.out.Gaps = append(v.out.Gaps, t.At.Sub(v.out.Last).Seconds())
	}
	v.out.Parts, v.out.Last = v.out.Tokens, t.At
}

// End ends the request.
func (v *visit) End(err error) {
	v.out.Ended = wall(v.s.now)
	if err != nil {
		v.out.Err = &load.Failure{Kind: load.Cut, Message: err.Error()}
	}
	v.ticket.Leave(v.out.Prompt + v.out.Tokens)
	v.x.load.Remove(v.work)
	v.leave()
}

// prefilled ends the request for the prefill server, to which the router counts it until the answer
// begins.
func (v *visit) prefilled() {
	if v.from != nil {
		v.from.load.Remove(v.fromWork)
		v.from = nil
	}
}

// leave ends the request for its client, which may send the next.
func (v *visit) leave() {
	v.prefilled()
	if v.s.left++; v.s.Progress != nil {
		v.s.Progress(v.s.left, len(v.s.Trace))
	}
	if v.s.Load.Concurrency > 0 {
		v.s.at(v.s.now, v.s.follow)
	}
}

// drafter drafts tokens that are right, which are 0, or wrong.
type drafter struct {
	rng        *rand.Rand
	most       int
	acceptance float64
}

func (*drafter) Kind() string { return "simulated" }
func (*drafter) Read(...int)  {}
func (*drafter) Grade() int   { return 0 }
func (*drafter) Close()       {}

func (d *drafter) Draft(dst []int, n int) []int {
	id := 0
	for range min(n, d.most) {
		if d.rng.Float64() >= d.acceptance {
			id = 1
		}
		dst = append(dst, id)
	}
	return dst
}
