package graph

import (
	"testing"

	"pgregory.net/rapid"
)

// genField draws a field of 1 to 40 units.
func genField(t *rapid.T, name string) Field {
	unit := rapid.IntRange(1, 5).Draw(t, name+" unit")
	return Field{name, rapid.IntRange(1, 40).Draw(t, name+" units") * unit, unit}
}

// TestExtents checks ownership element by element: split fields are owned once
// each, in units, evenly; whole fields are held by all; a cover holds every group
// that the rank's share of heads needs and no other.
func TestExtents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 17).Draw(t, "ranks")
		a, b, c := genField(t, "a"), genField(t, "b"), genField(t, "c")
		perGroup := rapid.IntRange(1, 7).Draw(t, "heads per group")
		heads := c.Units() * perGroup
		typ := Type{F32, []Dim{Symbol(Tokens), Pack(a, b, c)},
			Layout{Sharded, 1, []Placement{{Kind: Split}, {Kind: Whole}, {Cover, heads}}}}
		if err := typ.Valid(); err != nil {
			t.Fatal(err)
		}
		owners := make([]int, a.Size)
		for r := range ranks {
			runs := typ.Extents(ranks, r)
			if runs[0].Len%a.Unit != 0 || runs[0].Len/a.Unit > a.Units()/ranks+1 || runs[0].Len/a.Unit < a.Units()/ranks {
				t.Fatalf("rank %d owns %v of %s", r, runs[0], a)
			}
			for i := runs[0].Start; i < runs[0].End(); i++ {
				owners[i]++
			}
			if runs[1] != (Run{a.Size, b.Size}) {
				t.Fatalf("rank %d holds %v of the whole field %s", r, runs[1], b)
			}
			checkCover(t, c, a.Size+b.Size, perGroup, Owned(heads, ranks, r), runs[2])
			if local := typ.Local(ranks, r).Dims[1].Len(); local != runs[0].Len+runs[1].Len+runs[2].Len {
				t.Fatalf("local size %d of runs %v", local, runs)
			}
		}
		for i, n := range owners {
			if n != 1 {
				t.Fatalf("element %d of %s has %d owners", i, a, n)
			}
		}
	})
}

func checkCover(t *rapid.T, f Field, start, perGroup int, heads, got Run) {
	need := map[int]bool{}
	for h := heads.Start; h < heads.End(); h++ {
		need[h/perGroup] = true
	}
	for g := range f.Units() {
		held := got.Start <= start+g*f.Unit && start+(g+1)*f.Unit <= got.End()
		if held != need[g] {
			t.Fatalf("heads %v, group %d of %s: held %v, needed %v (%v)", heads, g, f, held, need[g], got)
		}
	}
}
