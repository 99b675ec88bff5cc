package lowering

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Steps for outputs that a batch does not request need not run. Each step and each input says which
// outputs it is there for ([Step.For], [Buffer.For]); a batch that wants none of them leaves it
// out. Steps that update a state, events and collectives always run, and with them all that they
// need: so ranks take part in the same collectives whatever is wanted.

// OutputMask says of each output of a schedule whether a batch wants it.
type OutputMask []bool

// Want is the outputs of these names.
func (s *Schedule) Want(names ...string) (OutputMask, error) {
	w := make(OutputMask, len(s.Outputs))
	for _, name := range names {
		i := slices.IndexFunc(s.Outputs, func(o Output) bool { return o.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown output %q", name)
		}
		w[i] = true
	}
	return w, nil
}

// Needs reports whether what serves these outputs, a field For, is to run.
func (w OutputMask) Needs(serves []int) bool {
	return serves == nil || slices.ContainsFunc(serves, func(i int) bool { return w[i] })
}

// users are who needs a tensor: outputs, in order, or what always runs.
type users struct {
	always  bool
	outputs []int
}

func (u *users) add(v users) {
	u.always = u.always || v.always
	for _, i := range v.outputs {
		if at, found := slices.BinarySearch(u.outputs, i); !found {
			u.outputs = slices.Insert(slices.Clip(u.outputs), at, i)
		}
	}
}

// serves is the users as a field For; an input without a reader is asked for.
func (u *users) serves() []int {
	if u.always {
		return nil
	}
	return u.outputs
}

// findUsers works out what steps and inputs are there for, from the last step to the first. What
// lies over a tensor was made from it, so that who needs the one needs the other.
func (s *Schedule) findUsers() {
	need := make([]users, len(s.Buffers))
	for i, o := range s.Outputs {
		need[o.Ref.Buffer].add(users{outputs: []int{i}})
	}
	for i := range slices.Backward(s.Steps) {
		st := &s.Steps[i]
		if st.Kind == Record || st.Kind == Wait {
			continue
		}
		u := users{always: st.Kind == Collective || s.updates(st)}
		for _, r := range st.Results {
			u.add(need[r.Buffer])
		}
		u.always = u.always || u.outputs == nil // a step without readers runs
		for _, r := range st.Args {
			need[r.Buffer].add(u)
		}
		st.For = u.serves()
	}
	for i := range s.Buffers {
		if b := &s.Buffers[i]; b.Space == Input {
			b.For = need[i].serves()
		}
	}
}

// updates reports whether a step writes a state.
func (s *Schedule) updates(st *Step) bool {
	return slices.ContainsFunc(st.Results, func(r Ref) bool {
		space := s.Buffers[r.Buffer].Space
		return space == State || space == Cache
	})
}

// covers reports whether what serves some outputs runs whenever what serves others does.
func covers(serves, others []int) bool {
	if serves == nil || others == nil {
		return serves == nil
	}
	return !slices.ContainsFunc(others, func(i int) bool { return !slices.Contains(serves, i) })
}

// outputNames writes a field For as text does: " for logits, tokens".
func (s *Schedule) outputNames(serves []int) string {
	if serves == nil {
		return ""
	}
	var names []string
	for _, i := range serves {
		names = append(names, s.Outputs[i].Name)
	}
	return " for " + strings.Join(names, ", ")
}

// checkFor: a field For lists outputs in order.
func (s *Schedule) checkFor(serves []int) error {
	if serves != nil && len(serves) == 0 {
		return errors.New("it is for no output")
	}
	for k, i := range serves {
		if i < 0 || i >= len(s.Outputs) || k > 0 && i <= serves[k-1] {
			return fmt.Errorf("it is for the outputs %v of %d; they must be in order", serves, len(s.Outputs))
		}
	}
	return nil
}

// checkInputFor: of buffers, inputs alone may be for some outputs.
func (s *Schedule) checkInputFor(b *Buffer) error {
	if b.For != nil && b.Space != Input {
		return errors.New("it is for some outputs; only an input may be")
	}
	return s.checkFor(b.For)
}

// checkStepFor: what must always run does.
func (s *Schedule) checkStepFor(st *Step) error {
	switch {
	case st.For == nil:
		return nil
	case st.Kind != Launch && st.Kind != Relayout:
		return errors.New("it is for some outputs; events and collectives always run")
	case s.updates(st):
		return errors.New("it is for some outputs; what updates a state always runs")
	}
	return s.checkFor(st.For)
}

// chosen is the outputs of a step that chooses tokens, where the graph does; else all.
func (s *Schedule) chosen() OutputMask {
	if w, err := s.Want(graph.ChosenOutput); err == nil {
		return w
	}
	return slices.Repeat(OutputMask{true}, len(s.Outputs))
}
