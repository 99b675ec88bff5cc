package openai

import (
	"cmp"
	"net/http"
	"time"

	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/session/schedule"
)

// measure adds /metrics, with gauges of the server.
func (s *Server) measure(m *metrics.Metrics) {
	s.routes["/metrics"] = route{method: "GET", quiet: true, handle: func(w *response, r *http.Request) error {
		m.ServeHTTP(w, r)
		return nil
	}}
	m.Gauge("krait_slots", "Slots: the most sequences that can run at the same time.", func() float64 { return float64(s.m.Engine().Slots()) })
	m.Gauge("krait_ranks", "Ranks that run the model.", func() float64 { return float64(s.m.Ranks()) })
	m.Gauge("krait_running", "Running sequences: those with a slot.", func() float64 { return float64(s.Load().Running) })
	m.Gauge("krait_waiting", "Queued sequences: those without a slot, such as preempted ones.", func() float64 { return float64(s.Load().Waiting) })
	m.Counter("krait_preemptions_total", "Preemptions: a sequence lost its slot to a tenant with fewer slots and resumes later.", func() float64 { return float64(s.m.Session().Scheduler().Load().Paused) })
	m.Counter("krait_recomputed_texts_total", "Sequences whose state was evicted for lack of memory and recomputed.", func() float64 { return float64(s.m.Session().Scheduler().Load().Restarted) })
	m.Gauge("krait_held_tokens", "Upper bound on tokens of all running and queued sequences.", func() float64 { return float64(s.Load().Tokens) })
	m.Gauge("krait_body_bytes", "Bytes in memory of request bodies, and of answers of /tokenize and /detokenize.", func() float64 { return float64(s.intake.bytes.Held()) })
	s.measureDrafts(m)
	if s.m.Session().PrefixCacheBytes() == 0 {
		return
	}
	m.Gauge("krait_prefix_cache_capacity_bytes", "Capacity of the prefix cache, without its host tier.", func() float64 { return float64(s.m.Session().PrefixCacheBytes()) })
	m.Gauge("krait_prefix_cache_bytes", "Bytes in the prefix cache, without its host tier.", func() float64 { return float64(s.m.Session().PrefixCache().Bytes) })
	m.Gauge("krait_prefix_cache_states", "Snapshots in the prefix cache, without its host tier.", func() float64 { return float64(s.m.Session().PrefixCache().States) })
	m.Counter("krait_prefix_cache_requests_total", "Prefix cache lookups.", func() float64 { return float64(s.m.Session().PrefixCache().Requests) })
	m.Counter("krait_prefix_cache_hits_total", "Prefix cache lookups that hit a prefix of the prompt.", func() float64 { return float64(s.m.Session().PrefixCache().Hits) })
	m.Counter("krait_prefix_cache_evictions_total", "Nodes evicted from the prefix cache, or their snapshots; the host tier may take them.", func() float64 { return float64(s.m.Session().PrefixCache().Evictions) })
}

// measureDrafts adds the counters of speculative decoding, with vLLM's names after krait_, by kind.
func (s *Server) measureDrafts(m *metrics.Metrics) {
	if !s.m.Speculates() {
		return
	}
	for _, kind := range draft.Kinds {
		add := func(name, help string, of func(schedule.Drafts) int64) {
			m.CounterOf("krait_spec_decode_"+name, help, "kind", kind, func() float64 {
				return float64(of(s.m.Session().Scheduler().Load().Drafts[kind]))
			})
		}
		add("num_drafts_total", "Drafts verified: one per sequence and step that had one.", func(d schedule.Drafts) int64 { return d.Trials })
		add("num_draft_tokens_total", "Tokens of the drafts verified.", func(d schedule.Drafts) int64 { return d.Tokens })
		add("num_accepted_tokens_total", "Draft tokens accepted: those that are in the text.", func(d schedule.Drafts) int64 { return d.Accepted })
	}
}

// count counts an answered request by its route; unknown paths are "other".
func (s *Server) count(r *http.Request, status int) {
	if s.o.Metrics == nil {
		return
	}
	path, _, _ := s.find(r.URL.Path)
	s.o.Metrics.Request(path, cmp.Or(status, http.StatusOK))
}

// text counts a choice that ended.
func (s *Server) text(c *choice, took time.Duration) {
	if s.o.Metrics == nil {
		return
	}
	t := metrics.Text{Reason: "failed", Began: c.queued, First: c.first, Ended: took}
	if c.queued > 0 && !c.shares { // it had a slot
		t.Prompt = len(c.prompt)
	}
	if c.out != nil {
		t.Cached, t.Chosen = c.out.CachedTokens, len(c.out.IDs)
		t.Fallback = c.out.Fallback != nil
		if x := c.out.Remote; x != nil {
			t.Fetched, t.Traveled, t.Prefill = x.Tokens, x.Bytes, x.Prefill
		}
		if c.done {
			t.Reason = *finish(c.out)
		}
	}
	s.o.Metrics.Text(t)
}
