package timeline

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/krait-ml/krait/lowering"
)

// Trace writes runs as JSON for Perfetto and chrome://tracing. Each rank of a run is a process, with a
// thread per stream and one for batches. Times are in microseconds.
func Trace(out io.Writer, runs []Run) error {
	w := &tracer{out: bufio.NewWriter(out)}
	w.text(`{"displayTimeUnit":"ns","traceEvents":[`)
	for rank := range ranksOf(runs) {
		for i := range runs {
			w.processOf(&runs[i], rank, 1+rank*len(runs)+i)
		}
	}
	w.text("\n]}\n")
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
}

type tracer struct {
	out   *bufio.Writer
	count int
	err   error
}

// entry is an event of the format: metadata such as a name (M), or an interval (X).
type entry struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	At       *float64       `json:"ts,omitempty"`
	Took     *float64       `json:"dur,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

func (w *tracer) text(s string) {
	if w.err == nil {
		_, w.err = w.out.WriteString(s)
	}
}

func (w *tracer) add(e entry) {
	text, err := json.Marshal(e)
	if err != nil && w.err == nil {
		w.err = err
	}
	if w.count++; w.count > 1 {
		w.text(",")
	}
	w.text("\n" + string(text))
}

// The threads of a process.
const (
	batches = 1 + iota
	compute
	comm
)

func (w *tracer) processOf(r *Run, rank, process int) {
	name := func(what string, thread int, value any) {
		key := "name"
		if what == "process_sort_index" || what == "thread_sort_index" {
			key = "sort_index"
		}
		w.add(entry{Name: what, Phase: "M", Process: process, Thread: thread, Args: map[string]any{key: value}})
	}
	name("process_name", 0, fmt.Sprintf("rank %d, %s", rank, r.Name))
	name("process_sort_index", 0, process)
	for i, of := range []string{"batches", "compute", "comm"} {
		name("thread_name", batches+i, of)
		name("thread_sort_index", batches+i, i)
	}
	for i := range r.Steps {
		w.step(&r.Steps[i], rank, process)
	}
}

func (w *tracer) step(s *Step, rank, process int) {
	span := func(name, category string, thread int, from, to float64, args map[string]any) {
		at, took := microseconds(from), microseconds(to-from)
		w.add(entry{name, category, "X", process, thread, &at, &took, args})
	}
	from, to := s.Bounds()
	span(s.Name, "batch", batches, from, to, nil)
	for _, e := range s.Events {
		if e.Rank != rank {
			continue
		}
		thread := compute
		if e.Stream == lowering.Comm {
			thread = comm
		}
		args := map[string]any{"bytes": e.Bytes}
		category := e.Op
		if e.Kind == lowering.Wait {
			category, args = "wait", nil
		} else {
			args["operation"] = e.Op
		}
		span(e.Name, category, thread, e.Start, e.End, args)
	}
}

// microseconds, to the picosecond.
func microseconds(s float64) float64 { return math.Round(s*1e12) / 1e6 }
