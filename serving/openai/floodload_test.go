package openai_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/openai"
)

// queueing is a log that keeps how long requests of each key waited for a slot.
type queueing struct {
	slog.Handler
	mu      sync.Mutex
	seconds map[string][]float64
	failed  map[string]int
}

func (q *queueing) Handle(_ context.Context, r slog.Record) error {
	var tenant string
	var queued float64
	var status int64
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "tenant":
			tenant = a.Value.String()
		case "queued":
			queued = a.Value.Float64()
		case "status":
			status = a.Value.Int64()
		}
		return true
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	if status == 200 {
		q.seconds[tenant] = append(q.seconds[tenant], queued)
	} else {
		q.failed[tenant]++
	}
	return nil
}

func (q *queueing) Enabled(context.Context, slog.Level) bool { return true }

// quantile is one of a key's times.
func (q *queueing) quantile(name string, at float64) time.Duration {
	list := slices.Sorted(slices.Values(q.seconds[name]))
	if len(list) == 0 {
		return 0
	}
	return time.Duration(list[min(int(at*float64(len(list))), len(list)-1)] * float64(time.Second)).Round(time.Microsecond)
}

// TestFloodLoad sends as many requests as KRAIT_TEST_FLOOD says, of five keys: half of them with
// equal loads, half where one key floods with long texts, several choices and more at once than
// there are places. The others' 99th percentile of queueing stays under twice what it is with equal
// loads, or under five steps.
func TestFloodLoad(t *testing.T) {
	goldens.CI(t)
	all, _ := strconv.Atoi(os.Getenv("KRAIT_TEST_FLOOD"))
	if all == 0 {
		t.Skip("KRAIT_TEST_FLOOD is not set to a number of requests")
	}
	names := []string{"a", "b", "c", "d", "e"}
	var before []time.Duration
	for _, flood := range []bool{false, true} {
		m, err := krait.Embedded(krait.Options{Slots: 8})
		if err != nil {
			t.Fatal(err)
		}
		log := &queueing{seconds: map[string][]float64{}, failed: map[string]int{}}
		_, h := serve(t, m, openai.Options{Keys: keysOf(t, names...), Log: slog.New(log)})
		begun := time.Now()
		var left, sent atomic.Int64
		left.Store(int64(all / 2))
		var clients, floods sync.WaitGroup
		ctx, end := context.WithCancel(t.Context())
		for k, name := range names {
			if flood && k == 0 {
				for c := range 64 {
					floods.Go(func() {
						for ctx.Err() == nil {
							sent.Add(1)
							tide(ctx, t, h, name, fmt.Sprintf(`{"prompt": %q, "n": %d, "max_tokens": 400, "ignore_eos": true}`, genesis, 1+c%16*8))
						}
					})
				}
				continue
			}
			for c := range 2 {
				clients.Go(func() {
					for i := 0; left.Add(-1) >= 0; i++ {
						sent.Add(1)
						send(t, h, name, fmt.Sprintf(`{"prompt": %q, "max_tokens": %d, "ignore_eos": true}`, genesis[:20+(7*i+c)%30], 4+(i+c)%8))
					}
				})
			}
		}
		clients.Wait()
		end()
		floods.Wait()
		took, l := time.Since(begun), m.Session().Scheduler().Load()
		step := took / time.Duration(l.Steps)
		t.Logf("flood %v: %d requests in %v, %d steps of %v, %d paused, %d computed again", flood, sent.Load(), took.Round(time.Millisecond), l.Steps, step, l.Paused, l.Restarted)
		for k, name := range names {
			p50, p99 := log.quantile(name, 0.5), log.quantile(name, 0.99)
			t.Logf("  %s: %d answers, %d refused, queueing p50 %v, p99 %v", name, len(log.seconds[name]), log.failed[name], p50, p99)
			if !flood {
				before = append(before, p99)
			} else if k > 0 && (p99 > max(2*before[k], 5*step) || log.failed[name] > 0) {
				t.Errorf("%s waits for %v beside a flood, %v without, a step takes %v", name, p99, before[k], step)
			}
		}
		m.Close()
	}
}

// tide is a request of the flood. Where it is refused the next comes soon, whatever Retry-After
// says.
func tide(ctx context.Context, t *testing.T, h *httptest.Server, key, body string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	if got, err := h.Client().Do(r); err == nil {
		io.Copy(io.Discard, got.Body)
		got.Body.Close()
		if got.StatusCode != http.StatusOK {
			time.Sleep(300 * time.Millisecond)
		}
	}
}
