package simulate

import (
	"slices"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/passes"
)

// Link is what the collectives along some axes of the mesh carry over a level of hardware in the
// last step of a phase.
type Link struct {
	Phase string `json:"phase"`
	Axes  string `json:"axes"`
	Level string `json:"level"`
	// Sent is bytes by a rank, on average. Collectives that run at the same time add their seconds.
	Sent    float64 `json:"sent_bytes"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the step's time
}

// Nodes is how the ranks lie on nodes, as the last workload arranged them.
func (m *Model) Nodes() cost.Arrangement { return m.machine.Nodes() }

// arrange puts the ranks on nodes for a workload.
func (m *Model) arrange(w Workload) {
	chunk := w.chunk()
	list := []virtual.Steps{{Sizes: m.sizes(w, w.Prompt-chunk, chunk, 1), Times: float64(w.Prompt) / float64(chunk)}}
	if w.Output > 1 {
		list = append(list, virtual.Steps{Sizes: m.sizes(w, w.Prompt, 1, 1), Times: float64(w.Output - 1)})
	}
	m.machine.Arrange(list...)
}

// linked adds what crossed the levels in the last step, of a model on several nodes.
func (r *Result) linked(m *Model, phase string) {
	nodes := m.Nodes()
	if nodes.Nodes() == 1 {
		return
	}
	last := m.machine.Last()
	for _, c := range m.machine.Crossings() {
		r.Links = append(r.Links, Link{phase, c.Axes.In(nodes.Mesh), c.Level.String(), c.Sent, c.Seconds, c.Seconds / last.Seconds()})
	}
}

// linksOf is the links of prefill by one result and of decode by another.
func linksOf(a, b *Result) []Link {
	of := func(r *Result, phase string) []Link {
		return slices.DeleteFunc(slices.Clone(r.Links), func(l Link) bool { return l.Phase != phase })
	}
	return append(of(a, passes.Phases[0]), of(b, passes.Phases[1])...)
}
