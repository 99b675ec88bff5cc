package exec

// Exported is all that a sequence keeps between steps, on the host, as the ranks hold it:
// it goes on in engines whose ranks hold states in the same way. A [Snapshot] goes on in
// all of the model.
type Exported struct {
	Tokens int
	States *HostStates
	Rows   *HostRows
}

// Export copies all that a sequence keeps.
func (e *Engine) Export(slot int) (*Exported, error) {
	s, err := e.KeepStates(slot)
	if err != nil {
		return nil, err
	}
	defer s.Free()
	r, err := e.KeepRows(slot, 0, s.Tokens)
	if err != nil {
		return nil, err
	}
	defer r.Free()
	out := &Exported{Tokens: s.Tokens}
	if out.States, err = e.SaveStates(s); err == nil {
		out.Rows, err = e.SaveRows(r)
	}
	return out, err
}

// Import lets a sequence go on from what was exported. What does not fit this engine is an
// error, and leaves the sequence as it was.
func (e *Engine) Import(slot int, x *Exported) error {
	s, err := e.LoadStates(x.States)
	if err != nil {
		return err
	}
	defer s.Free()
	r, err := e.LoadRows(x.Rows)
	if err != nil {
		return err
	}
	defer r.Free()
	return e.Put(slot, s, r)
}
