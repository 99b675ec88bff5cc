package lowering

import "github.com/krait-ml/krait/graph"

// MaxTrial is the most tokens of a trial. A ring has the operands of that many.
const MaxTrial = 16

// Recurrence is a step that takes the tokens of a segment one after another: a scan, or a
// convolution over time. Numbers are those of its operands and results.
type Recurrence struct {
	Step     int // of Schedule.Steps
	Segments int
	States   []int // recurrent states, which it updates; none: it leaves that to a step after it
	Tokens   []int // operands with a row per token
	Rows     []int // and results
}

// Recurrences lists the recurrences of a schedule. Attention and what else reads positions is none:
// a row of theirs does not depend on how tokens are cut, and KV caches roll back by their lengths.
func (s *Schedule) Recurrences() (list []Recurrence) {
	for i := range s.Steps {
		st := &s.Steps[i]
		if st.Kind != Launch {
			continue
		}
		r, positions := Recurrence{Step: i, Segments: -1}, false
		for k := range st.Args {
			switch t := st.Args[k].Type; {
			case s.Buffers[st.Args[k].Buffer].Space == State:
				r.States = append(r.States, k)
			case len(t.Dims) == 0 || t.Dims[0].Sym == 0:
			case t.Dims[0].Sym == graph.Tokens:
				r.Tokens = append(r.Tokens, k)
			case t.Dims[0].Sym != graph.Seqs:
			case t.DType == graph.I32 && len(t.Dims) == 2: // i32[s 3]
				r.Segments = k
			case t.DType == graph.I32: // i32[s]
				positions = true
			}
		}
		for k := range st.Results {
			if d := st.Results[k].Type.Dims; len(d) > 0 && d[0].Sym == graph.Tokens {
				r.Rows = append(r.Rows, k)
			}
		}
		if r.Segments >= 0 && !positions {
			list = append(list, r)
		}
	}
	return list
}

// TrialBytes is the memory that the rank takes for each trial: spare states, which are those of a
// slot, and the ring: the operands of recurrences with states, and room for the results of one.
func (s *Schedule) TrialBytes() int64 {
	var operands, results int64
	for _, r := range s.Recurrences() {
		if len(r.States) == 0 {
			continue
		}
		st := &s.Steps[r.Step]
		for _, k := range r.Tokens {
			operands += s.rowBytes(&st.Args[k])
		}
		var rows int64
		for _, k := range r.Rows {
			rows += s.rowBytes(&st.Results[k])
		}
		results = max(results, rows)
	}
	return s.Bytes[State] + MaxTrial*(operands+results)
}

// rowBytes is the bytes of a row of what the rank has of a value.
func (s *Schedule) rowBytes(r *Ref) int64 {
	t := s.Local(r.Type)
	return int64(graph.RowElems(t.Dims) * t.DType.Bytes())
}
