package openai

import (
	"slices"
	"testing"

	"github.com/krait-ml/krait/internal/maxmin"
	"pgregory.net/rapid"
)

// demands returns texts with these upper bounds on tokens.
func demands(tokens ...int) (list []demand) {
	for _, n := range tokens {
		list = append(list, demand{n - 1, 1, false})
	}
	return list
}

// texts are n of as many tokens each.
func texts(n, tokens int) []demand { return slices.Repeat(demands(tokens), n) }

// TestLeave: who leaves before it begins, or twice, leaves nothing behind.
func TestLeave(t *testing.T) {
	q := newQueue(Queue{Requests: 1, Tokens: 20}, 1)
	list, err := q.enter("", texts(2, 10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.enter("", texts(1, 1)); err == nil {
		t.Error("a third enters")
	}
	list[0].begin()
	if n, tokens := q.load(); n != 2 || tokens != 20 {
		t.Errorf("%d texts, %d tokens", n, tokens)
	}
	for _, k := range []*ticket{list[1], list[1], list[0], list[0]} {
		k.leave(3)
		k.begin()
	}
	if n, tokens := q.load(); n+tokens+q.begun != 0 {
		t.Errorf("%d texts, %d tokens, %d have begun", n, tokens, q.begun)
	}
	if _, err := q.enter("", texts(1, 20)); err != nil {
		t.Error(err)
	}
}

// TestShares: one tenant that has taken all places, or all tokens, or all room, keeps out neither a
// second nor a fifth, each of which may have its share and no more; alone it has all.
func TestShares(t *testing.T) {
	for what, c := range map[string]struct {
		q          Queue
		room, page int
		all, more  []demand // what the first takes; some of the share of each other
		n          int      // as often as it fits in a fifth
	}{
		"places": {q: Queue{Requests: 190}, all: texts(200, 2), more: texts(10, 2), n: 4},
		"tokens": {q: Queue{Tokens: 1000}, all: texts(1, 1000), more: texts(2, 50), n: 2},
		"room":   {q: Queue{}, room: 1000, page: 10, all: []demand{{1, 1000, false}}, more: []demand{{99, 2, false}}, n: 2},
	} {
		q := newQueue(c.q, 10)
		if err := q.bind(c.room, c.page); err != nil {
			t.Fatal(err)
		}
		if _, err := q.enter("flood", c.all); err != nil {
			t.Errorf("%s: alone: %v", what, err)
		}
		if _, err := q.enter("flood", texts(1, 2)); err == nil {
			t.Errorf("%s: there is more than all", what)
		}
		for _, name := range []string{"b", "c", "d", "e"} {
			for i := range c.n {
				if _, err := q.enter(name, c.more); err != nil {
					t.Errorf("%s: %s, time %d: %v", what, name, i, err)
				}
			}
		}
		if _, err := q.enter("e", c.more); err == nil {
			t.Errorf("%s: e has more than its share", what)
		}
	}
}

// TestSharesBound: in any order of requests, a tenant gets what is left or its share
// and no more, and all together have no more than 1 + 1/2 + … as much as there is.
func TestSharesBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 60
		q := newQueue(Queue{Requests: 1 << 20, Tokens: most}, 1)
		var all []*ticket
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
				list, err := q.enter(name, texts(1, n))
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
					all[i].leave(0)
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
