package route

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/balance"
	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// TestPool: whatever comes and goes, requests go to a machine that is ready and was not tried,
// which has the least to do of those that are not left out; and all that was taken is given back.
func TestPool(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		now := time.Now()
		p := &pool{}
		for i := range rapid.IntRange(1, 4).Draw(t, "machines") {
			m := newMachine(string(rune('a'+i)), nil)
			m.ready = rapid.Bool().Draw(t, "ready")
			if rapid.Bool().Draw(t, "ejected") {
				m.until = now.Add(time.Second)
			}
			p.machines = append(p.machines, m)
		}
		seed := maphash.MakeSeed()
		var all []*assignment
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			text := strings.Repeat(rapid.StringMatching("[ab]").Draw(t, "prompt"), rapid.IntRange(0, 300).Draw(t, "bytes"))
			n := balance.Need{Blocks: balance.Blocks(seed, nil, []byte(text)), Bytes: len(text), Tokens: rapid.IntRange(0, 50).Draw(t, "tokens")}
			var tried []*machine
			if rapid.Bool().Draw(t, "again") {
				tried = p.machines[:1]
			}
			var costs []int64
			var best *machine
			for _, m := range p.machines {
				costs = append(costs, m.load.Work+m.load.Of(n))
			}
			better := func(i, j int) bool {
				a, b := p.machines[i].until.After(now), p.machines[j].until.After(now)
				return a == b && costs[i] < costs[j] || !a && b
			}
			h := p.take(n, tried, now)
			if h != nil {
				best = h.m
			}
			for i, m := range p.machines {
				able := m.ready && (tried == nil || i > 0)
				switch {
				case !able && best == m:
					t.Fatalf("%s is not ready, or was tried", m.name)
				case able && best == nil:
					t.Fatalf("no machine but %s", m.name)
				}
				for j, b := range p.machines {
					if able && b == best && better(i, j) {
						t.Fatalf("%s has less to do than %s: %v", m.name, b.name, costs)
					}
				}
			}
			if h != nil {
				all = append(all, h)
			}
			if len(all) > 0 && rapid.Bool().Draw(t, "free") {
				all[rapid.IntRange(0, len(all)-1).Draw(t, "which")].free() // some twice
			}
		}
		for _, h := range all {
			h.free()
		}
		for _, m := range p.machines {
			if m.load.Running != 0 || m.load.Work != 0 {
				t.Fatalf("%s: %d requests, %d to do", m.name, m.load.Running, m.load.Work)
			}
		}
	})
}

// TestChecked: a machine takes nothing after a check that failed, and what it holds is forgotten
// after three. It is gone after three without any answer; not where its port is closed, nor where
// it says that it is not ready.
func TestChecked(t *testing.T) {
	m := newMachine("a", nil)
	m.load.Seen.Add([]uint64{1})
	holds := func() bool { return m.load.Seen.Match([]uint64{1}) > 0 }
	step := func(err error, ready, gone bool) {
		t.Helper()
		if m.checked(err); m.ready != ready || m.gone() != gone {
			t.Errorf("after %v: ready %v, gone %v", err, m.ready, m.gone())
		}
	}
	step(nil, true, false)
	for range 2 * misses {
		step(errNotReady, false, false)
	}
	if !holds() {
		t.Error("it is forgotten what it holds")
	}
	step(nil, true, false)
	for range 2 * misses {
		step(fmt.Errorf("dial: %w", syscall.ECONNREFUSED), false, false)
	}
	if holds() {
		t.Error("it begins with nothing, and is taken to hold something")
	}
	for i := range misses + 1 {
		step(context.DeadlineExceeded, false, i+1 >= misses)
	}
	step(errNotReady, false, false)
	step(nil, true, false)
}

// TestAnswered: consecutive failures eject a machine, twice as long each time up to a bound, and an
// answer begins anew; what fails while it is left out, as it was begun before, does not count.
func TestAnswered(t *testing.T) {
	m, now := newMachine("a", nil), time.Now()
	step := func(ok, ejected bool) {
		t.Helper()
		if got := m.answered(ok, now, 2, time.Second); got != ejected {
			t.Errorf("left out: %v, want %v", got, ejected)
		}
	}
	step(false, false)
	step(true, false)
	step(false, false)
	step(false, true)
	for _, want := range []int{1, 2, 4, 8, 16, 32, 32} {
		if got := m.until.Sub(now); got != time.Duration(want)*time.Second {
			t.Errorf("for %v, want %d s", got, want)
		}
		for range 5 {
			step(false, false)
		}
		now = m.until
		step(false, false)
		step(false, true)
	}
	now = m.until
	step(true, false)
	step(false, false)
	step(false, true)
	if got := m.until.Sub(now); got != time.Second {
		t.Errorf("after an answer for %v", got)
	}
}
