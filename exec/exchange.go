package exec

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// exchange is a collective, or a change of layout, of one rank.
type exchange struct {
	op            string
	args, results []kernels.Tensor
	parts         []graph.Pieces // by rank: what it holds of the whole
	part          graph.Pieces   // what this rank holds
	acc32         bool           // sums are kept in f32 whatever travels
}

func newExchange(s *lowering.Schedule, st *lowering.Step, c *kernels.Call) exchange {
	x := exchange{op: st.Op.Name, args: c.Args, results: c.Results, acc32: st.Attrs.Text("acc") == "f32"}
	sharded := st.Results[0].Type
	if x.op == "all_gather" {
		sharded = st.Args[0].Type
	}
	for r := range s.Ranks {
		x.parts = append(x.parts, graph.PiecesOf(sharded, s.Ranks, r))
	}
	x.part = x.parts[s.Rank]
	return x
}

func (x *exchange) run(c comm) error {
	switch x.op {
	case "all_reduce":
		return c.allReduce(x)
	case "all_gather":
		return c.allGather(x)
	case "reduce_scatter":
		return c.reduceScatter(x)
	}
	panic("BUG: no rank knows how to " + x.op)
}

// relayout keeps the rank's part of a whole value, or makes the term of a rank
// that is not the first: zeros.
func (x *exchange) relayout() {
	from, to := &x.args[0], &x.results[0]
	if x.op == "term" {
		clear(to.F32)
		clear(to.U16)
		return
	}
	x.part.Each(from.Rows(), from.Cols, func(row, whole, partRow, part, n int) {
		copyElems(to, partRow*to.Stride+part, from, row*from.Stride+whole, n)
	})
}

// copyElems copies n elements between tensors of one format.
func copyElems(dst *kernels.Tensor, to int, src *kernels.Tensor, from, n int) {
	switch dst.DType {
	case graph.F32:
		copy(dst.F32[to:to+n], src.F32[from:from+n])
	case graph.I32:
		copy(dst.I32[to:to+n], src.I32[from:from+n])
	default:
		copy(dst.U16[to:to+n], src.U16[from:from+n])
	}
}
