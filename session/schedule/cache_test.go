package schedule

import (
	"fmt"
	"slices"
	"testing"
)

// marking is a cache that has nothing, and wants the states after some tokens of a prompt.
type marking struct {
	*fake
	marks []int // of each prompt
	calls []string
}

func (m *marking) Begin(slot int, _ string, _, _, _ []int) (hit, mark int, err error) {
	return 0, m.Given(slot, "", nil, nil, nil, 0), nil
}

func (m *marking) Given(_ int, _ string, _, _, _ []int, fed int) (mark int) { return m.next(fed) }

func (m *marking) next(fed int) int {
	for _, at := range m.marks {
		if at > fed {
			return at
		}
	}
	return 0
}

func (m *marking) Keep(slot int) (mark int) {
	fed := m.slots[slot].fed
	m.calls = append(m.calls, fmt.Sprint("keep ", fed))
	return m.next(fed)
}

func (m *marking) Move(int, int)           {}
func (m *marking) Fork(int, string, []int) { m.calls = append(m.calls, "fork") }

func (m *marking) End(_ int, tokens []int, wasted bool) {
	m.calls = append(m.calls, fmt.Sprint("end ", len(tokens), wasted))
}

// TestMarks: states are kept at the marks of a prompt, wherever the grain and the size of steps
// would cut it, and after the tokens that are seen whole where the next one may not be; what a
// request leaves that ends there are these tokens.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		seen []int // after each token
		last int   // the token that ends it, counted from 1; 0: MaxTokens, which is 5
		want []string
	}{
		{nil, 0, []string{"end 24 false"}},
		{[]int{1, 2, 3, 4, 5}, 3, []string{"end 22 false"}},
		{[]int{1, 1, 1, 4, 5}, 3, []string{"keep 21", "end 21 false"}},            // the second is held back, and the third ends it
		{[]int{1, 1, 2, 2, 5}, 4, []string{"keep 21", "keep 22", "end 22 false"}}, // another beginning of a stop string
		{[]int{1, 1, 3, 4, 4}, 5, []string{"keep 21", "end 24 false"}},            // it was none, and the last is one by itself
		{[]int{0, 0, 3, 4, 4}, 0, []string{"keep 20", "end 24 false"}},            // the text ends otherwise: all is seen
	} {
		l := Limits{Slots: 2, Tokens: 9, Grain: 4}
		if err := l.check(); err != nil {
			t.Fatal(err)
		}
		m := &marking{fake: newFake(t, l), marks: []int{3, 8, 18}}
		s, err := New(m, l, m)
		if err != nil {
			t.Fatal(err)
		}
		q, n := asked{prompt: slices.Repeat([]int{7}, 20), most: 5, last: -1}.request(), 0
		q.Accept = func(int) bool { n++; return n == c.last }
		if c.seen != nil {
			q.Final = func() int { return c.seen[n-1] }
		}
		if _, err := collect(s, t.Context(), q); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if want := append([]string{"keep 3", "keep 8", "keep 18"}, c.want...); !slices.Equal(m.calls, want) {
			t.Errorf("%+v: %q, want %q", c, m.calls, want)
		}
	}
}

// TestMarksOfForks: a text that resumes from another's prompt leaves the state after the prompt
// where its first token is held back and the next one ends it, though its first token is accepted
// before it has a slot.
func TestMarksOfForks(t *testing.T) {
	l := Limits{Slots: 1, Tokens: 9, Grain: 4, Snapshots: 2}
	if err := l.check(); err != nil {
		t.Fatal(err)
	}
	m := &marking{fake: newFake(t, l), marks: []int{3, 8, 18}}
	s, err := New(m, l, m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var list []Request
	for range 2 {
		list = append(list, asked{prompt: slices.Repeat([]int{7}, 20), most: 5, last: -1}.request())
	}
	n := 0
	list[1].Accept = func(int) bool { n++; return n == 2 }
	list[1].Final = func() int { return 0 }
	for _, stream := range s.Streams(t.Context(), list) {
		for _, err := range stream {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"keep 3", "keep 8", "keep 18", "end 24 false", "fork", "keep 20", "end 20 false"}; !slices.Equal(m.calls, want) {
		t.Errorf("%q, want %q", m.calls, want)
	}
}
