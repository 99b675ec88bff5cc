package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/session/prefix"
)

// sharing is a trace whose prompts share beginnings, of ids below a number.
func sharing(n, below int) (trace []prefix.Request) {
	r := rand.New(rand.NewPCG(1, 5))
	for i := range n {
		var b prefix.Builder
		if i > 0 && r.IntN(3) > 0 {
			from := trace[r.IntN(i)].Tokens
			b.AppendTokens(from.Prefix(r.IntN(from.Len()) + 1))
		}
		for range 1 + r.IntN(8) {
			b.Append(int32(r.IntN(below)), 1)
		}
		x := prefix.Request{At: float64(i), InputLen: b.Len()}
		for range r.IntN(4) {
			b.Append(int32(r.IntN(below)), 1)
		}
		x.Tokens = b.Tokens()
		trace = append(trace, x)
	}
	return trace
}

func openGolden(t *testing.T, o krait.Options) *krait.Model {
	t.Helper()
	m, err := krait.Open(filepath.Join("../../testdata/golden/jamba"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestTrace: one after another, requests hit what a simulation of the trace says; without a cache
// all tokens of the trace are fed, and no others; and all run when they arrive at the same time.
func TestTrace(t *testing.T) {
	m := openGolden(t, krait.Options{Slots: 1, PrefixCache: 1 << 40})
	trace := MapTrace(sharing(40, math.MaxInt32), m.Vocab())
	r, err := Trace(t.Context(), m, trace, TraceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := m.Compiled().Prefill()
	want, err := prefix.Replay("lru", prefix.Model{FLOPsPerToken: p.PerToken, FLOPsPerTokenSquared: p.PerTokenSquared, CacheBytes: p.CacheBytes, StateBytes: p.StateBytes, Grain: prefix.Grain}, 1<<40, trace)
	if err != nil || !slices.Equal(r.Hits, want.Hits) || want.HitTokens == 0 {
		t.Errorf("hits are %v, in the simulation %v, %v", r.Hits, want.Hits, err)
	}
	if s := m.Session().PrefixCache(); s.HitTokens != int64(r.hitTokens()) || s.Requests != len(trace) {
		t.Errorf("%+v", s)
	}

	fed := 0
	for _, x := range trace {
		fed += x.Tokens.Len()
	}
	for _, speed := range []float64{0, 1e6} {
		m := openGolden(t, krait.Options{Slots: 3})
		told := 0
		r, err := Trace(t.Context(), m, trace, TraceOptions{Speed: speed, Tell: func(done, all int) { told += done }})
		if err != nil {
			t.Fatal(err)
		}
		if l := m.Session().Scheduler().Load(); l.Tokens != int64(fed) || l.Running+l.Waiting > 0 || r.hitTokens() != 0 || told != 40*41/2 {
			t.Errorf("speed %g: %+v, the trace has %d tokens; %d hits, told %d", speed, l, fed, r.hitTokens(), told)
		}
		if q := r.TTFT; !(0 < q.P50 && q.P50 <= q.P95 && q.P95 <= q.P99) || r.Output <= 0 || r.Seconds <= 0 {
			t.Errorf("speed %g: %+v", speed, r)
		}
	}
}

// TestTraceFails: what is wrong is said, and ends all.
func TestTraceFails(t *testing.T) {
	trace := sharing(20, 8)
	m := openGolden(t, krait.Options{Slots: 2, Context: 12})
	if _, err := Trace(t.Context(), m, trace, TraceOptions{}); err == nil || !strings.Contains(err.Error(), "request ") || !strings.Contains(err.Error(), "has room for 12") {
		t.Errorf("a context that is too short: %v", err)
	}
	for _, speed := range []float64{-1, math.NaN(), math.Inf(1), 1e-9} {
		if _, err := Trace(t.Context(), m, trace, TraceOptions{Speed: speed}); err == nil || !strings.Contains(err.Error(), "speed") {
			t.Errorf("speed %g: %v", speed, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, speed := range []float64{0, 1} {
		if _, err := Trace(ctx, m, trace, TraceOptions{Speed: speed}); err != context.Canceled {
			t.Errorf("cancelled, at speed %g: %v", speed, err)
		}
	}
	if l := m.Session().Scheduler().Load(); l.Running+l.Waiting > 0 {
		t.Errorf("left: %+v", l)
	}
}

// TestMapped: tokens of the vocabulary stay, and of others the same ids are the same
// tokens, of all of it.
func TestMapped(t *testing.T) {
	small := sharing(30, 16)
	if got := MapTrace(small, 16); !reflect.DeepEqual(got, small) {
		t.Error("tokens of the vocabulary are others")
	}
	large := sharing(30, 1000)
	got, token, used := MapTrace(large, 16), map[int32]int32{}, map[int32]bool{}
	for i, r := range got {
		if r.InputLen != large[i].InputLen || r.At != large[i].At || r.Tokens.Len() != large[i].Tokens.Len() {
			t.Fatalf("request %d is another", i)
		}
		for k := range r.Tokens.Len() {
			id, to := large[i].Tokens.At(k), r.Tokens.At(k)
			if was, known := token[id]; known && was != to || to < 0 || to >= 16 {
				t.Fatalf("id %d is %d, and %d", id, was, to)
			}
			token[id], used[to] = to, true
		}
	}
	if len(used) != 16 {
		t.Errorf("%d tokens of 16 are used", len(used))
	}
}

func TestPercentiles(t *testing.T) {
	var list []float64
	for i := range 200 {
		list = append(list, float64(200-i))
	}
	if got := percentiles(list); got != (Percentiles{100, 190, 198}) {
		t.Errorf("%+v", got)
	}
	if got := percentiles([]float64{7}); got != (Percentiles{7, 7, 7}) {
		t.Errorf("%+v", got)
	}
}
