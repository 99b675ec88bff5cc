package validate

import (
	"fmt"
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// difference is how far a value is from the source.
type difference struct {
	far   float64 // the largest difference, over the source's largest magnitude
	rank  int     // which has it; -1: the sum over ranks
	wrong string  // in what else it is wrong
}

// compare holds what each of the ranks has of a value of type t against the whole
// of the source: every copy that a rank has, or the sum.
func compare(l *lot, t graph.Type, ranks int, parts []kernels.Tensor, want *kernels.Tensor) difference {
	largest := 0.0
	for _, x := range want.F64 {
		largest = max(largest, math.Abs(x))
	}
	if largest == 0 {
		largest = 1
	}
	d := difference{}
	see := func(rank int, x, want float64) {
		if far := math.Abs(x-want) / largest; math.IsNaN(far) || math.IsInf(far, 0) {
			d = difference{math.Inf(1), rank, fmt.Sprintf("has %g", x)}
		} else if far > d.far {
			d.far, d.rank = far, rank
		}
	}
	if t.Layout.Kind == graph.Partial {
		for i, w := range want.F64 {
			x := 0.0
			for _, p := range parts {
				x += p.F64[i]
			}
			see(-1, x, w)
		}
		return d
	}
	held := make([]bool, len(want.F64))
	for r := range parts {
		pieces := graph.PiecesIn(l.Batch, t, ranks, r)
		pieces.Each(lines(want, t), want.Cols, func(row, whole, partRow, part, n int) {
			for i := range n {
				at := row*want.Cols + whole + i
				held[at] = true
				see(r, parts[r].F64[partRow*parts[r].Cols+part+i], want.F64[at])
			}
		})
	}
	if i := slices.Index(held, false); i >= 0 && d.wrong == "" {
		d = difference{math.Inf(1), -1, fmt.Sprintf("no rank has element %d of row %d", i%want.Cols, i/want.Cols)}
	}
	return d
}

// text says in what a value differs.
func (d difference) text(ranks int) string {
	where := ""
	switch {
	case ranks == 1:
	case d.rank < 0 && d.wrong == "":
		where = " in the sum over ranks"
	case d.rank >= 0:
		where = fmt.Sprintf(" on rank %d", d.rank)
	}
	if d.wrong != "" {
		return d.wrong + where
	}
	return fmt.Sprintf("differs from the source by %.3g of its largest magnitude%s", d.far, where)
}
