package metrics

import (
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/schedule"
)

// Session adds the gauges and counters of a model's scheduler, KV cache and prefix cache.
func (m *Metrics) Session(s *session.Session) {
	load := func(of func(l schedule.Load) float64) func() float64 {
		return func() float64 { return of(s.Scheduler().Load()) }
	}
	m.Gauge("krait_slots", "Slots: the most sequences that can run at the same time.", func() float64 { return float64(s.Engine().Slots()) })
	m.Gauge("krait_num_requests_running", "Running sequences: those with a slot.", load(func(l schedule.Load) float64 { return float64(l.Running) }))
	m.Counter("krait_num_preemptions_total", "Preemptions: a sequence lost its slot to a tenant with fewer slots and resumes later.", load(func(l schedule.Load) float64 { return float64(l.Paused) }))
	m.Counter("krait_recomputed_texts_total", "Sequences whose state was evicted for lack of memory and recomputed.", load(func(l schedule.Load) float64 { return float64(l.Restarted) }))
	m.pages(s)
	if s.PrefixCacheBytes() == 0 {
		return
	}
	m.Gauge("krait_prefix_cache_capacity_bytes", "Capacity of the prefix cache, without its host tier.", func() float64 { return float64(s.PrefixCacheBytes()) })
	m.Gauge("krait_prefix_cache_bytes", "Bytes in the prefix cache, without its host tier.", func() float64 { return float64(s.PrefixCache().Bytes) })
	m.Gauge("krait_prefix_cache_states", "Snapshots in the prefix cache, without its host tier.", func() float64 { return float64(s.PrefixCache().States) })
	m.Counter("krait_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", func() float64 { return float64(s.PrefixCache().PromptTokens) })
	m.Counter("krait_prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", func() float64 { return float64(s.PrefixCache().HitTokens) })
	m.Counter("krait_prefix_cache_evictions_total", "Nodes evicted from the prefix cache, or their snapshots; the host tier may take them.", func() float64 { return float64(s.PrefixCache().Evictions) })
}

// pages adds the use and capacity of the KV cache, if its pages are limited.
func (m *Metrics) pages(s *session.Session) {
	if _, limit := s.Engine().Pages(); limit == 0 {
		return
	}
	m.Gauge("krait_kv_cache_pages", "KV pages in use, also by the prefix cache.", func() float64 { used, _ := s.Engine().Pages(); return float64(used) })
	m.Gauge("krait_kv_cache_capacity_pages", "KV pages that may be in use.", func() float64 { _, limit := s.Engine().Pages(); return float64(limit) })
	m.Gauge("krait_kv_cache_usage_perc", "KV pages in use as a share of all. 1 means 100 percent.", func() float64 {
		used, limit := s.Engine().Pages()
		return float64(used) / float64(limit)
	})
}
