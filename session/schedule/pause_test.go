package schedule

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec"
)

// TestPauseWithoutMemory: a request whose state cannot be saved when it is paused is recomputed,
// and does not fail.
func TestPauseWithoutMemory(t *testing.T) {
	l := Limits{Slots: 1, Tokens: 9, Grain: 4, Quantum: 2, Snapshots: 2}
	if err := l.check(); err != nil {
		t.Fatal(err)
	}
	f := newFake(t, l)
	f.full = true
	s, err := New(f, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ask := func(tenant string, seed uint64, most int) Request {
		q := asked{prompt: []int{1, 2, 3}, most: most, last: -1, seed: seed}.request()
		q.Tenant = tenant
		return q
	}
	var done atomic.Bool // b has ended, and a may
	endless := ask("a", 1, 1<<20)
	accept := endless.Accept
	endless.Accept = func(id int) bool { return accept(id) || done.Load() }
	var a, b []int
	for token, err := range s.Stream(t.Context(), endless) {
		if err != nil {
			t.Fatal(err)
		}
		if a = append(a, token.ID); len(a) == 1 {
			go func() {
				b, _ = collect(s, t.Context(), ask("b", 2, 5))
				done.Store(true)
			}()
		}
	}
	if s.Load().Restarted == 0 {
		t.Error("nothing was recomputed")
	}
	for _, c := range []struct {
		got  []int
		seed uint64
	}{{a, 1}, {b, 2}} {
		if want, err := collect(s, t.Context(), ask("a", c.seed, max(len(c.got), 1))); err != nil || !slices.Equal(c.got, want) {
			t.Errorf("%v, alone %v, %v", c.got, want, err)
		}
	}
}

// prefix is a Beginning that no request uses.
type prefix struct{ freed chan bool }

func (p prefix) Begin(int) (int, error) { return 0, errors.New("it is begun with") }
func (p prefix) Free()                  { close(p.freed) }

// TestCloseWhileFetching: Close ends requests that wait for a slot at once, also where all slots
// wait for a Fetch, and returns when the Fetch has.
func TestCloseWhileFetching(t *testing.T) {
	l := Limits{Slots: 1, Tokens: 9, Grain: 4}
	if err := l.check(); err != nil {
		t.Fatal(err)
	}
	s, err := New(newFake(t, l), l, nil)
	if err != nil {
		t.Fatal(err)
	}
	begun, release, freed := make(chan bool), make(chan bool), make(chan bool)
	fetching := asked{prompt: []int{1, 2, 3}, most: 5, last: -1}.request()
	fetching.Fetch = func() (Beginning, error) {
		close(begun)
		<-release
		return prefix{freed}, nil
	}
	run := func(q Request) chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := collect(s, context.Background(), q)
			ended <- err
		}()
		return ended
	}
	first := run(fetching)
	<-begun
	second := run(asked{prompt: []int{1}, most: 5, last: -1}.request())
	for s.Load().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	closed := make(chan bool)
	go func() { s.Close(); close(closed) }()
	select {
	case err := <-second:
		if !errors.Is(err, exec.ErrClosed) {
			t.Errorf("the request that waits ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the request that waits does not end")
	}
	select {
	case <-closed:
		t.Error("Close returns while a Fetch is under way")
	default:
	}
	close(release)
	<-closed
	<-freed
	if err := <-first; !errors.Is(err, exec.ErrClosed) {
		t.Errorf("the request that fetches ends with %v", err)
	}
}

// TestFetchPanics: a panic of a Fetch, or the end of its goroutine, reaches the reader once its
// request has ended, and others go on.
func TestFetchPanics(t *testing.T) {
	s, f := newScheduler(t, Limits{Slots: 1, Tokens: 9, Grain: 4})
	defer s.Close()
	for name, fetch := range map[string]func() (Beginning, error){
		"panic":  func() (Beginning, error) { panic("of Fetch") },
		"Goexit": func() (Beginning, error) { runtime.Goexit(); return nil, nil },
	} {
		q := asked{prompt: []int{1, 2, 3}, most: 5, last: -1}.request()
		q.Fetch = fetch
		read := make(chan any, 1)
		go func() {
			defer func() { read <- recover() }()
			collect(s, t.Context(), q)
		}()
		select {
		case p := <-read:
			if want := map[string]any{"panic": "of Fetch"}[name]; p != want {
				t.Errorf("%s: the reader recovers %v", name, p)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: the reader waits for the request's end", name)
		}
		if l := s.Load(); l.Running+l.Waiting != 0 || f.slots[0] != nil {
			t.Errorf("%s: %+v, the slot has %v", name, l, f.slots[0])
		}
		if ids, err := collect(s, t.Context(), asked{prompt: []int{1}, most: 5, last: -1}.request()); len(ids) != 5 || err != nil {
			t.Errorf("%s: the next request gets %v, %v", name, ids, err)
		}
	}
}
