package metrics

import (
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/lowering"
)

// Batch counts a batch before it runs: it is [krait.Options.Batches]. It counts as [exec.Work.Mix]
// does.
func (m *Metrics) Batch(w *exec.Work) {
	_, prompts, rows := w.Mix()
	m.steps.Inc()
	m.prompts.Add(float64(prompts))
	m.rows.Add(float64(rows))
	m.perStep.Observe(float64(prompts + rows))
}

// Recording reports whether to measure the next step: it is [krait.Options.Recording].
func (m *Metrics) Recording() bool {
	now := m.asked.Add(1)%every == 1
	m.record.Store(now)
	return now
}

// Record counts the events of a measured step: it is [krait.Options.Record]. It ignores steps for
// which Recording returned false.
func (m *Metrics) Record(step []exec.Event) {
	if len(step) == 0 || !m.record.Load() {
		return
	}
	ranks, from, to := 0, step[0].Start, step[0].End
	var kernels, collectives, bytes float64
	count := 0
	for i := range step {
		e := &step[i]
		ranks, from, to = max(ranks, e.Rank+1), min(from, e.Start), max(to, e.End)
		switch {
		case e.Kind == lowering.Collective:
			collectives += e.End - e.Start
			if e.Rank == 0 {
				count++
				bytes += float64(e.Bytes)
			}
		case e.Kind != lowering.Wait:
			kernels += e.End - e.Start
		}
	}
	m.measured.Inc()
	m.spent.WithLabelValues("step").Add(to - from)
	m.spent.WithLabelValues("kernels").Add(kernels / float64(ranks))
	m.spent.WithLabelValues("collectives").Add(collectives / float64(ranks))
	m.called.Add(float64(count))
	m.carried.Add(bytes)
}
