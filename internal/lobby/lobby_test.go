package lobby

import (
	"slices"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// TestLobby: whatever guests do, they hold at most the limit; only those that are not settled are
// evicted, the first by the documented order, and in the end nothing is held.
func TestLobby(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		const most = 20
		l := New(most)
		var all []*Guest
		evicted := map[*Guest]int{}
		here := func() (list []*Guest) {
			for _, g := range all {
				if !g.out {
					list = append(list, g)
				}
			}
			return list
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			before := here()
			switch what := rapid.IntRange(0, 5).Draw(t, "what"); {
			case what < 3 || len(before) == 0:
				var g *Guest
				g = l.Enter(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "who"), rapid.Int64Range(1, 5).Draw(t, "holds"), func() { evicted[g]++ })
				if g != nil {
					all = append(all, g)
				}
			default:
				g := rapid.SampledFrom(before).Draw(t, "guest")
				switch what {
				case 3:
					g.Grow(rapid.Int64Range(1, 5).Draw(t, "more"))
				case 4:
					g.Settle()
				case 5:
					g.Leave()
				}
			}
			held := int64(0)
			for _, g := range here() {
				held += g.holds
			}
			if held != l.held || held > most {
				t.Fatalf("%d held, %d counted, of %d", held, l.held, most)
			}
			for g, n := range evicted {
				if n != 1 || g.settled || !g.out {
					t.Fatalf("guest %d: evicted %d times, settled %v", g.number, n, g.settled)
				}
			}
		}
		for _, g := range all {
			g.Leave()
			g.Leave()
		}
		if l.held != 0 || len(l.guests) != 0 || len(l.totals) != 0 {
			t.Fatalf("%d are held by %d, %v", l.held, len(l.guests), l.totals)
		}
	})
}

// TestFlood: an address that asks for all evicts its own, the largest first, then the oldest; one
// with little is let in and stays.
func TestFlood(t *testing.T) {
	l := New(10)
	var out []string
	enter := func(who, name string, holds int64) *Guest {
		return l.Enter(who, holds, func() { out = append(out, name) })
	}
	small := enter("b", "small", 1)
	for _, name := range []string{"1", "2", "3", "4"} {
		enter("a", name, 2)
	}
	large := enter("a", "large", 1)
	if large.Grow(8) {
		t.Error("a guest that is the largest of a flood grows")
	}
	enter("a", "large", 2)
	if !slices.Equal(out, []string{"1"}) {
		t.Errorf("evicted %v, want the oldest of the largest", out)
	}
	if enter("b", "second", 2) == nil {
		t.Error("the flood keeps its places before a newcomer")
	}
	if !small.Settle() {
		t.Error("who holds little was evicted")
	}
	for range 20 {
		if enter("a", "more", 1) == nil {
			t.Error("the flood's newest finds no place, though its oldest has one")
		}
	}
	if slices.Contains(out, "small") || slices.Contains(out, "second") {
		t.Errorf("evicted %v", out)
	}
	l.Clear()
	if l.held != 0 {
		t.Errorf("%d are held after all", l.held)
	}
	all := New(1)
	all.Enter("a", 1, func() {}).Settle()
	if all.Enter("b", 1, func() {}) != nil {
		t.Error("more is held than may be")
	}
}

// TestWho: connections of a host have one name.
func TestWho(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:5": "10.0.0.1", "[::ffff:10.0.0.1]:5": "10.0.0.1", "[2001:db8:1:2:3::1]:80": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80": "fe80::/64", "@": "@", "pipe": "pipe", "": "",
	} {
		if got := Host(address); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}
