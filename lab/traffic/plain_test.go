package traffic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lab/load"
)

// plain is servers and a router read once more, in whole milliseconds: prompts in order of arrival
// and in chunks, full queues, least work, roles with a link, and clients of a closed loop.
type plain struct {
	requests        []*asked
	decode, prefill []*serving
	turn            [2]int // requests so far of decode and prefill servers
	latency         int    // of a transfer, which takes 1 ms more for each token
	clients         int
	now, next       int
	events          []due
}

// due is what happens at a time; of one time arrivals come first.
type due struct {
	at     int
	late   bool
	happen func()
}

// asked is a request, or the prefill of one on another server.
type asked struct {
	at, prompt, output int
	fed                int
	tokens             []string // their times
	failed             bool
	waits              bool // for its prefill elsewhere
	of                 *asked
	work, promptWork   int
	on, from           *serving
}

// serving is a server.
type serving struct {
	slots, tokens, queue int
	waiting, running     []*asked
	step                 []*asked
	chunks               []int
	busy                 bool
	work, requests, sent int
	turn                 int // of its last request
}

func (p *plain) plan(at int, late bool, happen func()) {
	i := slices.IndexFunc(p.events, func(e due) bool { return e.at > at || e.at == at && e.late && !late })
	if i < 0 {
		i = len(p.events)
	}
	p.events = slices.Insert(p.events, i, due{at, late, happen})
}

// pick returns the server with the least work, and of equals the one with fewer requests, or whose
// last turn was first.
func (p *plain) pick(list []*serving, turn *int, except *serving) (best *serving) {
	for _, s := range list {
		if s != except && (best == nil || s.work < best.work || s.work == best.work && (s.requests < best.requests || s.requests == best.requests && s.turn < best.turn)) {
			best = s
		}
	}
	if best != nil {
		*turn++
		best.turn = *turn
	}
	return best
}

func (s *serving) add(work, requests int) { s.work, s.requests = s.work+work, s.requests+requests }

func (p *plain) send(r *asked) {
	r.promptWork, r.work = 4*r.prompt, 16*r.output
	if len(p.prefill) > 0 {
		r.from = p.pick(p.prefill, &p.turn[1], nil)
		r.from.add(r.promptWork, 1)
	} else {
		r.work += r.promptWork
	}
	var tried *serving
	for range 2 {
		s := p.pick(p.decode, &p.turn[0], tried)
		if s == nil {
			break
		}
		if s.requests < s.slots+s.queue {
			r.on, r.failed = s, false
			s.add(r.work, 1)
			s.waiting = append(s.waiting, r)
			return
		}
		tried, r.failed = s, true
	}
	p.leave(r)
}

func (p *plain) follow() {
	if p.next < len(p.requests) {
		p.next++
		p.send(p.requests[p.next-1])
	}
}

func (p *plain) leave(r *asked) {
	r.prefilled()
	if p.clients > 0 {
		p.plan(p.now, true, p.follow)
	}
}

func (r *asked) prefilled() {
	if r.from != nil {
		r.from.add(-r.promptWork, -1)
		r.from = nil
	}
}

// begin begins a step: a token of each that decodes, and then chunks.
func (p *plain) begin(s *serving) {
	if s.busy {
		return
	}
	for len(s.running) < s.slots && len(s.waiting) > 0 {
		r := s.waiting[0]
		s.waiting, s.running = s.waiting[1:], append(s.running, r)
		if r.from != nil && r.prompt > 1 {
			r.waits = true
			p.plan(p.now, true, func() { r.from.waiting = append(r.from.waiting, &asked{prompt: r.prompt - 1, output: 1, of: r}) })
		}
	}
	s.step, s.chunks = nil, nil
	left := s.tokens
	for _, decodes := range []bool{true, false} {
		for _, r := range s.running {
			n := min(max(r.prompt-r.fed, 1), left, s.tokens-s.slots+1)
			if !r.waits && decodes == (r.fed >= r.prompt) && n > 0 {
				s.step, s.chunks, left = append(s.step, r), append(s.chunks, n), left-n
			}
		}
	}
	if s.busy = len(s.step) > 0; s.busy {
		p.plan(p.now+10+s.tokens-left, true, func() { p.end(s) })
	}
}

