package graph

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestPartIn: what a rank holds of a part of a state is, element by element, where
// the field of the whole has it; for every field, axis and cut.
func TestPartIn(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var fields []Field
		for _, name := range []string{"x", "B", "C"}[:1+r.IntN(3)] {
			unit := 1 + r.IntN(3)
			fields = append(fields, Field{name, unit * r.IntN(5), unit})
		}
		dims := []Dim{Symbol(Seqs)}
		for range r.IntN(3) {
			dims = append(dims, Size(1+r.IntN(3)))
		}
		axis := len(dims)
		dims = append(dims, Pack(fields...))
		for range r.IntN(2) {
			dims = append(dims, Size(1+r.IntN(3)))
		}
		whole := TypeOf(F32, dims...)
		f := fields[r.IntN(len(fields))]
		p := &Part{"h", whole, axis, f.Name}
		typ := TypeOf(F32, slices.Clone(dims)...)
		typ.Dims[axis] = Units(f.Size, f.Unit)
		if err := p.Valid(typ); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		// The numbers of the elements of the whole that the field has, in its order.
		_, _, start, _ := whole.Dims[axis].Field(f.Name)
		var want []int
		for i := range RowElems(whole.Dims) {
			at := i
			for _, d := range slices.Backward(whole.Dims[axis+1:]) {
				at /= d.Len()
			}
			if at %= whole.Dims[axis].Len(); start <= at && at < start+f.Size {
				want = append(want, i)
			}
		}
		typ.Layout = SplitOn(axis, 1)
		ranks := 1 + r.IntN(4)
		got := slices.Repeat([]int{-1}, len(want))
		for rank := range ranks {
			held := PiecesOf(typ, ranks, rank)
			index := map[int]int{} // of the rank's elements in the whole
			in := p.In(held)
			in.Each(1, 0, func(_, whole, _, part, n int) {
				for i := range n {
					index[part+i] = whole + i
				}
			})
			held.Each(1, 0, func(_, at, _, part, n int) {
				for i := range n {
					got[at+i] = index[part+i]
				}
			})
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: field %s of %s on %d ranks: %v, want %v", seed, f.Name, whole, ranks, got, want)
		}
	}
}

const partText = `graph "g" stage=unpacked ranks=1
input %seg : i32[s 3]
input %x : f32[t 4/1]
param @w : f32[4/1 2]

block layers.0
  state %c.x : f32[s 4/1 1] field(1: x) of %c : f32[s x:4/1|B:2/1 1]
  state %c.B : f32[s 2/1 1] field(1: B) of %c : f32[s x:4/1|B:2/1 1]
  %y %n = conv1d %/x @/w %c.x %/seg : f32[t 4/1], f32[s 4/1 1]
`

// TestPartText: parts survive text, in and out of blocks, and what contradicts itself is an error.
func TestPartText(t *testing.T) {
	text := strings.Replace(partText, "  state %c.B : f32[s 2/1 1] field(1: B) of %c : f32[s x:4/1|B:2/1 1]\n", "", 1)
	g, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(g); err != nil {
		t.Fatal(err)
	}
	if got := Print(g); got != text {
		t.Errorf("printed as\n%s", got)
	}
	if p := g.Leaves("state")[0].Part; p == nil || p.State != "layers.0.c" || p.Field != "x" {
		t.Errorf("the part is %v", p)
	}
	cut, err := Extract(g, "layers.0")
	if err != nil || !cut.Leaves("state")[0].Part.Equal(g.Leaves("state")[0].Part) {
		t.Errorf("a block loses the part: %v", err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"field(1: x)", "field(1: z)", "has no field z"},
		{"field(1: x)", "field(0: x)", "no packed axis 0"},
		{"field(1: x)", "field(7: x)", "no packed axis 7"},
		{"field(1: x)", "field(1: B)", "field B of layers.0.c is f32[s 2/1 1]"},
		{"of %c : f32[s x:4/1", "of %c : f32[s x:8/1", "is f32[s 8/1 1]"},
		{"stage=unpacked", "stage=model", "nothing is taken apart yet"},
	} {
		g, err := Parse(strings.Replace(text, c.old, c.new, 1))
		if err == nil {
			err = Check(g)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: error %v, want %s", c.new, c.old, err, c.want)
		}
	}
	for _, c := range []struct{ old, new, want string }{
		{"%c.B : f32[s 2/1 1] field(1: B)", "%c.B : f32[s 4/1 1] field(1: x)", "field x of layers.0.c is there already"},
		{"field(1: B) of %c : f32[s x:4/1|B:2/1 1]", "field(1: B) of %c : f32[s x:5/1|B:2/1 1]", "layers.0.c.x says"},
		{"%c.B : f32[s 2/1 1] field(1: B) of %c : f32[s x:4/1|B:2/1 1]", "%c : f32[s x:4/1|B:2/1 1]", "which is there as a whole"},
	} {
		g, err := Parse(strings.Replace(partText, c.old, c.new, 1))
		if err == nil {
			err = Check(g)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: error %v, want %s", c.new, c.old, err, c.want)
		}
	}
}
