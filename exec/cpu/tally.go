package cpu

import "github.com/krait-ml/krait/graph"

// tally counts what a collective moved, by the tensors that it ran on: the plan is held against it.
type tally struct {
	calls        int
	elems, bytes int64
}

// count counts a collective, or a piece of one.
func (t *tally) count(st *step, first bool) {
	if first {
		t.calls++
	}
	tensors := st.call.Args
	if st.passed != nil {
		tensors = st.passed.rows
	}
	if st.Op.From == graph.Sharded {
		tensors = st.call.Results
	}
	for i := range tensors {
		x := &tensors[i]
		t.elems += int64(x.Rows() * x.Cols)
		t.bytes += int64(x.Rows() * x.DType.RowBytes(x.Cols))
	}
}
