package timeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// ReadMeasured reads the measured run of a trace that [Trace] wrote. Events have no bytes.
func ReadMeasured(r io.Reader) (*Run, error) {
	var trace struct {
		Events []entry `json:"traceEvents"`
	}
	if err := json.NewDecoder(r).Decode(&trace); err != nil {
		return nil, fmt.Errorf("it is no profile in JSON: %w", err)
	}
	run, ranks := &Run{}, map[int]int{} // rank of a process
	for _, e := range trace.Events {
		name, _ := e.Args["name"].(string)
		var rank int
		if _, err := fmt.Sscanf(name, "rank %d,", &rank); e.Name != "process_name" || err != nil {
			continue
		}
		if _, what, _ := strings.Cut(name, ", "); strings.HasPrefix(what, "measured on ") {
			ranks[e.Process], run.Name = rank, what
		}
	}
	if len(ranks) == 0 {
		return nil, errors.New("it has no measured steps; write it with krait generate --profile FILE.json")
	}
	return run, run.read(trace.Events, ranks)
}

// read adds the steps: rank 0's batches, and the events of all ranks that begin within each.
func (r *Run) read(entries []entry, ranks map[int]int) error {
	type span struct{ from, to float64 }
	var spans []span
	interval := func(e *entry) (rank int, s span, ok bool) {
		rank, ok = ranks[e.Process]
		if !ok || e.Phase != "X" || e.At == nil || e.Took == nil {
			return rank, s, false
		}
		return rank, span{*e.At / 1e6, (*e.At + *e.Took) / 1e6}, true
	}
	for i := range entries {
		if rank, s, ok := interval(&entries[i]); ok && rank == 0 && entries[i].Thread == batches {
			r.Steps, spans = append(r.Steps, Step{Name: entries[i].Name}), append(spans, s)
		}
	}
	for i := range entries {
		e := &entries[i]
		rank, s, ok := interval(e)
		if !ok || e.Thread == batches || e.Category == "wait" {
			continue
		}
		at, found := slices.BinarySearchFunc(spans, s.from, func(x span, from float64) int {
			switch {
			case x.from > from+1e-9:
				return 1
			case x.to < from:
				return -1
			}
			return 0
		})
		op, known := graph.Lookup(e.Category)
		if !found || !known {
			return fmt.Errorf("event %d, %s, is in no step or of no operation", i, e.Name)
		}
		event := exec.Event{Rank: rank, Name: e.Name, Op: e.Category, Start: s.from, End: s.to}
		switch op.Class {
		case graph.Collective:
			event.Kind = lowering.Collective
		case graph.Relayout:
			event.Kind = lowering.Relayout
		default:
			event.Kind = lowering.Launch
		}
		if e.Thread == comm {
			event.Stream = lowering.Comm
		}
		r.Steps[at].Events = append(r.Steps[at].Events, event)
	}
	return nil
}

// Median returns the step of median length of those with a name; nil: there is none.
func (r *Run) Median(name string) *Step {
	var list []*Step
	for i := range r.Steps {
		if r.Steps[i].Name == name {
			list = append(list, &r.Steps[i])
		}
	}
	if len(list) == 0 {
		return nil
	}
	length := func(s *Step) float64 { from, to := s.Bounds(); return to - from }
	slices.SortFunc(list, func(a, b *Step) int {
		switch x, y := length(a), length(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return list[len(list)/2]
}

// Kinds returns the names of the steps, each once.
func (r *Run) Kinds() (names []string) {
	for _, s := range r.Steps {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}
