package cuda

import (
	"slices"

	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// collectives says by the layouts before and after how a collective is done: what rank i launches
// where ranks share a GPU, and how NCCL is called where each has its own.
var collectives = map[[2]graph.LayoutKind]struct {
	launches func(x *collective, i int, list []*collective) ([]kernels.Launch, error)
	stage    func(s *stager, from, to *kernels.Tensor) // of one operand
}{
	{graph.Partial, graph.Replicated}: {(*collective).sumForAll, (*stager).reduce},
	{graph.Sharded, graph.Replicated}: {(*collective).gather, (*stager).gather},
	{graph.Partial, graph.Sharded}:    {(*collective).sumOwn, (*stager).scatter},
}

// collective is one rank's side of a collective.
type collective struct {
	rank          *rank
	stream        lowering.Stream
	op            *graph.Op
	name          string
	args, results []kernels.Tensor
	parts         []graph.Pieces // by rank: what it holds of the whole
	wide          bool           // sums are kept in f32 whatever travels

	work          [][]action // by rank, where they share a GPU; with rank 0
	before, after []action   // around the calls of NCCL
	calls         []ncclCall
}

func (r *rank) collective(c *call) (*collective, error) {
	x := &collective{rank: r, stream: c.step.Stream, op: c.step.Op, name: c.step.Name, args: slices.Clone(c.on.Args), results: slices.Clone(c.on.Results), wide: c.step.Attrs.Text("acc") == "f32"}
	if x.op.To == graph.Replicated && x.op.From == graph.Sharded { // nothing is read
		for i := range x.args {
			x.args[i], x.results[i] = kernels.Raw(x.args[i]), kernels.Raw(x.results[i])
		}
	}
	sharded := c.step.Results[0].Type
	if c.step.Op.From == graph.Sharded {
		sharded = c.step.Args[0].Type
	}
	x.parts = c.parts(sharded, r.s.Ranks)
	f, ok := collectives[[2]graph.LayoutKind{x.op.From, x.op.To}]
	if !ok {
		panic("BUG: CUDA does not know " + x.op.Name)
	}
	if !r.machine.nccl {
		return x, nil
	}
	s := &stager{x: x, at: r.staging.ptr}
	for i := range x.args {
		f.stage(s, &x.args[i], &x.results[i])
	}
	return x, s.err
}

// onOneGPU issues a collective of ranks that share a GPU: all wait until every
// rank's operands are ready, kernels add or copy them, and all wait until no rank
// reads them any more.
func onOneGPU(list []*collective) error {
	work, err := list[0].shared(list)
	if err != nil {
		return err
	}
	in := list[0].stream
	if err := eachWaits(list, func(r *rank) error { return r.stream(in).Record(r.ready) }, func(r, of *rank) error { return r.stream(in).Wait(of.ready) }); err != nil {
		return err
	}
	for i, actions := range work {
		for k := range actions {
			if err := list[i].rank.put(&actions[k]); err != nil {
				return list[i].rank.where(err)
			}
		}
	}
	return eachWaits(list, func(r *rank) error { return r.stream(in).Record(r.done) }, func(r, of *rank) error { return r.stream(in).Wait(of.done) })
}

// eachWaits lets the stream of every rank wait for that of every other.
func eachWaits(list []*collective, record func(r *rank) error, wait func(r, of *rank) error) error {
	for _, x := range list {
		if err := record(x.rank); err != nil {
			return x.rank.where(err)
		}
	}
	for _, x := range list {
		for _, y := range list {
			if x != y {
				if err := wait(x.rank, y.rank); err != nil {
					return x.rank.where(err)
				}
			}
		}
	}
	return nil
}

// shared returns the launches of each rank in a collective of ranks that share a GPU. They are made
// once and kept with rank 0.
func (x *collective) shared(list []*collective) ([][]action, error) {
	if x.work != nil {
		return x.work, nil
	}
	work := make([][]action, len(list))
	for i, y := range list {
		launches, err := collectives[[2]graph.LayoutKind{y.op.From, y.op.To}].launches(y, i, list)
		if err != nil {
			return nil, y.rank.where(err)
		}
		if work[i], err = y.rank.actions(y.name, y.stream, launches); err != nil {
			return nil, y.rank.where(err)
		}
	}
	x.work = work
	return work, nil
}

// sumForAll lets rank 0 sum for all, so that all have the same bits.
func (x *collective) sumForAll(i int, list []*collective) ([]kernels.Launch, error) {
	if i > 0 {
		return nil, nil
	}
	return sumAll(list)
}

// gather lets each rank copy the parts of all.
func (x *collective) gather(_ int, list []*collective) ([]kernels.Launch, error) {
	var out []kernels.Launch
	for k := range x.results {
		for q, y := range list {
			for _, p := range x.parts[q].List {
				out = append(out, copyPiece(x.results[k], y.args[k], x.parts[q].Rows, p.Whole, p.Part, p.N)...)
			}
		}
	}
	return out, nil
}

// sumOwn lets each rank sum the part that it keeps.
func (x *collective) sumOwn(i int, list []*collective) ([]kernels.Launch, error) {
	var out []kernels.Launch
	for k := range x.args {
		for _, p := range x.parts[i].List {
			var args []kernels.Tensor
			for _, y := range list {
				args = append(args, piece(y.args[k], x.parts[i].Rows, p.Whole, p.N))
			}
			more, err := kernels.PeerSum([]kernels.Tensor{piece(x.results[k], x.parts[i].Rows, p.Part, p.N)}, args, x.wide)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
	}
	return out, nil
}

func sumAll(list []*collective) ([]kernels.Launch, error) {
	var out []kernels.Launch
	for k := range list[0].args {
		var args, results []kernels.Tensor
		for _, y := range list {
			args, results = append(args, y.args[k]), append(results, y.results[k])
		}
		more, err := kernels.PeerSum(results, args, list[0].wide)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// piece returns n columns of t, or n rows, that begin at from.
func piece(t kernels.Tensor, rows bool, from, n int) kernels.Tensor {
	if rows {
		t.Ptr += uint64(from * t.Stride * t.DType.Bytes())
		t.Dims[0] = n
		return t
	}
	t.Ptr += uint64(from * t.DType.Bytes())
	t.Cols = n
	return t
}

// copyPiece copies a piece of one tensor into another.
func copyPiece(to, from kernels.Tensor, rows bool, at, part, n int) []kernels.Launch {
	dst, src := piece(to, rows, at, n), piece(from, rows, part, n)
	if dst.Rows() == 0 || dst.Cols == 0 {
		return nil
	}
	return kernels.Copy(dst, src)
}

// relayout keeps the rank's part of a whole value, copies a field, or clears the term of a rank
// other than the first.
func (r *rank) relayout(c *call) []kernels.Launch {
	from, to := c.on.Args[0], c.on.Results[0]
	if to.Rows() == 0 || to.Cols == 0 {
		return nil
	}
	switch {
	case c.step.Op.Class == graph.View:
		return kernels.Copy(to, piece(from, false, r.s.Column(c.step), to.Cols))
	case c.step.Op.To == graph.Partial:
		return kernels.Zero(to)
	}
	var out []kernels.Launch
	parts := c.parts(c.step.Results[0].Type, r.s.Ranks)[r.s.Rank]
	for _, p := range parts.List {
		out = append(out, copyPiece(to, from, parts.Rows, p.Part, p.Whole, p.N)...)
	}
	return out
}

// elems is the number of elements of a tensor.
func elems(t *kernels.Tensor) int { return t.Rows() * t.Cols }
