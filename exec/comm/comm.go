// Package comm runs collectives between the ranks of a model. A [World] joins them: [Local] for
// ranks that share memory, a [Group] for ranks in several processes. Devices with links of their
// own, such as GPUs, use those for collectives of their memory.
package comm

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// World joins the ranks of a model.
type World interface {
	// Ranks is the number of ranks, in all processes.
	Ranks() int
	// Join returns the Comm of a rank. Each rank joins once, in the process that runs it.
	Join(rank int) (Comm, error)
}

// Comm runs collectives for one rank. The goroutine that runs the rank calls its methods, except
// Stop.
type Comm interface {
	// Begin begins a step, and clears the error of the last. All ranks run the same steps.
	Begin()
	// Run takes part in a collective. The ranks of a group run the same collectives in the same
	// order; groups of one world run theirs at the same time. Run returns when the rank's results
	// are complete and its operands may be overwritten, or with the error for which the step was
	// stopped.
	Run(c *Collective) error
	// Stop ends the step on all ranks. The first of several errors counts.
	Stop(err error)
	// Stopped reports whether the step was stopped.
	Stopped() bool
	// Err is why the step was stopped, nil if it was not.
	Err() error
}

// Collective is one rank's side of a collective.
type Collective struct {
	Op *graph.Op
	// Group is the ranks that take part; empty: all of the world.
	Group         lowering.Group
	Args, Results []kernels.Tensor
	// Parts are the pieces of the sharded side that each rank of the group has. Several operands
	// are sharded alike.
	Parts []graph.Pieces
	At    int // the rank's place among them
	// F32 accumulates sums in f32, whatever the payload's format.
	F32 bool

	rows graph.Type // the sharded type, if its sharding depends on the batch
}

// Of returns the rank's side of a step of its schedule, with the tensors of a call that is filled
// in for every batch.
func Of(s *lowering.Schedule, st *lowering.Step, c *kernels.Call) Collective {
	x := Collective{Op: st.Op, Args: c.Args, Results: c.Results, F32: st.Attrs.Text("acc") == "f32"}
	if st.Kind == lowering.Collective {
		x.Group = s.Group(st)
	}
	if lowering.Passes(st.Op) {
		return x
	}
	sharded := st.Results[0].Type
	if st.Op.From == graph.Sharded {
		sharded = st.Args[0].Type
	}
	sharded, ranks, at := s.ShareOf(st, sharded)
	x.At = at
	if sharded.Layout.ByBatch() {
		x.rows, x.Parts = sharded, make([]graph.Pieces, ranks)
		return x
	}
	for r := range ranks {
		x.Parts = append(x.Parts, graph.PiecesOf(sharded, ranks, r))
	}
	return x
}

// Bind sets the parts for a batch, if they depend on it.
func (c *Collective) Bind(b *graph.Batch) {
	c.bind(func(rank int) graph.Pieces { return graph.PiecesIn(b, c.rows, len(c.Parts), rank) })
}

// BindPiece is Bind for a piece of the batch's rows.
func (c *Collective) BindPiece(b *graph.Batch, rows graph.Run) {
	c.bind(func(rank int) graph.Pieces { return graph.PiecesWithin(b, c.rows, len(c.Parts), rank, rows) })
}

// group is the ranks that take part, of a world of some ranks.
func (c *Collective) group(ranks int) lowering.Group {
	if c.Group.Size == 0 {
		return lowering.Group{Stride: 1, Size: ranks}
	}
	return c.Group
}

// way is how a collective is done: by the layouts before and after, or of a rank alone with
// another.
type way struct {
	from, to graph.LayoutKind
	passes   bool
}

// way returns how the collective is done.
func (c *Collective) way() way {
	if lowering.Passes(c.Op) {
		return way{passes: true}
	}
	return way{from: c.Op.From, to: c.Op.To}
}

func (c *Collective) bind(part func(rank int) graph.Pieces) {
	for r := range c.Parts {
		if c.rows.Layout.ByBatch() {
			c.Parts[r] = part(r)
		}
	}
}
