package exec

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Event is one thing that a rank did, from Start to End on a stream: for pictures of
// time. A kernel, a copy or a collective is one, and so is what a stream stood still for
// (Kind is lowering.Wait then, and Name that of the step that waited).
type Event struct {
	Rank   int
	Stream lowering.Stream
	Kind   lowering.Kind
	Name   string // of the step's first result
	Op     string // the operation; empty for a wait
	// Start and End are in seconds since the machine was opened, on the machine's own
	// clock. A collective starts where the rank takes part, before others may have come.
	Start, End float64
	Bytes      int64 // the payload of a collective; what a launch reads and writes, 0 where nobody knows
}

// Recorder is given the events of each step after its end, rank by rank, those of a
// stream in their order. The list is the machine's, and valid during the call. Steps
// that fail are left out.
type Recorder func(step []Event)

// BytesOf is what an event of a step says for a batch: the payload of a collective, and
// of a launch the rank's share of what all ranks read and write, each operand once.
func BytesOf(st *lowering.Step, ranks int, z graph.Sizes) int64 {
	if st.Kind == lowering.Collective {
		_, bytes := graph.Payload(st.ArgTypes()...)
		return bytes.At(z)
	}
	return st.Cost.Read.Plus(st.Cost.Write).At(z) / int64(ranks)
}
