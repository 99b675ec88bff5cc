package exec

// CollectiveCount is what one collective of the schedule has done.
type CollectiveCount struct {
	Name  string // of its first result
	Kind  string // all_reduce, all_gather or reduce_scatter
	Calls int
	// Elems and Bytes are the payload of all calls: each operand whole and once.
	Elems, Bytes int64
}

// tally counts what a collective moved, by the tensors that it ran on: the plan is
// held against it.
type tally struct {
	calls        int
	elems, bytes int64
}

func (t *tally) count(st *step) {
	t.calls++
	tensors := st.call.Args
	if st.Op.Name == "all_gather" {
		tensors = st.call.Results
	}
	for i := range tensors {
		n := int64(tensors[i].Rows() * tensors[i].Cols)
		t.elems += n
		t.bytes += n * int64(tensors[i].DType.Bytes())
	}
}

// Collectives lists the collectives in the order of the schedule with what they
// did, counted as they ran, since New or [Engine.ResetCounts].
func (e *Engine) Collectives() []CollectiveCount {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.Collectives()
}

// ResetCounts lets [Engine.Collectives] count from 0 again.
func (e *Engine) ResetCounts() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.machine.ResetCounts()
}
