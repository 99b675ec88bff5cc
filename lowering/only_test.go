package lowering

import "slices"

// Only is the schedule of batches that want these outputs and no others.
func (s *Schedule) Only(names ...string) (*Schedule, error) {
	w, err := s.Want(names...)
	if err != nil {
		return nil, err
	}
	out := *s
	out.Buffers, out.Steps, out.Outputs = nil, nil, nil
	out.Init = slices.Clone(s.Init)
	at := make([]int, len(s.Buffers)) // where a buffer is now
	out.Bytes[Input] = 0
	for i, b := range s.Buffers {
		if at[i] = len(out.Buffers); w.Needs(b.For) {
			out.Buffers = append(out.Buffers, b)
			if b.Space == Input {
				out.Bytes[Input] = max(out.Bytes[Input], b.Offset+b.Bytes)
			}
		}
	}
	for _, st := range s.Steps {
		if w.Needs(st.For) {
			out.Steps = append(out.Steps, st)
		}
	}
	for i, o := range s.Outputs {
		if w[i] {
			out.Outputs = append(out.Outputs, o)
		}
	}
	for _, steps := range [][]Step{out.Init, out.Steps} {
		for i := range steps {
			steps[i].Args, steps[i].Results = slices.Clone(steps[i].Args), slices.Clone(steps[i].Results)
		}
	}
	out.refs(func(r *Ref) { r.Buffer = at[r.Buffer] })
	out.findUsers()
	return &out, nil
}
