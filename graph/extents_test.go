package graph

import (
	"slices"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
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
	prop.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 17).Draw(t, "ranks")
		a, b, c := genField(t, "a"), genField(t, "b"), genField(t, "c")
		perGroup := rapid.IntRange(1, 7).Draw(t, "heads per group")
		heads := c.Units() * perGroup
		typ := Type{DType: F32, Dims: []Dim{Symbol(Tokens), Pack(a, b, c)}, Layout: Layout{Sharded, 1, []Placement{{Kind: Split}, {Kind: Whole}, {Cover, heads}}}}

		if err := typ.Valid(); err != nil {
			t.Fatal(err)
		}
		owners := make([]int, a.Size)
		for r := range ranks {
			runs := typ.Extents(nil, ranks, r)
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

// TestEvenShare: it is the largest share of a batch of equal sequences.
func TestEvenShare(t *testing.T) {
	for ranks := 1; ranks <= 9; ranks++ {
		for seqs := 1; seqs <= 20; seqs++ {
			for _, tokens := range []int{1, 2, 7, 64, 200} {
				b := &Batch{Sizes: Sizes{Tokens: int64(seqs * tokens), Seqs: int64(seqs)}}
				for i := range seqs {
					b.Ends = append(b.Ends, (i+1)*tokens)
				}
				for _, place := range []PlaceKind{BySequence, InParts} {
					if got, want := EvenShare(place, int64(seqs), int64(tokens), int64(ranks)), b.LargestShare(place, ranks); got != want {
						t.Errorf("%d sequences of %d on %d ranks: %d, and a rank has %d", seqs, tokens, ranks, got, want)
					}
				}
			}
		}
	}
}

// TestRowExtents checks who has which row of a batch, row by row: each is one rank's; even
// shares differ by one at most; whole sequences are not cut, and no other end of a sequence
// is closer to an even share; no share is larger than what memory is planned for.
func TestRowExtents(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 17).Draw(t, "ranks")
		b := &Batch{Sizes: Sizes{Rows: rapid.Int64Range(0, 20).Draw(t, "rows")}}
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 40), 1, 9).Draw(t, "sequences") {
			b.Tokens, b.Seqs = b.Tokens+int64(n), b.Seqs+1
			b.Ends = append(b.Ends, int(b.Tokens))
		}
		b.Largest = b.LargestShare(BySequence, ranks)
		for _, sym := range []Sym{Tokens, Seqs, Rows} {
			rows := TypeOf(F32, Symbol(sym), Size(3))
			rows.Layout = SplitRows(Even)
			checkRows(t, b, rows, ranks)
			for r := range ranks {
				if n, least := rows.Extents(b, ranks, r)[0].Len, int(b.Of(sym))/ranks; n != least && n != least+1 {
					t.Fatalf("rank %d of %d has %d of %d rows", r, ranks, n, b.Of(sym))
				}
			}
		}
		rows := TypeOf(F32, Symbol(Tokens), Size(3))
		rows.Layout = SplitRows(BySequence)
		checkRows(t, b, rows, ranks)
		for r := range ranks {
			start := rows.Extents(b, ranks, r)[0].Start
			far := func(at int) int { return max(at*ranks-r*int(b.Tokens), r*int(b.Tokens)-at*ranks) }
			if start != 0 && !slices.Contains(b.Ends, start) {
				t.Fatalf("rank %d begins at token %d, inside of a sequence: %v", r, start, b.Ends)
			}
			for _, at := range append([]int{0}, b.Ends...) {
				if far(at) < far(start) {
					t.Fatalf("rank %d of %d begins at token %d; %d is closer to its share: %v", r, ranks, start, at, b.Ends)
				}
			}
		}
	})
}

func checkRows(t *rapid.T, b *Batch, rows Type, ranks int) {
	if err := rows.Valid(); err != nil {
		t.Fatal(err)
	}
	at, most := 0, int64(0)
	for r := range ranks {
		run := rows.Extents(b, ranks, r)[0]
		if run.Start != at || run.Len < 0 {
			t.Fatalf("rank %d of %d has rows %v of %s, those before it up to %d", r, ranks, run, rows, at)
		}
		at, most = run.End(), max(most, int64(run.Len))
		if got, want := rows.Local(ranks, r).Elems().At(b.Sizes), int64(3*run.Len); got < want {
			t.Fatalf("rank %d of %d has %d elements of %s, planned are %d", r, ranks, want, rows, got)
		}
	}
	if n := b.Of(rows.Dims[0].Sym); at != int(n) {
		t.Fatalf("%d ranks have %d rows of %d", ranks, at, n)
	}
	if planned := rows.Local(ranks, 0).Elems().At(b.Sizes); planned != 3*most {
		t.Fatalf("the largest share has %d elements, planned are %d", 3*most, planned)
	}
}

// TestRowsNeedABatch: to ask for rows without a batch is a bug.
func TestRowsNeedABatch(t *testing.T) {
	defer func() {
		if p := recover(); p != "BUG: which rows a rank has is asked for without a batch" {
			t.Errorf("panic %v", p)
		}
	}()
	rows := TypeOf(F32, Symbol(Tokens), Size(3))
	rows.Layout = SplitRows(Even)
	PiecesOf(rows, 2, 0)
}

// TestShare: a share is rounded up, and polynomials of shares evaluate as their parts do.
func TestShare(t *testing.T) {
	p := Share(Tokens, 4).Times(Const(3)).Plus(Var(Tokens)).Plus(Share(Tokens, 4)).Plus(Var(Largest))
	if got := p.String(); got != "t + 4·⌈t/4⌉ + l" {
		t.Error(got)
	}
	for tokens, want := range map[int64]int64{0: 0, 1: 1 + 4 + 1, 4: 4 + 4 + 4, 5: 5 + 8 + 5} {
		if got := p.At(Sizes{Tokens: tokens}); got != want || p.Float(Sizes{Tokens: tokens}) != float64(want) {
			t.Errorf("%d tokens: %d, want %d", tokens, got, want)
		}
	}
	if got := p.At(Sizes{Tokens: 5, Largest: 3}); got != 16 {
		t.Errorf("with a largest share of 3: %d", got)
	}
}