func (p *plain) end(s *serving) {
	s.busy = false
	for i, r := range s.step {
		if r.fed += s.chunks[i]; r.fed < r.prompt {
			continue
		}
		if r.tokens = append(r.tokens, fmt.Sprint(p.now)); len(r.tokens) == 1 && r.from == nil && r.of == nil {
			s.add(-r.promptWork, 0)
			r.work -= r.promptWork
		}
		if r.prefilled(); len(r.tokens) == r.output {
			s.running = slices.DeleteFunc(s.running, func(x *asked) bool { return x == r })
			if r.of != nil {
				s.sent = max(s.sent, p.now) + p.latency + r.prompt
				p.plan(s.sent, true, func() { r.of.waits, r.of.fed = false, r.prompt })
				continue
			}
			s.add(-r.work, -1)
			p.leave(r)
		}
	}
}

func (p *plain) run() {
	for i, r := range p.requests {
		if p.clients == 0 {
			p.plan(r.at, false, func() { p.send(r) })
		} else if i < p.clients {
			p.plan(0, true, p.follow)
		}
	}
	for len(p.events) > 0 {
		for p.now = p.events[0].at; len(p.events) > 0 && p.events[0].at == p.now; {
			e := p.events[0]
			p.events = p.events[1:]
			e.happen()
		}
		for _, s := range slices.Concat(p.decode, p.prefill) {
			p.begin(s)
		}
	}
}

// TestAgainstPlain: random requests get their tokens when the rules, read once more, say so.
func TestAgainstPlain(t *testing.T) {
	seeds := uint64(400)
	if goldens.All() {
		seeds = 20_000
	}
	failed := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		var texts []string
		p := &plain{}
		for at := 0; len(p.requests) < 1+int(seed%12); {
			if len(p.requests) > 0 && rng.IntN(2) == 0 {
				at += rng.IntN(40)
			}
			r := &asked{at: at, prompt: 1 + rng.IntN(20), output: 1 + rng.IntN(5)}
			p.requests, texts = append(p.requests, r), append(texts, fmt.Sprintf("%d %d/%d", at, r.prompt, r.output))
		}
		draw := func(most int) (Server, []*serving) {
			slots := 1 + rng.IntN(3)
			s := many(1+rng.IntN(most), slots, slots+rng.IntN(12))
			s.Queue.Requests = 1 + rng.IntN(3)
			var list []*serving
			for range s.Number {
				list = append(list, &serving{slots: slots, tokens: s.Limits.Tokens, queue: s.Queue.Requests})
			}
			return s, list
		}
		o := Options{Trace: traceOf(t, strings.Join(texts, ", ")), Link: slow}
		o.Decode, p.decode = draw(3)
		if rng.IntN(2) == 0 {
			p.latency = rng.IntN(20)
			o.Link.Latency = float64(p.latency) / 1000
			o.Prefill, p.prefill = draw(2)
		}
		if rng.IntN(3) == 0 {
			p.clients = 1 + rng.IntN(4)
			o.Load = load.Load{Concurrency: p.clients}
		}
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		p.run()
		for i, x := range p.requests {
			want := strings.Join(x.tokens, " ")
			if x.failed {
				failed++
				want = "status 429"
			}
			if got := told(&r.Outcomes[i]); got != want {
				t.Fatalf("seed %d, %s, %d clients, decode %d of %+v, prefill %d of %+v: tokens of request %d at %s, want %s",
					seed, strings.Join(texts, ", "), p.clients, o.Decode.Number, o.Decode.Limits, o.Prefill.Number, o.Prefill.Limits, i, got, want)
			}
		}
	}
	if uint64(failed) < seeds/4 {
		t.Errorf("%d requests are rejected: they show little", failed)
	}
}
