package traffic

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/lab/workload"
	"github.com/krait-ml/krait/session/prefix"
)

// chats is a trace of conversations that come quickly.
func chats(t testing.TB) []prefix.Request {
	t.Helper()
	trace, err := workload.Make(workload.Options{Kind: "chat", Sessions: 40, Seed: 1, Rate: 10, Pause: 1})
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestRules: whatever the deployment, each request is answered in full or rejected, steps of a
// server follow each other and keep to its limits, and the same seed gives the same report.
func TestRules(t *testing.T) {
	trace := chats(t)
	for name, o := range map[string]Options{
		"one":      {Decode: many(1, 8, 200)},
		"routed":   {Decode: many(3, 4, 200).with(attention)},
		"apart":    {Decode: many(2, 8, 200), Prefill: many(2, 4, 200).with(hybrid), Link: Link{Latency: 0.001, Bandwidth: 1e6, Bytes: slow.Bytes}},
		"closed":   {Decode: many(2, 4, 200), Load: load.Load{Concurrency: 11}},
		"drafts":   {Decode: many(2, 4, 200), Load: load.Load{Rate: 50}, Drafts: 4, Acceptance: 0.6},
		"bursts":   {Decode: many(2, 4, 200).with(func(s *Server) { s.Limits.PromptShare = 0.3 }), Load: load.Load{Rate: 50, Bursts: 4}},
		"crowded":  {Decode: many(2, 4, 200).with(func(s *Server) { s.Queue.Requests = 2 }), Load: load.Load{Rate: 1000}},
		"memory":   {Decode: many(2, 16, 200).with(func(s *Server) { s.Limits.Room, s.Limits.Page = 12800, 128 }), Load: load.Load{Rate: 50}},
		"evicting": {Decode: many(1, 8, 200).with(func(s *Server) { hybrid(s); s.Capacity, s.Policy = 3000, "tuned" })},
	} {
		var steps []Step
		o.Trace, o.Schedule = trace, func(s Step) { steps = append(steps, s) }
		if o.Drafts > 0 {
			o.Decode.Clock = round{0.001, 0.001}
		}
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rejected := 0
		for i := range r.Outcomes {
			x, q := &r.Outcomes[i], &trace[i]
			if x.Err != nil {
				rejected++
				if x.Err.Kind != "status 429" || x.Tokens > 0 {
					t.Errorf("%s: request %d: %v with %d tokens", name, i, x.Err, x.Tokens)
				}
			} else if x.Tokens != q.Tokens.Len()-q.InputLen || x.First.Before(x.Sent) || x.Last.Before(x.First) || len(x.Gaps) != x.Tokens-1 {
				t.Errorf("%s: request %d of %d tokens: %+v", name, i, q.Tokens.Len()-q.InputLen, x)
			}
		}
		if (rejected > 0) != (name == "crowded" || name == "memory") {
			t.Errorf("%s: %d of %d requests are rejected", name, rejected, len(trace))
		}
		last := map[string]Step{}
		for _, s := range steps {
			limit := o.Decode.Limits
			if strings.HasPrefix(s.Server, "prefill") {
				limit = o.Prefill.Limits
			}
			if s.Start < last[s.Server].End || s.Tokens > int64(limit.Tokens) || s.Seqs > int64(limit.Slots) || s.Seqs == 0 {
				t.Fatalf("%s: %+v after %+v, limits %+v", name, s, last[s.Server], limit)
			}
			last[s.Server] = s
		}
		for _, u := range r.Servers {
			if u.Busy <= 0 || u.Busy > 1+1e-9 || u.Room > 1 || u.Sequences < 1 {
				t.Errorf("%s: %+v", name, u)
			}
		}
		if (name == "drafts") != (r.Accepted > 0) || (name == "apart") != (r.Moved > 0) || (name == "evicting") != slices.ContainsFunc(r.Servers, func(u Use) bool { return u.Evictions > 0 }) {
			t.Errorf("%s: %d drafts, %d bytes moved: %+v", name, r.Accepted, r.Moved, r.Servers)
		}
		again, err := Run(t.Context(), o)
		if err != nil || !slices.EqualFunc(r.Outcomes, again.Outcomes, func(a, b load.Outcome) bool {
			return a.First.Equal(b.First) && a.Last.Equal(b.Last) && a.Cached == b.Cached
		}) {
			t.Errorf("%s: another report, %v", name, err)
		}
	}
}

// TestSLO: a request is good within all bounds, and a rejected one is not.
func TestSLO(t *testing.T) {
	// The first takes 15, 11 and 11 ms, the second 15; the third is rejected.
	o := Options{Trace: traceOf(t, "0 5/3, 100 5/1, 100 5/1"), Decode: one(1, 100).with(func(s *Server) { s.Queue.Tokens = 10 })}
	for _, c := range []struct {
		slo  SLO
		good int
	}{
		{SLO{}, 2}, {SLO{TTFT: 0.015}, 2}, {SLO{TTFT: 0.0149}, 0}, {SLO{TPOT: 0.011}, 2}, {SLO{TPOT: 0.0109}, 1}, {SLO{E2E: 0.037}, 2}, {SLO{E2E: 0.036}, 1},
	} {
		o.SLO = c.slo
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Good != c.good || math.Abs(r.Goodput-float64(c.good)/0.115) > 1e-9 || r.OK != 2 {
			t.Errorf("%+v: %d of %d are good, %g per second in %g seconds", c.slo, r.Good, r.OK, r.Goodput, r.Seconds)
		}
	}
}

// TestSweep: deployments are all divisions of the ranks; the cheapest that meets the bounds has the
// fewest ranks; a price is that of the ranks' time.
func TestSweep(t *testing.T) {
	var names []string
	for _, d := range Deployments(4) {
		names = append(names, d.String())
		if d.Ranks() != 4 {
			t.Errorf("%v has %d ranks", d, d.Ranks())
		}
	}
	if want := "4xtp1, 1xtp1 + 3xtp1, 2xtp1 + 2xtp1, 3xtp1 + 1xtp1, 2xtp2, 1xtp2 + 1xtp2, 1xtp4"; strings.Join(names, ", ") != want {
		t.Errorf("%q", names)
	}
	for text, want := range map[string]Size{"2xtp4": {2, 4}, "tp8": {1, 8}, "xtp4": {}, "2x4": {}, "0xtp1": {}, "tp": {}, "tp0": {}, "1xtp2;": {}, "-1xtp1": {}} {
		if got, err := ParseSize(text); (err != nil) != (want == Size{}) || err == nil && got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	// 10 tokens take 20 ms, and 5 take 15.
	o := Options{Trace: traceOf(t, "0 5/1, 0 5/1"), SLO: SLO{TTFT: 0.018}}
	list := append(Deployments(2), Deployments(1)...)
	servers := func(s Size) (Server, error) {
		if s.Ranks == 2 {
			return Server{}, errors.New("too large")
		}
		return many(s.Number, 4, 100), nil
	}
	done, all := 0, 0
	o.Progress = func(n, of int) {
		if n <= done {
			t.Errorf("%d requests have ended, and %d before", n, done)
		}
		done, all = n, of
	}
	lines, err := Sweep(t.Context(), o, list, false, []load.Load{{}}, 3.6, servers)
	if err != nil || done != all || all != len(o.Trace)*len(list) {
		t.Fatalf("%d of %d requests have ended: %v", done, all, err)
	}
	o.Progress = nil
	if best := Cheapest(lines); best == nil || best.Name != "2xtp1" || lines[2].Err != "too large" {
		t.Errorf("%+v of %+v", best, lines)
	}
	// 2 tokens in 15 ms of 2 ranks, at 0.001 per second and rank.
	if got := lines[0].PerMillion[0]; math.Abs(got-15) > 1e-9 {
		t.Errorf("a million tokens cost %g", got)
	}
	if o.SLO.TTFT = 0.02; true {
		if lines, err = Sweep(t.Context(), o, list, false, []load.Load{{}}, 0, servers); err != nil || Cheapest(lines).Name != "1xtp1" {
			t.Errorf("%v, %v", Cheapest(lines), err)
		}
	}
	// To find the cheapest, one rank is tried first, and two are not.
	list = append(Deployments(1), Deployments(2)...)
	if found, err := Sweep(t.Context(), o, list, true, []load.Load{{}}, 0, servers); err != nil || len(found) != 1 || Cheapest(found).Name != "1xtp1" {
		t.Errorf("%+v, %v", found, err)
	}
	o.SLO.TTFT = 0.018
	if found, err := Sweep(t.Context(), o, list, true, []load.Load{{}}, 0, servers); err != nil || len(found) != len(list) || Cheapest(found).Name != "2xtp1" {
		t.Errorf("%+v, %v", found, err)
	}
	if text := string(SVG("title", lines)); !strings.Contains(text, "2xtp1") || strings.Contains(text, "1xtp2<") {
		t.Error(text)
	}
}

// TestErrors: what is wrong is said, also by a clock.
func TestErrors(t *testing.T) {
	trace := traceOf(t, "0 5/1")
	for want, o := range map[string]Options{
		"request 1 of the trac": {Trace: traceOf(t, "20 5/1, 10 5/1"), Decode: one(1, 10)},
		"the trace has no":      {Decode: one(1, 10)},
		"0 servers":             {Trace: trace},
		"there is no clock":     {Trace: trace, Decode: one(1, 10).with(func(s *Server) { s.Clock = nil })},
		"-1 bytes per second":   {Trace: trace, Decode: one(1, 10), Link: Link{Bandwidth: -1}},
		"acceptance of 2":       {Trace: trace, Decode: one(1, 10), Acceptance: 2},
		"-1 drafts per step":    {Trace: trace, Decode: one(1, 10), Drafts: -1},
		"decode 0: at most 1":   {Trace: trace, Decode: one(4, 1)},
		"gaps vary":             {Trace: trace, Decode: one(1, 10), Load: load.Load{Bursts: 2}},
		"it must be none, ":     {Trace: trace, Decode: one(1, 10).with(func(s *Server) { attention(s); s.Policy = "lfu" })},
		"the clock stands":      {Trace: trace, Decode: one(1, 10).with(func(s *Server) { s.Clock = still{} })},
		"the memory plan has a": {Trace: trace, Decode: one(1, 10).with(func(s *Server) { s.Limits.Room, s.Queue.Tokens = 10, 11 })},
	} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// still is a clock without times.
type still struct{ round }

func (still) Step(graph.Sizes) (float64, error) { return 0, errors.New("the clock stands") }
