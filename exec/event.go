package exec

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Event is a kernel, a copy or a collective that a rank ran on a stream, or a wait: Kind is
// lowering.Wait then, and Name that of the step that waited.
type Event struct {
	Rank   int
	Stream lowering.Stream
	Kind   lowering.Kind
	Name   string // of the step's first result
	Op     string // the operation; empty for a wait
	// Start and End are in seconds since the machine was opened, on the machine's own clock. A
	// collective starts when the rank takes part, maybe before the others.
	Start, End float64
	Bytes      int64 // payload of a collective; bytes read and written by a launch, 0 where unknown
}

// Recorder is called after each step with its events, rank by rank, those of a stream in their
// order. The list is valid during the call. Failed steps are left out.
type Recorder func(step []Event)

// BytesOf returns Event.Bytes of a step for a batch: the payload of a collective, and the rank's
// share of what all ranks of a launch read and write, each operand once.
func BytesOf(st *lowering.Step, ranks int, z graph.Sizes) int64 {
	if st.Kind == lowering.Collective {
		_, bytes := graph.Payload(st.ArgTypes()...)
		return bytes.At(z)
	}
	return st.Cost.Read.Plus(st.Cost.Write).At(z) / int64(ranks)
}
