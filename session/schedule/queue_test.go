package schedule

import (
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

func drawLimits(t *rapid.T) Limits {
	l := Limits{Slots: rapid.IntRange(1, 4).Draw(t, "slots"), Grain: rapid.IntRange(1, 5).Draw(t, "grain"),
		Patience: rapid.IntRange(0, 4).Draw(t, "patience")}
	l.Tokens = l.Slots - 1 + l.Grain + rapid.IntRange(0, 9).Draw(t, "more tokens")
	if rapid.Bool().Draw(t, "short first") {
		l.PromptShare = 0.5 // no time passes here, so that all steps read
	}
	if rapid.Bool().Draw(t, "limited rows") {
		l.Rows = l.Grain + rapid.IntRange(0, 6).Draw(t, "more rows")
	}
	if rapid.Bool().Draw(t, "limited room") {
		l.Page = rapid.IntRange(1, 7).Draw(t, "page")
		l.Room = l.Page * rapid.IntRange(1, max(1, 40/l.Page)).Draw(t, "room")
	}
	return l
}

// model is a queue and what it is held against.
type model struct {
	t *rapid.T
	queue
	all   []*request
	taken int // slots that others have
}

// TestQueue lets requests arrive, be cancelled and run in any order, and holds each
// decision against the rules.
func TestQueue(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		m := &model{t: t, queue: queue{Limits: drawLimits(t)}}
		if err := m.Limits.check(); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				r := &request{job: job{prompt: rapid.IntRange(1, 20).Draw(t, "prompt"), most: rapid.IntRange(1, 6).Draw(t, "most")}}
				if r.scored = rapid.IntRange(0, 2).Draw(t, "scored") == 0; !r.scored && rapid.Bool().Draw(t, "cached") {
					r.fed = rapid.IntRange(0, r.prompt-1).Draw(t, "fed")
					r.stop = rapid.IntRange(0, r.prompt-1).Draw(t, "stop")
				}
				if m.Limits.admits(r) == nil {
					m.enter(r)
					m.all = append(m.all, r)
				}
			},
			"cancel": func(t *rapid.T) {
				if len(m.all) > 0 {
					m.end(rapid.SampledFrom(m.all).Draw(t, "who"))
				}
			},
			"others":  func(t *rapid.T) { m.taken = rapid.IntRange(0, m.Slots-1).Draw(t, "taken") },
			"step":    func(*rapid.T) { m.step() },
			"another": func(*rapid.T) { m.step() },
			"":        func(*rapid.T) { m.sound() },
		})
		m.drain()
	})
}

// end takes a request out, from wherever it is.
func (m *model) end(r *request) {
	began := slices.Contains(m.running, r)
	if m.leave(r) != began {
		m.t.Fatalf("request %d was under way: %v", r.number, began)
	}
	m.all = without(m.all, r)
}

// sound checks what always holds.
func (m *model) sound() {
	room := 0
	for _, r := range m.running {
		if m.Room == 0 {
			break
		}
		room += (r.job.room() + m.Page - 1) / m.Page * m.Page
	}
	older := func(a, b *request) int { return a.number - b.number }
	switch {
	case len(m.running) > m.Slots:
		m.t.Fatalf("%d requests under way in %d slots", len(m.running), m.Slots)
	case room != m.held || m.Room > 0 && room > m.Room:
		m.t.Fatalf("%d of %d tokens of room are taken, %d are counted", room, m.Room, m.held)
	case len(m.all) != len(m.waiting)+len(m.running):
		m.t.Fatalf("%d requests, of which %d wait and %d are under way", len(m.all), len(m.waiting), len(m.running))
	case !slices.IsSortedFunc(m.waiting, older) || !slices.IsSortedFunc(m.running, older):
		m.t.Fatal("the order of arrival is lost")
	}
}

// step admits who can begin, and runs a step.
func (m *model) step() {
	for len(m.running)+m.taken < m.Slots {
		r, _ := m.admissible()
		if r == nil {
			break
		}
		m.firstCome(r)
		m.begin(r)
		m.sound()
	}
	if len(m.running)+m.taken < m.Slots && len(m.waiting) > 0 {
		if r := m.waiting[0]; m.held+m.queue.taken(&r.job) <= m.Room {
			m.t.Fatalf("request %d waits, and there is room", r.number)
		}
	}
	parts := m.next(nil)
	if again := m.next(nil); !slices.Equal(parts, again) {
		m.t.Fatal("deciding changes what is decided")
	}
	m.fair(parts)
	m.began()
	for _, p := range parts {
		p.feed()
		if p.complete() {
			m.end(p.request)
		}
	}
	m.sound()
}

// firstCome checks that no queued request is passed, but for want of room and while it is patient.
func (m *model) firstCome(r *request) {
	for _, w := range m.waiting {
		if w.number < r.number && (m.held+m.queue.taken(&w.job) <= m.Room || w.waited >= m.Patience) {
			m.t.Fatalf("request %d passes %d, which has waited %d steps of %d", r.number, w.number, w.waited, m.Patience)
		}
	}
}

