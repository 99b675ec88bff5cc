package openai

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/session/schedule"
)

// measure adds /metrics, with gauges of the server.
func (s *Server) measure(m *metrics.Metrics) {
	s.routes["/metrics"] = route{method: "GET", quiet: true, described: described{about: "has metrics for Prometheus"}, handle: func(w *response, r *http.Request) error {
		m.ServeHTTP(w, r)
		return nil
	}}
	m.SetModel(s.o.Name)
	m.ServeTexts()
	m.Session(s.m.Session())
	m.Gauge("krait_ranks", "Ranks that run the model.", func() float64 { return float64(s.m.Ranks()) })
	m.Gauge("krait_num_requests_waiting", "Queued sequences: those without a slot, such as preempted ones.", func() float64 { return float64(s.Load().Waiting) })
	m.Gauge("krait_held_tokens", "Upper bound on tokens of all running and queued sequences.", func() float64 { return float64(s.Load().Tokens) })
	m.Gauge("krait_held_tokens_limit", "The most tokens that running and queued sequences may hold; more requests get 429.", func() float64 { return float64(s.queue.Limits().Tokens) })
	m.Gauge("krait_body_bytes", "Bytes in memory of request bodies, and of answers of /tokenize and /detokenize.", func() float64 { return float64(s.intake.bytes.Held()) })
	s.measureDrafts(m)
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

// count counts an answered request by its route; unknown paths are "other". A request that failed
// has the status of its error, also where a stream had begun.
func (s *Server) count(r *http.Request, status int, err *Error) {
	if s.o.Metrics == nil {
		return
	}
	if err != nil {
		status = err.Status
	}
	path, _, _ := s.find(r.URL.Path)
	s.o.Metrics.Request(path, cmp.Or(status, http.StatusOK))
}

// text counts a choice that ended, with its error.
func (s *Server) text(c *choice, err error) {
	if s.o.Metrics == nil {
		return
	}
	t := metrics.Text{Reason: metrics.Failed, Began: c.queued, First: c.first, Last: c.last, Ended: c.took}
	if c.queued > 0 && !c.shares { // it had a slot
		t.Prompt = len(c.prompt)
	}
	if c.out != nil {
		t.Cached, t.Chosen = c.out.CachedTokens, len(c.out.IDs)
		t.Fallback = c.out.Fallback != nil
		if x := c.out.Remote; x != nil {
			t.Fetched, t.Traveled, t.Prefill, t.Transfer = x.Tokens, x.Bytes, x.Prefill, x.Transfer
		}
	}
	switch {
	case c.done:
		t.Reason = *finish(c.out)
	case errors.Is(err, context.Canceled):
		t.Reason = metrics.Abort
	}
	s.o.Metrics.Text(t)
}
