package graph

import (
	"errors"
	"fmt"
)

// Part says of which state of the model a state is a field, where a pass took
// that apart. The model's state keeps its name and its type, whatever became of it.
type Part struct {
	State string // the model's name of the whole
	Type  Type   // of the whole, without a layout
	Axis  int    // the packed axis
	Field string // the field of it that the part is
}

// field is where the part's field begins on its axis, and how long it is, in
// elements of a row; all is the same of the whole axis.
func (p *Part) field() (start, size, all int) {
	inner := 1
	for _, d := range p.Type.Dims[p.Axis+1:] {
		inner *= d.Len()
	}
	f, _, at, _ := p.Type.Dims[p.Axis].Field(p.Field)
	return at * inner, f.Size * inner, p.Type.Dims[p.Axis].Len() * inner
}

// In says where pieces of the part are in the whole state.
func (p *Part) In(part Pieces) Pieces {
	var out Pieces
	start, size, all := p.field()
	for _, s := range part.List {
		for n := 0; s.N > 0; s = (Stretch{s.Whole + n, s.Part + n, s.N - n}) {
			n = min(s.N, size-s.Whole%size)
			out.List = append(out.List, Stretch{s.Whole/size*all + start + s.Whole%size, s.Part, n})
		}
	}
	return out
}

// Equal reports whether two parts are the same; nil is all of a state.
func (p *Part) Equal(q *Part) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.State == q.State && p.Type.Equal(q.Type) && p.Axis == q.Axis && p.Field == q.Field
}

// String writes the part as graph text does outside of blocks, with a space before it.
func (p *Part) String() string { return p.text("%" + p.State) }

func (p *Part) text(state string) string {
	return fmt.Sprintf(" field(%d: %s) of %s : %s", p.Axis, p.Field, state, p.Type)
}

// Valid checks that t can be the type of the part.
func (p *Part) Valid(t Type) error {
	if err := p.Type.Valid(); err != nil {
		return err
	}
	if p.Axis < 1 || p.Axis >= len(p.Type.Dims) || p.Type.Layout.Kind != Replicated {
		return fmt.Errorf("%s has no packed axis %d", p.Type, p.Axis)
	}
	f, _, _, ok := p.Type.Dims[p.Axis].Field(p.Field)
	if !ok {
		return fmt.Errorf("axis %d of %s has no field %s", p.Axis, p.Type, p.Field)
	}
	want := TypeOf(p.Type.DType, append([]Dim(nil), p.Type.Dims...)...)
	want.Dims[p.Axis] = Units(f.Size, f.Unit)
	if !TypeOf(t.DType, t.Dims...).Equal(want) {
		return fmt.Errorf("is %s; field %s of %s is %s", t, p.Field, p.State, want)
	}
	return nil
}

// checkParts: what is left of a state that was taken apart are different fields of
// one axis, of which all say the same, and the state itself is gone.
func checkParts(states []*Node, fail func(where, format string, args ...any)) {
	first, seen := map[string]*Node{}, map[string]bool{}
	for _, n := range states {
		if n.Part == nil {
			first[n.Name()] = n
		}
	}
	for _, n := range states {
		if n.Part == nil {
			continue
		}
		p, key := n.Part, n.Part.State+" "+n.Part.Field
		switch m := first[p.State]; {
		case m == nil:
			first[p.State] = n
		case m.Part == nil:
			fail(n.Name(), "state: is a field of %s, which is there as a whole", p.State)
		case m.Part.Axis != p.Axis || !m.Part.Type.Equal(p.Type):
			fail(n.Name(), "state: says that %s is %s; %s says %s", p.State, p.Type, m.Name(), m.Part.Type)
		case seen[key]:
			fail(n.Name(), "state: field %s of %s is there already", p.Field, p.State)
		}
		seen[key] = true
	}
}

// part reads field(1: x) of %conv : f32[s x:256|B:32 3], or nothing.
func (s *scanner) part(block string) *Part {
	if !s.eat("field(") {
		return nil
	}
	out := &Part{Axis: s.int()}
	s.expect(":")
	if out.Field = s.word(""); out.Field == "" {
		panic(errors.New("a field without a name"))
	}
	s.expect(")")
	s.expect("of")
	out.State, _ = s.name(block, "%")
	s.expect(":")
	out.Type = s.typ()
	return out
}
