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
	parts         []pieces // by rank: what it holds of the whole
	part          pieces   // what this rank holds
	acc32         bool     // sums are kept in f32 whatever travels
}

func newExchange(s *lowering.Schedule, st *lowering.Step, c *kernels.Call) exchange {
	x := exchange{op: st.Op.Name, args: c.Args, results: c.Results, acc32: st.Attrs.Text("acc") == "f32"}
	sharded := st.Results[0].Type
	if x.op == "all_gather" {
		sharded = st.Args[0].Type
	}
	for r := range s.Ranks {
		x.parts = append(x.parts, piecesOf(sharded, s.Ranks, r))
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
	x.part.each(from.Rows(), from.Cols, func(row, whole, partRow, part, n int) {
		copyElems(to, partRow*to.Stride+part, from, row*from.Stride+whole, n)
	})
}

// pieces says where what a rank holds of a tensor is in the whole: stretches of
// each row, or of the rows when the first axis is sharded.
type pieces struct {
	rows bool
	list []piece
}

type piece struct{ whole, part, n int }

// piecesOf works the pieces out from the extents of a type.
func piecesOf(t graph.Type, ranks, rank int) pieces {
	runs := t.Extents(ranks, rank)
	if runs == nil {
		runs = []graph.Run{{Start: 0, Len: graph.RowElems(t.Dims)}}
		t = graph.TypeOf(t.DType, graph.Symbol(graph.Tokens), graph.Size(runs[0].Len))
		t.Layout.Axis = 1
	}
	axis := t.Layout.Axis
	if t.Ragged() { // a row per sequence and token
		t.Dims = t.Dims[1:]
		axis--
	}
	outer, inner, held := 1, 1, 0
	for i, d := range t.Dims {
		if i > axis && axis > 0 {
			inner *= d.Len()
		} else if 0 < i && i < axis {
			outer *= d.Len()
		}
	}
	for _, r := range runs {
		held += r.Len
	}
	p := pieces{rows: axis == 0}
	for o := range outer {
		at := o * held
		for _, r := range runs {
			if r.Len > 0 {
				p.list = append(p.list, piece{(o*t.Dims[axis].Len() + r.Start) * inner, at * inner, r.Len * inner})
			}
			at += r.Len
		}
	}
	return p
}

// each visits stretches of n elements of a whole tensor of rows times cols: row
// and column in the whole, row and column in the part.
func (p *pieces) each(rows, cols int, f func(row, whole, partRow, part, n int)) {
	for _, x := range p.list {
		if !p.rows {
			for row := range rows {
				f(row, x.whole, row, x.part, x.n)
			}
			continue
		}
		for i := range x.n {
			f(x.whole+i, 0, x.part+i, 0, cols)
		}
	}
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
