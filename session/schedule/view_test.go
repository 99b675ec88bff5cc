package schedule

import (
	"reflect"
	"testing"
	"testing/synctest"
)

// TestActive: it says of each request with a slot how far it has come, step by step.
func TestActive(t *testing.T) {
	inBubble(t, Limits{Slots: 2, Tokens: 6, Grain: 2}, func(t *testing.T, s *Scheduler, f *fake) {
		c := gate(f)
		var all []*reading
		for i := range 3 {
			all = append(all, s.begin(t.Context(), of(100*i, 7, 3).request()))
			synctest.Wait() // they come one after the other
		}
		for _, want := range [][]Active{
			{{Slot: 0, Prompt: 7, Most: 3}},
			{{Slot: 0, Prompt: 7, Most: 3, Read: 4}, {Slot: 1, Number: 1, Prompt: 7, Most: 3}},
			{{Slot: 0, Prompt: 7, Most: 3, Read: 7, Chosen: 1}, {Slot: 1, Number: 1, Prompt: 7, Most: 3, Read: 2}},
			{{Slot: 0, Prompt: 7, Most: 3, Read: 7, Chosen: 2}, {Slot: 1, Number: 1, Prompt: 7, Most: 3, Read: 6}},
		} {
			if got := s.Active(); !reflect.DeepEqual(got, want) {
				t.Errorf("under way are %+v, want %+v", got, want)
			}
			c <- nil
			synctest.Wait()
		}
		close(c)
		for _, r := range all {
			<-r.done
		}
		synctest.Wait()
		if got := s.Active(); len(got) > 0 {
			t.Errorf("in the end %+v", got)
		}
	})
}