// fair checks the parts of a step, one after the other.
func (m *model) fair(parts []part) {
	left, rows := m.Tokens, m.Rows
	has := map[*request]int{}
	for _, p := range parts {
		if has[p.request] > 0 || p.tokens < 1 || !slices.Contains(m.running, p.request) || p.row != (p.fed+p.tokens >= p.prompt) {
			m.t.Fatalf("request %d has a part of %d tokens, of which it chooses: %v", p.number, p.tokens, p.row)
		}
		has[p.request] = p.tokens
	}
	for _, r := range m.running {
		if !r.prefills() {
			if has[r] != 1 {
				m.t.Fatalf("request %d goes on by %d tokens", r.number, has[r])
			}
			left--
		}
	}
	if m.PromptShare > 0 {
		m.fairToShort(has, left, rows)
		return
	}
	oldest := true
	for _, r := range m.running {
		if !r.prefills() {
			continue
		}
		most := left
		if r.scored {
			most = min(most, rows)
		}
		if want := m.most(r, most); has[r] != want || oldest && want == 0 {
			m.t.Fatalf("request %d reads %d tokens, could read %d", r.number, has[r], want)
		}
		if left -= has[r]; r.scored {
			rows -= has[r]
		}
		oldest = false
	}
	if left < 0 {
		m.t.Fatalf("%d tokens too many", -left)
	}
}

// fairToShort checks what prompts have of a step: the oldest what half of it lets it have, at
// least; of the others none anything where one with less left, or as much and older, could read
// more; and nothing is left that one could.
func (m *model) fairToShort(has map[*request]int, left, rows int) {
	var reading []*request
	all := left
	for _, r := range m.running {
		if r.prefills() {
			reading = append(reading, r)
			left -= has[r]
			if r.scored {
				rows -= has[r]
			}
		}
	}
	if left < 0 || rows < 0 {
		m.t.Fatalf("%d tokens too many, or %d rows", -left, -rows)
	}
	most := func(r *request, tokens, free int) int { // of which scored tokens count
		if r.scored {
			tokens = min(tokens, rows+free)
		}
		return m.most(r, tokens)
	}
	rest := func(r *request) int { return r.prompt - r.fed }
	for i, r := range reading {
		could := most(r, left+has[r], has[r])
		if i == 0 {
			if least := most(r, max(all/2, min(all, m.Grain)), m.Rows-rows); has[r] < least || has[r] == 0 {
				m.t.Fatalf("the oldest reads %d of %d tokens, which %d others share: half would be %d", has[r], all, len(reading)-1, least)
			}
		}
		if has[r] < could && i == 0 {
			m.t.Fatalf("the oldest reads %d tokens, could read %d", has[r], could)
		}
		for _, o := range reading[1:] {
			free := has[r]
			if o.scored {
				free += has[o]
			}
			if i > 0 && has[o] > 0 && (rest(r) < rest(o) || rest(r) == rest(o) && r.number < o.number) && has[r] < most(r, has[r]+has[o], free) {
				m.t.Fatalf("request %d reads %d tokens of %d, and %d, of which %d are left, could read more", o.number, has[o], rest(o), r.number, rest(r))
			}
		}
	}
}

// most tries every chunk.
func (m *model) most(r *request, left int) int {
	best := 0
	for n := 1; n <= min(left, r.prompt-r.fed, (m.Tokens-m.Slots+1)/m.Grain*m.Grain); n++ {
		if r.fed+n == r.prompt || r.fed+n == r.stop || (r.fed+n)%m.Grain == 0 {
			best = n
		}
		if r.fed+n == r.stop {
			break
		}
	}
	return best
}

// drain lets all requests end.
func (m *model) drain() {
	m.taken = 0
	bound := 0
	for _, r := range m.all {
		bound += r.prompt + r.most
	}
	for range bound {
		m.step()
	}
	if len(m.all) > 0 || m.held != 0 {
		m.t.Fatalf("%d requests do not end; %d tokens of room are taken", len(m.all), m.held)
	}
}

// TestPatience: one that needs all room gets it in the end, though smaller ones arrive
// in every step and would always be passing.
func TestPatience(t *testing.T) {
	const each = 4 // steps that a small one takes
	for _, patience := range []int{0, 1, 7, 50} {
		l := Limits{Slots: 8, Tokens: 20, Room: 16, Patience: patience}
		if err := l.check(); err != nil {
			t.Fatal(err)
		}
		q := queue{Limits: l}
		var big *request
		passed := 0
		for step := 0; ; step++ {
			if step == 3 {
				big = &request{job: job{prompt: 10, most: 7}}
				q.enter(big)
			}
			q.enter(&request{job: job{prompt: 1, most: each}})
			for r, _ := q.admissible(); r != nil; r, _ = q.admissible() {
				q.begin(r)
				if big != nil && r.number > big.number {
					passed++
				}
			}
			if big != nil && slices.Contains(q.running, big) {
				if waited := step - 3; waited > patience+each || passed != patience {
					t.Errorf("patience %d: waited %d steps, and %d have passed", patience, waited, passed)
				}
				break
			}
			if step > 100 {
				t.Fatalf("patience %d: starved", patience)
			}
			parts := q.next(nil)
			q.began()
			for _, p := range parts {
				if p.feed(); p.complete() {
					q.leave(p.request)
				}
			}
		}
	}
}

