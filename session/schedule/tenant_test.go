package schedule

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/krait-ml/krait/internal/prop"
)

// house is a queue with what a scheduler does for it.
type house struct {
	queue
	fail      func(format string, args ...any)
	saved     map[*request]bool
	restarted int
}

func newHouse(l Limits, fail func(format string, args ...any)) *house {
	if err := l.check(); err != nil {
		fail("%v", err)
	}
	return &house{queue: queue{Limits: l}, fail: fail, saved: map[*request]bool{}}
}

// arrive takes a request of a tenant, which chooses as many tokens as said though it may choose
// more.
func (h *house) arrive(tenant string, prompt, most int) *request {
	r := &request{job: job{prompt: prompt, most: most}}
	r.Tenant = tenant
	h.enter(r)
	return r
}

// admit gives slots, and checks each decision.
func (h *house) admit() {
	for {
		r, victim := h.admissible()
		if r == nil {
			break
		}
		if victim != nil {
			if len(h.running) < h.Slots {
				h.fail("%d is paused, and a slot is free", victim.number)
			}
			if v, w := victim.of, r.of; v != w && !h.stalled(victim) && (victim.ran < h.Quantum || v.running <= w.running || v.running == w.running+1 && v.served < w.served+h.Quantum) {
				h.fail("%s, with %d slots and %d tokens, loses one to %s, with %d and %d", v.name, v.running, v.served, w.name, w.running, w.served)
			}
			h.give(victim)
			continue
		}
		if h.begin(r); h.saved[r] {
			delete(h.saved, r)
			h.snapshots--
		}
		if h.Room > 0 && r.held == 0 {
			h.fail("request %d begins without room", r.number)
		}
		h.sound()
	}
}

// give takes the slot of a request.
func (h *house) give(r *request) {
	h.pause(r)
	if h.snapshots < h.Snapshots {
		h.saved[r] = true
		h.snapshots++
	} else {
		h.again(r)
	}
}

// again takes what was computed for a request without a slot.
func (h *house) again(r *request) {
	if h.saved[r] {
		delete(h.saved, r)
		h.snapshots--
	}
	h.restarted++
	h.restart(r)
}

// step runs a step, after which those end for whom end says so. It reports whether there was one.
func (h *house) step(end func(*request) bool) bool {
	var parts []part
	for len(parts) == 0 {
		h.regain()
		h.admit()
		h.fair()
		if parts = h.next(nil); len(parts) > 0 {
			break
		}
		r := h.stuck()
		if r == nil {
			return false
		}
		if slices.Contains(h.running, r) {
			h.pause(r)
		}
		h.again(r)
	}
	h.began()
	for _, p := range parts {
		if h.Room > 0 && p.held < h.pages(p.fed+p.tokens) {
			h.fail("request %d is fed %d tokens, and has room for %d", p.number, p.fed+p.tokens, p.held)
		}
		if p.feed(); p.complete() || end(p.request) && p.chosen > 0 {
			h.leave(p.request)
		}
	}
	h.sound()
	return true
}

// sound checks what always holds: no bound is passed, and what is counted is there.
func (h *house) sound() {
	held := map[*tenant]int{}
	sum := 0
	for r := range h.queue.begun {
		if r.held > h.taken(&r.job) {
			h.fail("request %d holds %d, and can need %d", r.number, r.held, h.taken(&r.job))
		}
		held[r.of] += r.held
		sum += r.held
	}
	for _, t := range h.tenants {
		if held[t] != t.held {
			h.fail("%s holds %d, %d are counted", t.name, held[t], t.held)
		}
	}
	if len(h.running) > h.Slots || sum != h.held || h.held > h.Room || h.snapshots > h.Snapshots || h.snapshots != len(h.saved) {
		h.fail("%d requests in %d slots; %d tokens, %d are counted, of %d; %d snapshots, %d are counted, of %d",
			len(h.running), h.Slots, sum, h.held, h.Room, len(h.saved), h.snapshots, h.Snapshots)
	}
}

// fair checks that slots are shared once all tenants have begun: none is free that a request could
// use, and no tenant has two more than one that waits, but for those that just began.
func (h *house) fair() {
	for _, w := range h.tenants {
		if h.first(w) == nil {
			continue
		}
		if len(h.running) < h.Slots {
			h.fail("a slot is free, and %s waits", w.name)
		}
		for _, r := range h.running {
			if r.of.running >= w.running+2 && r.ran >= h.Quantum && h.Quantum > 0 && h.pausable(r) {
				h.fail("%s has %d slots, one for %d tokens; %s waits, with %d", r.of.name, r.of.running, r.ran, w.name, w.running)
			}
		}
	}
}

