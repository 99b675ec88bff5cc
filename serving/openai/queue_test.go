package openai

import (
	"slices"
	"testing"
)

// TestFair: a tenant with one request does not wait for the many of another, and one that was
// away does not make up for it: of those with as many tokens the first by name begins.
func TestFair(t *testing.T) {
	q := newQueue(Queue{}, 1)
	var order []string
	waiting := map[string][]*ticket{}
	enter := func(name string, n int) {
		list, err := q.enter(name, slices.Repeat([]int{10}, n))
		if err != nil {
			t.Fatal(err)
		}
		waiting[name] = append(waiting[name], list...)
	}
	next := func() {
		for name, list := range waiting {
			for i, k := range list {
				if k.began && !k.left {
					order = append(order, name)
					waiting[name] = slices.Delete(list, i, i+1)
					k.leave(10)
					return
				}
			}
		}
		t.Fatal("nobody is under way")
	}
	enter("a", 6)
	enter("b", 2)
	for range 5 {
		next()
	}
	enter("c", 2)
	for range 5 {
		next()
	}
	if want := []string{"a", "b", "a", "b", "a", "a", "c", "a", "c", "a"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
	if w, r, n := q.load(); w+r+n != 0 {
		t.Errorf("%d wait, %d run, %d tokens", w, r, n)
	}
}

// TestLeave: who leaves before its turn, or twice, leaves nothing behind.
func TestLeave(t *testing.T) {
	q := newQueue(Queue{Requests: 1, Tokens: 20}, 1)
	list, err := q.enter("", []int{10, 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.enter("", []int{1}); err == nil {
		t.Error("a third enters")
	}
	for _, k := range []*ticket{list[1], list[1], list[0], list[0]} {
		k.leave(3)
	}
	if w, r, n := q.load(); w+r+n != 0 {
		t.Errorf("%d wait, %d run, %d tokens", w, r, n)
	}
	if _, err := q.enter("", []int{20}); err != nil {
		t.Error(err)
	}
}

// TestGivenBack: what a request asked for and did not use counts no more: its tenant is next.
func TestGivenBack(t *testing.T) {
	q := newQueue(Queue{}, 1)
	enter := func(name string, tokens ...int) []*ticket {
		list, err := q.enter(name, tokens)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	a, b := enter("a", 100, 100), enter("b", 10, 10)
	a[0].leave(1)
	if !b[0].began {
		t.Fatal("b, which had nothing, is not next, though a only held 100")
	}
	b[0].leave(10)
	if !a[1].began || b[1].began {
		t.Error("a had 1 token, and b had 10: a is next")
	}
}

// TestAfterIdle: who comes when nobody is there is lifted to who left last, and has not saved
// up for what it did not ask.
func TestAfterIdle(t *testing.T) {
	q := newQueue(Queue{}, 1)
	for range 100 {
		list, err := q.enter("a", []int{10})
		if err != nil {
			t.Fatal(err)
		}
		list[0].leave(10)
	}
	b, err := q.enter("b", slices.Repeat([]int{10}, 20))
	if err != nil {
		t.Fatal(err)
	}
	a, err := q.enter("a", []int{10})
	if err != nil {
		t.Fatal(err)
	}
	b[0].leave(10)
	if !a[0].began {
		t.Error("b, which is new, has 20 requests read before one of a")
	}
}
