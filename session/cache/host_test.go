package cache_test

import (
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/session/cache"
	"github.com/krait-ml/krait/session/prefix"
)

// TestHostHasAll: a small cache with a host that has room for all hits what one without
// limit hits, if not more; and without the host it does not.
func TestHostHasAll(t *testing.T) {
	for _, name := range []string{"docs-hybrid", "fewshot-ssm", "edges-attention", "edges-hybrid", "edges-small"} {
		m, capacity, trace := golden(t, name)
		trace = trace[:min(len(trace), 300)]
		if name == "docs-hybrid" || name == "fewshot-ssm" { // the others' texts are shorter
			m.Grain = prefix.Grain
		}
		all := newReplay(t, cache.Options{Model: m, Capacity: 1 << 60})
		less := newReplay(t, cache.Options{Model: m, Capacity: capacity/4 + 1})
		both := newReplay(t, cache.Options{Model: m, Capacity: capacity/4 + 1, Host: 1 << 60})
		for i, q := range trace {
			want := all.serve(q)
			less.serve(q)
			if hit := both.serve(q); hit < want {
				t.Fatalf("%s, request %d: %d tokens are hit, without limit %d", name, i, hit, want)
			}
		}
		a, l, s := all.Stats(), less.Stats(), both.Stats()
		if s.HitTokens <= l.HitTokens || s.HitTokens < a.HitTokens || s.HitTokens > a.HitTokens+a.HitTokens/10 || s.HostHits == 0 || s.HostHitTokens == 0 || s.HostEvictions > 0 {
			t.Errorf("%s: without limit %+v,\nwithout a host %+v,\nwith one %+v", name, a, l, s)
		}
	}
}

// line is a request of n consecutive tokens from first on, all prompt but the last.
func line(at float64, first int32, n int) prefix.Request {
	var b prefix.Builder
	b.Append(first, n)
	return prefix.Request{At: at, Tokens: b.Tokens(), InputLen: n - 1}
}

// TestHostPays: what is evicted comes back where the link is faster than computing, and
// then its state is the device's again when the sequence has ended; not where it is slower.
func TestHostPays(t *testing.T) {
	m := prefix.Model{FLOPsPerToken: 100, CacheBytes: 10, StateBytes: 1000}
	for _, c := range []struct {
		link, compute float64 // seconds for a copy of states, and tokens that are computed in one
		back          bool
	}{{1, 1, true}, {40, 1, true}, {60, 1, false}, {1, 1000, false}} {
		r := newReplay(t, cache.Options{Model: m, Capacity: 3500, Policy: "lru", Host: 1 << 40})
		r.copies = func() { r.now += c.link }
		r.serve(line(1, 1, 50)) // a state after 50
		r.begin(line(2, 1000, 60))
		r.Ran(&exec.Batch{Sequences: []exec.Sequence{{Slot: 7, Tokens: make([]int, 59)}}}, 59*100/(c.compute*100))
		r.finish(line(2, 1000, 60))
		for i := range 3 {
			r.serve(line(10000+float64(i), int32(2000+1000*i), 40))
		}
		before := r.Stats()
		if before.HostStates == 0 || before.LinkRate == 0 || before.ComputeRate == 0 {
			t.Fatalf("%+v", before)
		}
		hit := r.serve(line(1e6, 1, 80))
		s := r.Stats()
		if (hit == 50) != c.back || (s.HostHits == 1) != c.back || hit != 0 && hit != 50 {
			t.Errorf("%+v: %d tokens are hit, %+v", c, hit, s)
		}
		if hit := r.serve(line(2e6, 1, 60)); c.back && (hit != 50 || r.Stats().HostHits != 1) {
			t.Errorf("%+v: then %d are hit, %+v", c, hit, r.Stats())
		}
	}
}

// TestFewStates: a sequence leaves at most three states, and with a grain of one token two, also
// where one came from the host.
func TestFewStates(t *testing.T) {
	for _, c := range []struct {
		name        string
		grain, most int
	}{{"docs-hybrid", 1, 2}, {"docs-hybrid", prefix.Grain, 3}, {"edges-hybrid", 1, 2}, {"edges-hybrid", 3, 3}} {
		m, capacity, trace := golden(t, c.name)
		m.Grain = c.grain
		for _, o := range []cache.Options{{Model: m, Capacity: 1 << 60}, {Model: m, Capacity: capacity, Policy: "lru", Host: 1 << 60}} {
			r := newReplay(t, o)
			for i, q := range trace[:min(len(trace), 300)] {
				before := r.Stats()
				r.serve(q)
				if s := r.Stats(); s.States > before.States+c.most {
					t.Fatalf("%+v, request %d leaves %d states", c, i, s.States-before.States)
				}
			}
		}
	}
}

// TestHostIsSmall: what is larger than the host's memory is not taken, and what is there stays.
func TestHostIsSmall(t *testing.T) {
	m := prefix.Model{FLOPsPerToken: 100, CacheBytes: 10, StateBytes: 1000}
	r := newReplay(t, cache.Options{Model: m, Capacity: 3000, Policy: "lru", Host: 2600})
	for i, n := range []int{50, 180, 40, 50, 60} {
		r.serve(line(float64(i), int32(1000*i), n))
		if s := r.Stats(); s.HostBytes > 2600 || i == 2 && s.HostBytes != 1500 { // that of 180 went, and is not there
			t.Fatalf("%+v", s)
		}
	}
	if s := r.Stats(); s.HostStates != 1 || s.HostBytes != 1500 && s.HostBytes != 1400 {
		t.Errorf("%+v", s)
	}
}