// TestChunks: what a prompt of its own is cut into, and beside others.
func TestChunks(t *testing.T) {
	for _, c := range []struct {
		l            Limits
		prompt, left int
		want         []int
	}{
		{Limits{Slots: 1, Tokens: 512, Grain: 32}, 1027, 512, []int{512, 512, 3}},
		{Limits{Slots: 8, Tokens: 519, Grain: 32}, 1027, 519, []int{512, 512, 3}},
		{Limits{Slots: 8, Tokens: 519, Grain: 32}, 1027, 511, []int{480, 480, 67}},
		{Limits{Slots: 8, Tokens: 519, Grain: 512}, 1027, 511, []int{0}},
		{Limits{Slots: 8, Tokens: 519, Grain: 512}, 511, 511, []int{511}},
		{Limits{Slots: 1, Tokens: 1}, 3, 1, []int{1, 1, 1}},
		{Limits{Slots: 2, Tokens: 4, Grain: 3}, 7, 4, []int{3, 3, 1}},
		{Limits{Slots: 2, Tokens: 4, Grain: 3}, 7, 2, []int{0}},
	} {
		if err := c.l.check(); err != nil {
			t.Fatal(err)
		}
		q := queue{Limits: c.l}
		j := &job{prompt: c.prompt}
		for i, want := range c.want {
			n := q.chunk(j, c.left)
			if n != want {
				t.Errorf("%+v, prompt of %d, %d left: chunk %d has %d tokens, want %d", c.l, c.prompt, c.left, i, n, want)
			}
			j.fed += n
		}
	}
}

func TestLimits(t *testing.T) {
	for want, l := range map[string]Limits{
		"at most 38 tokens per step; with 8 slots there must be at least 39: one for each sequence but one, and 32 of a prompt": {Slots: 8, Tokens: 38, Grain: 32},
		"at most 0 tokens per step; with 1 slots there must be at least 1":                                                      {Slots: 1},
		"logits of at most 3 prompt tokens per step; there must be at least 4, the grain":                                       {Slots: 1, Tokens: 5, Grain: 4, Rows: 3},
		"room for 10 tokens in pages of 4": {Slots: 1, Tokens: 5, Room: 10, Page: 4},
		"there must be at least 1 slot":    {Tokens: 5},
		"no limit may be negative":         {Slots: 1, Tokens: 5, Room: -1},
	} {
		if _, err := New(nil, l, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", l, err, want)
		}
	}
}

// TestShortFirst: beside the oldest prompt, which has half, the shortest are read first, of equal
// ones the older; what they leave is the oldest's.
func TestShortFirst(t *testing.T) {
	for _, c := range []struct {
		prompts, want []int // tokens that a step of 23 has of each
	}{
		{[]int{100, 30, 10}, []int{11, 2, 10}},
		{[]int{100, 10, 30}, []int{11, 10, 2}},
		{[]int{100, 7, 7, 7}, []int{11, 7, 5, 0}},
		{[]int{100, 3}, []int{20, 3}},
		{[]int{5, 100}, []int{5, 18}},
		{[]int{5, 100, 30}, []int{5, 0, 18}},
		{[]int{100}, []int{23}},
	} {
		q := queue{Limits: Limits{Slots: 1, Tokens: 23, Grain: 1, PromptShare: 0.5}}
		for _, n := range c.prompts {
			r := &request{job: job{prompt: n, most: 1}}
			q.enter(r)
			q.begin(r)
		}
		got := make([]int, len(c.prompts))
		for _, p := range q.next(nil) {
			got[p.number] = p.tokens
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("prompts of %v: %v, want %v", c.prompts, got, c.want)
		}
	}
}

// TestBeside: with a share, a step has 128 tokens of prompts at most beside those that are
// continued, or a grain.
func TestBeside(t *testing.T) {
	for _, c := range []struct {
		l                Limits
		continued, reads int
	}{
		{Limits{Slots: 3, Tokens: 514, Grain: 32, PromptShare: 0.5}, 1, 128},
		{Limits{Slots: 3, Tokens: 514, Grain: 32, PromptShare: 0.5}, 0, 512},
		{Limits{Slots: 3, Tokens: 514, Grain: 32}, 1, 512},
		{Limits{Slots: 3, Tokens: 514, Grain: 512, PromptShare: 0.5}, 1, 512},
		{Limits{Slots: 3, Tokens: 66, Grain: 32, PromptShare: 0.5}, 1, 64},
	} {
		q := queue{Limits: c.l}
		for i := range c.continued + 1 {
			r := &request{job: job{prompt: 1000, most: 5}}
			if i < c.continued {
				r.fed = 1000
			}
			q.enter(r)
			q.begin(r)
		}
		parts := q.next(nil)
		if got := parts[len(parts)-1].tokens; len(parts) != c.continued+1 || got != c.reads {
			t.Errorf("%+v, %d continued: %d tokens of a prompt, want %d", c.l, c.continued, got, c.reads)
		}
	}
}
