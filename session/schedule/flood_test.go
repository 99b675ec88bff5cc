package schedule

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFlood: five tenants, in time that only steps take, a millisecond each. With equal loads, and
// where one of them has a hundred long texts instead, the others' 99th percentile of the time to a
// slot is less than twice as long, or five steps. KRAIT_TEST_FLOOD is how many requests there are,
// 6,000 by default.
func TestFlood(t *testing.T) {
	all, _ := strconv.Atoi(os.Getenv("KRAIT_TEST_FLOOD"))
	if all == 0 {
		all = 6000
	}
	for _, clients := range []int{1, 2, 4} { // of each tenant
		var even time.Duration
		for _, flood := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p50, p99, l := flooded(t, all/6, clients, flood)
				t.Logf("%d clients of each of five, flood %v: to a slot %v in the middle, p99 %v; %+v", clients, flood, p50, p99, l)
				if !flood {
					even = p99
				} else if p99 > max(2*even, 5*time.Millisecond) {
					t.Errorf("beside a flood it takes %v, with equal loads %v", p99, even)
				}
			})
		}
	}
}

// flooded is how long requests wait for slots: those of the four tenants that do not flood.
func flooded(t *testing.T, requests, clients int, flood bool) (p50, p99 time.Duration, l Load) {
	s, f := newScheduler(t, Limits{Slots: 8, Tokens: 519, Grain: 32, Quantum: 4, Snapshots: 16, PromptShare: 0.33})
	f.before = func(context.Context, int) error {
		time.Sleep(time.Millisecond)
		return nil
	}
	var mu sync.Mutex
	var waited []time.Duration
	ctx, end := context.WithCancel(t.Context())
	var ended, floods sync.WaitGroup
	for k := range 5 {
		n, many := clients, k == 0 && flood
		if many {
			n = 100
		}
		for c := range n {
			one := func(i int) {
				a := of(i, 20+(7*i+31*c)%60, 4+(i+c)%40)
				a.tenant = fmt.Sprint("tenant ", k)
				if many {
					a.most = 2000
				}
				q, begun := a.request(), time.Now()
				q.OnBegin = func(time.Time) {
					mu.Lock()
					defer mu.Unlock()
					if k > 0 {
						waited = append(waited, time.Since(begun))
					}
				}
				collect(s, ctx, q)
			}
			if many {
				floods.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						one(i)
					}
				})
				continue
			}
			ended.Go(func() {
				for i := range requests / (5 * clients) {
					time.Sleep(time.Duration((i*c+k*k)%7) * time.Millisecond)
					one(i)
				}
			})
		}
	}
	ended.Wait()
	end()
	floods.Wait()
	s.live.Wait()
	slices.Sort(waited)
	return waited[len(waited)/2], waited[len(waited)*99/100], s.Load()
}
