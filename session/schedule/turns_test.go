package schedule

import (
	"slices"
	"testing"
	"testing/synctest"
)

// TestTurnsRoom: requests of two tenants that run in turns take no more room than there is: the
// younger one is computed again.
func TestTurnsRoom(t *testing.T) {
	inBubble(t, Limits{Slots: 2, Tokens: 20, Room: 40}, func(t *testing.T, s *Scheduler, f *fake) {
		f.turns = 2
		c := gate(f)
		var all []*reading
		for i, tenant := range []string{"a", "b"} {
			q := of(i, 2, 30).request()
			q.Tenant = tenant
			all = append(all, s.begin(t.Context(), q))
			synctest.Wait()
		}
		close(c)
		for i, r := range all {
			if <-r.done; r.err != nil || !slices.Equal(r.ids, of(i, 2, 30).alone(s.limits, false)) {
				t.Errorf("request %d: %v, %v", i, r.ids, r.err)
			}
		}
		if f.inTurns < 20 || s.Load().Restarted != 1 {
			t.Errorf("%d steps in turns, %+v", f.inTurns, s.Load())
		}
	})
}

// TestTurnsLast: batches run in turns for a bounded number of steps, and for fewer while a request
// waits for a slot.
func TestTurnsLast(t *testing.T) {
	for waiting, want := range []int{rounds, 3} {
		inBubble(t, Limits{Slots: 2, Tokens: 20, Quantum: 3}, func(t *testing.T, s *Scheduler, f *fake) {
			f.turns = 2
			c := gate(f)
			var all []*reading
			for i := range 2 + waiting {
				all = append(all, s.begin(t.Context(), of(i, 2, 40).request()))
				synctest.Wait()
			}
			f.most = 0
			close(c)
			for i, r := range all {
				if <-r.done; r.err != nil || !slices.Equal(r.ids, of(i, 2, 40).alone(s.limits, false)) {
					t.Errorf("request %d: %v, %v", i, r.ids, r.err)
				}
			}
			if f.most != want*2 {
				t.Errorf("%d waiting: %d steps in turns without a break, want %d", waiting, f.most, want*2)
			}
		})
	}
}
