// Package comm is how the ranks of a model take part in collectives, wherever they
// run. A [World] joins them; [Local] is that of ranks which share memory. Devices
// with links of their own, such as GPUs, use those for what is in their memory.
package comm

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// World joins the ranks of a model.
type World interface {
	// Ranks is how many there are, in all processes.
	Ranks() int
	// Join gives a rank its way to the others. Each joins once, in the process that
	// runs it.
	Join(rank int) (Comm, error)
}

// Comm is one rank's way to the others. Its methods are called by the goroutine that
// runs the rank, except for Stop.
type Comm interface {
	// Begin begins a step, of which all ranks run the same ones. Why the last was
	// stopped is forgotten.
	Begin()
	// Run takes part in a collective. All ranks run the same in the same order. It
	// returns when the rank's results are there and its operands may be written
	// again, or with the error for which the step was stopped.
	Run(c *Collective) error
	// Stop ends the step on all ranks. Of several errors the first counts.
	Stop(err error)
	// Stopped reports whether somebody has stopped the step.
	Stopped() bool
	// Err is why the step was stopped, nil if it was not.
	Err() error
}

// Collective is one rank's side of a collective.
type Collective struct {
	Op            *graph.Op
	Args, Results []kernels.Tensor
	// Parts says, by rank, what it holds of the whole of the sharded side. Several
	// operands are parts of the same rows.
	Parts []graph.Pieces
	// F32 says that sums are kept in f32, whatever travels.
	F32 bool

	rows graph.Type // of which ranks have some, as the batch says
}

// Of is the rank's side of a step of its schedule, with the tensors of a call that
// is filled in for every batch.
func Of(s *lowering.Schedule, st *lowering.Step, c *kernels.Call) Collective {
	x := Collective{Op: st.Op, Args: c.Args, Results: c.Results, F32: st.Attrs.Text("acc") == "f32"}
	sharded := st.Results[0].Type
	if st.Op.From == graph.Sharded {
		sharded = st.Args[0].Type
	}
	if sharded.Layout.ByBatch() {
		x.rows, x.Parts = sharded, make([]graph.Pieces, s.Ranks)
		return x
	}
	for r := range s.Ranks {
		x.Parts = append(x.Parts, graph.PiecesOf(sharded, s.Ranks, r))
	}
	return x
}

// Bind says what ranks hold in a batch, where that hangs on it.
func (c *Collective) Bind(b *graph.Batch) {
	c.bind(func(rank int) graph.Pieces { return graph.PiecesIn(b, c.rows, len(c.Parts), rank) })
}

// BindPiece is Bind for some rows of the batch, of which alone the tensors are.
func (c *Collective) BindPiece(b *graph.Batch, rows graph.Run) {
	c.bind(func(rank int) graph.Pieces { return graph.PiecesWithin(b, c.rows, len(c.Parts), rank, rows) })
}

func (c *Collective) bind(part func(rank int) graph.Pieces) {
	for r := range c.Parts {
		if c.rows.Layout.ByBatch() {
			c.Parts[r] = part(r)
		}
	}
}