// TestTenants lets requests of several tenants arrive, end and be cancelled in any order: no bound
// is ever passed, slots are shared evenly among those who want them, none stays free, and all
// requests end.
func TestTenants(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		l := Limits{Slots: rapid.IntRange(1, 5).Draw(t, "slots"), Grain: 4, Quantum: rapid.IntRange(1, 5).Draw(t, "quantum"),
			Snapshots: rapid.IntRange(0, 6).Draw(t, "snapshots"), Patience: rapid.IntRange(0, 3).Draw(t, "patience")}
		l.Tokens = l.Slots + 12
		if rapid.Bool().Draw(t, "limited room") {
			l.Page = rapid.IntRange(1, 5).Draw(t, "page")
			l.Room = l.Page * rapid.IntRange(60/l.Page, 80/l.Page).Draw(t, "room")
		}
		h := newHouse(l, t.Fatalf)
		end := func(r *request) bool { return rapid.IntRange(0, 9).Draw(t, "ends") == 0 }
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "how many") {
					h.arrive(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "tenant"), rapid.IntRange(1, 25).Draw(t, "prompt"), rapid.IntRange(1, 35).Draw(t, "most"))
				}
			},
			"cancel": func(t *rapid.T) {
				if all := slices.Concat(h.waiting, h.running); len(all) > 0 {
					r := rapid.SampledFrom(all).Draw(t, "who")
					if h.saved[r] {
						delete(h.saved, r)
						h.snapshots--
					}
					h.leave(r)
				}
			},
			"step":    func(*rapid.T) { h.step(end) },
			"another": func(*rapid.T) { h.step(end) },
			"":        func(*rapid.T) { h.sound() },
		})
		for n := 0; h.step(func(*request) bool { return false }); n++ {
			if n > 100_000 {
				t.Fatalf("%d requests do not end", len(h.waiting)+len(h.running))
			}
		}
		if len(h.waiting)+len(h.running)+h.held+len(h.saved) > 0 {
			t.Fatalf("left: %d wait, %d run, %d tokens of room, %d states", len(h.waiting), len(h.running), h.held, len(h.saved))
		}
	})
}

// TestEvenService: tenants that always want more than there is, and are more than there are slots,
// are served as many tokens each, whatever their requests are like.
func TestEvenService(t *testing.T) {
	for _, slots := range []int{1, 2, 3} {
		h := newHouse(Limits{Slots: slots, Tokens: 64, Quantum: 4, Snapshots: 8}, t.Fatalf)
		for step := range 4000 {
			for i, name := range []string{"a", "b", "c", "d", "e"} {
				for n := 0; h.tenants[name] == nil || h.tenants[name].here < 3+5*(4-i); n++ {
					h.arrive(name, 1+step*(i+1)%9, 1+[]int{1000, 7, 200, 30, 1}[i]) // a has 23 long texts here
				}
			}
			h.step(func(*request) bool { return false })
		}
		least, most := math.MaxInt, 0
		for _, x := range h.tenants {
			least, most = min(least, x.served), max(most, x.served)
		}
		if most-least > 400 || h.restarted > 40 {
			t.Errorf("%d slots: served are %d to %d tokens, with %d restarts", slots, least, most, h.restarted)
		}
	}
}

// TestGiants: where one tenant has booked all room, and uses it token by token, another begins at
// once and gets on; so do two that have both booked all, though they use more than there is, and
// each text is computed to its end.
func TestGiants(t *testing.T) {
	h := newHouse(Limits{Slots: 2, Tokens: 64, Quantum: 4, Snapshots: 2, Room: 400, Page: 10}, t.Fatalf)
	h.arrive("a", 10, 391)
	never := func(*request) bool { return false }
	for range 20 {
		h.step(never)
	}
	small := h.arrive("b", 50, 51)
	if h.step(never); !slices.Contains(h.running, small) || small.held != 100 {
		t.Errorf("b holds %d where a has booked all", small.held)
	}
	big := h.arrive("c", 10, 391)
	steps := 0
	for ; h.step(never); steps++ {
		if steps == 200 && small.of.here > 0 || steps == 300 && big.chosen == 0 {
			t.Errorf("after %d steps %d and %d tokens were chosen", steps, small.chosen, big.chosen)
		}
	}
	if h.restarted != 1 || steps > 1300 || big.of.here > 0 {
		t.Errorf("%d steps, %d restarts, for 382 + 50 + 382 tokens", steps, h.restarted)
	}
}
