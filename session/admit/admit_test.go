package admit

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/krait-ml/krait/internal/maxmin"
	"github.com/krait-ml/krait/internal/prop"
)

// demands returns texts with these upper bounds on tokens.
func demands(tokens ...int) (list []Text) {
	for _, n := range tokens {
		list = append(list, Text{n - 1, 1, false})
	}
	return list
}

func mustNew(l Limits, slots int) *Queue {
	q, err := New(l, slots, 0, 0)
	if err != nil {
		panic(err)
	}
	return q
}

// texts are n of as many tokens each.
func texts(n, tokens int) []Text { return slices.Repeat(demands(tokens), n) }

// TestLeave: who leaves before it begins, or twice, leaves nothing behind.
func TestLeave(t *testing.T) {
	q := mustNew(Limits{Requests: 1, Tokens: 20}, 1)
	list, err := q.Enter("", texts(2, 10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enter("", texts(1, 1)); err == nil {
		t.Error("a third enters")
	}
	list[0].Begin()
	if n, tokens := q.Load(); n != 2 || tokens != 20 {
		t.Errorf("%d texts, %d tokens", n, tokens)
	}
	for _, k := range []*Ticket{list[1], list[1], list[0], list[0]} {
		k.Leave(3)
		k.Begin()
	}
	if n, tokens := q.Load(); n+tokens+q.begun != 0 {
		t.Errorf("%d texts, %d tokens, %d have begun", n, tokens, q.begun)
	}
	if _, err := q.Enter("", texts(1, 20)); err != nil {
		t.Error(err)
	}
}

// TestShares: one tenant that has taken all places, or all tokens, or all room, keeps out neither a
// second nor a fifth, each of which may have its share and no more; alone it has all.
func TestShares(t *testing.T) {
	for what, c := range map[string]struct {
		q          Limits
		room, page int
		all, more  []Text // what the first takes; some of the share of each other
		n          int    // as often as it fits in a fifth
	}{
		"places": {q: Limits{Requests: 190}, all: texts(200, 2), more: texts(10, 2), n: 4},
		"tokens": {q: Limits{Tokens: 1000}, all: texts(1, 1000), more: texts(2, 50), n: 2},
		"room":   {q: Limits{}, room: 1000, page: 10, all: []Text{{1, 1000, false}}, more: []Text{{99, 2, false}}, n: 2},
	} {
		q, err := New(c.q, 10, c.room, c.page)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Enter("flood", c.all); err != nil {
			t.Errorf("%s: alone: %v", what, err)
		}
		if _, err := q.Enter("flood", texts(1, 2)); err == nil {
			t.Errorf("%s: there is more than all", what)
		}
		for _, name := range []string{"b", "c", "d", "e"} {
			for i := range c.n {
				if _, err := q.Enter(name, c.more); err != nil {
					t.Errorf("%s: %s, time %d: %v", what, name, i, err)
				}
			}
		}
		if _, err := q.Enter("e", c.more); err == nil {
			t.Errorf("%s: e has more than its share", what)
		}
	}
}

// TestSharesBound: in any order of requests, a tenant gets what is left or its share
// and no more, and all together have no more than 1 + 1/2 + … as much as there is.
func TestSharesBound(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		const most = 60
		q := mustNew(Limits{Requests: 1 << 20, Tokens: most}, 1)
		var all []*Ticket
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
				n := rapid.IntRange(1, most).Draw(t, "tokens")
				wants, mine, sum := []int{}, n, n
				for _, x := range q.tenants {
					sum += x.taken.tokens
					if x.name == name {
						mine += x.taken.tokens
					} else if x.taken.tokens > 0 {
						wants = append(wants, x.taken.tokens)
					}
				}
				list, err := q.Enter(name, texts(1, n))
				if want := sum <= most || mine <= maxmin.Share(most, append(wants, mine)); (err == nil) != want {
					t.Fatalf("%d more for %s, which has %d, beside %v: %v", n, name, mine-n, wants, err)
				}
				if err != nil && mine <= most/(len(wants)+1) {
					t.Fatalf("%s is refused an even share", name)
				}
				all = append(all, list...)
			},
			"leave": func(t *rapid.T) {
				if len(all) > 0 {
					i := rapid.IntRange(0, len(all)-1).Draw(t, "who")
					all[i].Leave(0)
					all = slices.Delete(all, i, i+1)
				}
			},
			"": func(t *rapid.T) {
				bound, n := 0.0, 0.0
				for _, x := range q.tenants {
					if x.taken.tokens > 0 {
						n++
						bound += most / n
					}
				}
				if float64(q.total.tokens) > bound {
					t.Fatalf("%d tokens of %d, with %v tenants", q.total.tokens, most, n)
				}
			},
		})
	})
}
