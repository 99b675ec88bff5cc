package lowering_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// how says how a model is compiled.
type how struct {
	dir, strategy, states string
	ranks                 int
	context, stages       int // along CP beside as many ranks, and pipeline stages; 0: one
}

// text says on which ranks.
func (h how) text() string {
	return fmt.Sprintf("tp=%d,cp=%d,pp=%d %s", h.ranks, max(1, h.context), max(1, h.stages), h.strategy)
}

// keepsOf is what a model keeps, compiled so; ok is false where the strategy is not for it.
func keepsOf(t *testing.T, h how) (k *lowering.StateLayout, ok bool) {
	t.Helper()
	_, g, err := checkpoint.Describe(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	s := passes.Sharding{Ranks: h.ranks * max(1, h.context), Context: h.context, Stages: h.stages}
	o, err := s.Options()
	if err != nil {
		t.Fatal(err)
	}
	if o.Strategy, err = passes.FindStrategy(h.strategy); err != nil {
		t.Fatal(err)
	}
	if o.States, err = passes.ParseStates(h.states); err != nil {
		t.Fatal(err)
	}
	if g, err = passes.Compile(g, o); err != nil {
		return nil, false
	}
	first, err := s.Pipeline().Cut(g)
	if err != nil {
		return nil, false // fewer blocks than stages
	}
	list, err := lowering.LowerStages(g, 0, lowering.Stages{First: first})
	if err != nil {
		return nil, false // a state that several stages use
	}
	if k, err = lowering.StateLayoutOf(list); err != nil {
		t.Fatal(err)
	}
	return k, true
}

// TestReads: between layouts of 200 random pairs, each byte that a rank keeps comes once,
// to its place, and no other. The share of a rank is found element by element here, and
// whole states are cut so.
func TestReads(t *testing.T) {
	const seed = 16
	pairs := 80
	if goldens.All() {
		pairs = 200
	}
	r := rand.New(rand.NewPCG(seed, 2))
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	each := (pairs + len(folders) - 1) / len(folders)
	for _, dir := range folders {
		layouts := layoutsOf(t, r, dir, 4)
		for range each {
			a, b := layouts[r.IntN(len(layouts))], layouts[r.IntN(len(layouts))]
			x := pair{t: t, from: lowering.End{States: a.keeps, PageTokens: 1 + r.IntN(20)}, to: lowering.End{States: b.keeps, PageTokens: 1 + r.IntN(20)}}
			x.tokens = 1 + r.IntN(40)
			x.have = r.IntN(x.tokens + 1)
			x.what = fmt.Sprintf("seed %d: %s, states %q: %s, pages of %d, to %s, pages of %d; %d tokens, %d there", seed,
				filepath.Base(dir), a.states, a.text(), x.from.PageTokens, b.text(), x.to.PageTokens, x.tokens, x.have)
			x.check()
		}
	}
}

type layout struct {
	how
	keeps *lowering.StateLayout
}

// layoutsOf draws ways to lay a model over ranks, with states in the same formats.
func layoutsOf(t *testing.T, r *rand.Rand, dir string, n int) (list []layout) {
	t.Helper()
	formats := []string{"", "conv=bf16", "conv=f16,cache=bf16", "conv=bf16,cache=f16,ssm=bf16", "conv=e4m3,cache=e4m3"}
	states := formats[r.IntN(len(formats))]
	if _, ok := keepsOf(t, how{dir: dir, strategy: "channel", states: states, ranks: 1}); !ok {
		states = "" // the model has no such kind
	}
	for tried := 0; len(list) < n; tried++ {
		h := how{dir: dir, strategy: passes.Strategies[r.IntN(len(passes.Strategies))].Name, states: states, ranks: 1 + r.IntN(8)}
		if r.IntN(2) == 0 {
			h.ranks, h.context, h.stages = 1+r.IntN(4), 1+r.IntN(3), 1+r.IntN(3)
		}
		if k, ok := keepsOf(t, h); ok {
			list = append(list, layout{h, k})
		}
		if tried > 10*n {
			t.Fatalf("%s: only %d of %d layouts compile", dir, len(list), tried)
		}
	}
	return list
}

// pair is a transfer that is held against cutting whole states.
type pair struct {
	t            *testing.T
	what         string
	from, to     lowering.End
	tokens, have int
	there        map[string][]bool // elements of states of which the sender has something
}

// memory is the regions of a rank: bytes, and how often each was written.
type memory map[int]struct {
	data    []byte
	written []int
}

func (x *pair) check() {
	x.t.Helper()
	x.there = map[string][]bool{}
	source := x.cut(&x.from, 0, nil)
	transfer, err := lowering.NewTransfer(x.from, x.to)
	if err != nil {
		x.t.Fatal(x.what, err)
	}
	dest := x.cut(&x.to, x.have, x.there)
	x.volumes(transfer, dest)
	for rank := range dest {
		reads, err := transfer.Reads(rank, x.tokens, x.have)
		if err != nil {
			x.t.Fatal(x.what, err)
		}
		want := dest[rank]
		got := memory{}
		for region, m := range want {
			m.data, m.written = make([]byte, len(m.data)), make([]int, len(m.data))
			got[region] = m
		}
		for _, r := range reads {
			from, to := source[r.From][r.Source.Region], got[r.Dest.Region]
			r.Each(func(a, b int64) {
				copy(to.data[b:b+r.Bytes], from.data[a:])
				for i := range r.Bytes {
					to.written[b+i]++
				}
			})
		}
		for region, m := range want {
			if i := mismatch(m.written, got[region].written); i >= 0 {
				x.t.Fatalf("%s: rank %d, region %d: byte %d comes %d times, want %d", x.what, rank, region, i, got[region].written[i], m.written[i])
			}
			if !slices.Equal(m.data, got[region].data) {
				x.t.Fatalf("%s: rank %d, region %d: other bytes than those of the state", x.what, rank, region)
			}
		}
	}
}

// volumes holds the sums against what ranks keep, and have not yet.
func (x *pair) volumes(transfer *lowering.Transfer, dest []memory) {
	x.t.Helper()
	list, reads, err := transfer.Volumes(x.tokens, x.have)
	if err != nil {
		x.t.Fatal(x.what, err)
	}
	moved, pieces := make([]int64, len(dest)), make([]int, len(dest))
	for _, v := range list {
		moved[v.To] += v.Bytes
		pieces[v.To] += v.Reads
		if v.Whole < v.Bytes || v.Bytes < 1 {
			x.t.Errorf("%s: %+v", x.what, v)
		}
	}
	for rank, m := range dest {
		want := int64(0)
		for _, region := range m {
			for _, n := range region.written {
				want += int64(n)
			}
		}
		if moved[rank] != want || pieces[rank] != len(reads[rank]) {
			x.t.Errorf("%s: rank %d gets %d bytes in %d of %d pieces, and keeps %d", x.what, rank, moved[rank], pieces[rank], len(reads[rank]), want)
		}
	}
}

func mismatch(a, b []int) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// cut cuts whole states, whose bytes say where they are in them, for every rank. Rows of
// tokens before one are left out, and so is what is not there; else it says what is.
func (x *pair) cut(e *lowering.End, have int, there map[string][]bool) []memory {
	var out []memory
	for rank := range e.States.Ranks {
		m := memory{}
		region := func(i int, bytes int64) {
			if _, ok := m[i]; !ok && bytes > 0 {
				m[i] = struct {
					data    []byte
					written []int
				}{make([]byte, bytes), make([]int, bytes)}
			}
		}
		states, run := e.States.States(rank)
		pages, page := e.States.Page(rank, e.PageTokens)
		region(0, run)
		for i := range e.States.Buffers {
			b := &e.States.Buffers[i]
			name, _ := b.State()
			size := b.Type.DType.Bytes()
			list := ofRank(e.States, b, rank)
			put := func(region, at, token int) {
				for k, element := range list {
					if there == nil {
						x.seen(name, element)
					} else if seen := there[name]; element >= len(seen) || !seen[element] {
						continue
					}
					for j := range size {
						m[region].data[at+k*size+j] = mark(name, token, element, j)
						m[region].written[at+k*size+j]++
					}
				}
			}
			if !b.Cache() {
				put(0, int(states[i]), 0)
				continue
			}
			for token := have; token < x.tokens; token++ {
				n := token / e.PageTokens
				region(1+n, page)
				put(1+n, int(pages[i])+token%e.PageTokens*len(list)*size, token)
			}
		}
		out = append(out, m)
	}
	return out
}

func (x *pair) seen(name string, element int) {
	for len(x.there[name]) <= element {
		x.there[name] = append(x.there[name], false)
	}
	x.there[name][element] = true
}

// mark is a byte of an element of a row of a state. It is never 0.
func mark(name string, token, element, i int) byte {
	h := fnv.New32a()
	h.Write([]byte(name))
	n := uint64(h.Sum32())*0x9e3779b97f4a7c15 + uint64(token)*0xbf58476d1ce4e5b9 + uint64(element)*0x94d049bb133111eb + uint64(i)
	n ^= n >> 31
	return 1 + byte(n*0xd6e8feb86659fd93>>40)%255
}

// ofRank is owned for a rank of a mesh: along TP first, then along CP, then by stage.
func ofRank(k *lowering.StateLayout, b *lowering.StateBuffer, rank int) []int {
	tp := k.Ranks / max(1, k.Stages) / max(1, k.Copies)
	if stage := rank / (tp * max(1, k.Copies)); stage != b.Stage {
		return nil
	}
	return owned(b, tp, rank%tp)
}

// owned lists what a rank has of a row of a state of the model, in the order in which it
// has it: element by element, from what split, covering and whole mean.
func owned(b *lowering.StateBuffer, ranks, rank int) (list []int) {
	dims, first := b.Type.Dims, 1
	if b.Cache() {
		first = 2
	}
	axis, place := -1, []graph.Placement(nil)
	if b.Type.Layout.Kind == graph.Sharded {
		axis, place = b.Type.Layout.Axis, b.Type.Layout.Place
	}
	lists := make([][]int, len(dims)) // indexes of each axis that it has
	for i := first; i < len(dims); i++ {
		at := 0
		for j, f := range dims[i].Fields {
			for k := range f.Size {
				if i != axis || has(place[j], f, k/f.Grain(), ranks, rank) {
					lists[i] = append(lists[i], at+k)
				}
			}
			at += f.Size
		}
	}
	whole := dims
	if b.Part != nil { // indexes of the whole state
		whole = b.Part.Type.Dims
		at := 0
		for _, f := range whole[b.Part.Axis].Fields {
			if f.Name == b.Part.Field {
				break
			}
			at += f.Size
		}
		for k := range lists[b.Part.Axis] {
			lists[b.Part.Axis][k] += at
		}
	}
	list = []int{0}
	for i := first; i < len(dims); i++ {
		var next []int
		for _, e := range list {
			for _, k := range lists[i] {
				next = append(next, e*whole[i].Len()+k)
			}
		}
		list = next
	}
	return list
}

// has reports whether a rank has a unit of a field.
func has(p graph.Placement, f graph.Field, unit, ranks, rank int) bool {
	owner := func(unit, units int) bool { return rank*units/ranks <= unit && unit < (rank+1)*units/ranks }
	switch p.Kind {
	case graph.Split:
		return owner(unit, f.Units())
	case graph.Cover: // a head that it has is of the group
		for head := range p.Of {
			if head/(p.Of/f.Units()) == unit && owner(head, p.Of) {
				return true
			}
		}
		return false
	}
	return true
}

// TestMovesRefuse: what is of another model, or in other formats, does not move.
func TestMovesRefuse(t *testing.T) {
	dir := "../testdata/golden/"
	one := func(name, states string) lowering.End {
		k, ok := keepsOf(t, how{dir: dir + name, strategy: "channel", states: states, ranks: 2})
		if !ok {
			t.Fatal(name, "does not compile")
		}
		return lowering.End{States: k, PageTokens: 16}
	}
	for _, x := range []struct {
		from, to lowering.End
		want     string
	}{
		{one("zamba2", ""), one("zamba2", "conv=bf16"), "in f32, and the receiver in bf16: open both with the same formats"},
		{one("zamba2", ""), one("bamba", ""), "different models"},
		{one("mamba2-g1", ""), one("mamba2-g4", ""), "different models"},
		{lowering.End{States: one("jamba", "").States}, one("jamba", ""), "pages of 0 and of 16 tokens"},
	} {
		if _, err := lowering.NewTransfer(x.from, x.to); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v, want %s", err, x.want)
		}
	}
	same := one("jamba", "")
	x, err := lowering.NewTransfer(same, same)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][3]int{{2, 5, 0}, {-1, 5, 0}, {0, 5, 6}, {0, 5, -1}, {0, 0, 0}} {
		if _, err := x.Reads(bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("rank %d reads %d tokens, of which %d are there, without an error", bad[0], bad[1], bad[2])
		}
	}
}

// TestReadsOfAny is TestReads for layouts that no strategy gives: fields of a packed state
// apart or together, split, covered or whole, and some nowhere.
func TestReadsOfAny(t *testing.T) {
	const seed = 17
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range 300 {
		m := drawStates(r)
		a, b := m.lay(t, r), m.lay(t, r)
		x := pair{t: t, from: lowering.End{States: a, PageTokens: 1 + r.IntN(9)}, to: lowering.End{States: b, PageTokens: 1 + r.IntN(9)}}
		x.tokens = 1 + r.IntN(20)
		x.have = r.IntN(x.tokens + 1)
		x.what = fmt.Sprintf("seed %d, case %d: from\n%s to\n%s pages of %d and %d, %d tokens, %d there", seed, i, a, b, x.from.PageTokens, x.to.PageTokens, x.tokens, x.have)
		x.check()
	}
}

// states are those of a model.
type states []graph.Type

func drawStates(r *rand.Rand) (out states) {
	formats := []graph.DType{graph.F32, graph.F16, graph.BF16, graph.F8}
	for range 1 + r.IntN(3) {
		packed := graph.Dim{}
		for i := range 1 + r.IntN(3) {
			unit := 1 + r.IntN(3)
			packed.Fields = append(packed.Fields, graph.Field{Name: string(rune('x' + i)), Size: unit * (1 + r.IntN(6)), Unit: unit})
		}
		d := formats[r.IntN(len(formats))]
		switch r.IntN(3) {
		case 0:
			out = append(out, graph.TypeOf(d, graph.Symbol(graph.Seqs), packed, graph.Size(1+r.IntN(3))))
		case 1:
			out = append(out, graph.TypeOf(d, graph.Symbol(graph.Seqs), graph.Size(1+r.IntN(3)), packed))
		case 2:
			out = append(out, graph.TypeOf(d, graph.Symbol(graph.Seqs), graph.Symbol(graph.Cached), graph.Units(packed.Len(), 1)))
		}
	}
	return out
}

// lay lays states over some ranks, and takes the way by text.
func (m states) lay(t *testing.T, r *rand.Rand) *lowering.StateLayout {
	t.Helper()
	k := &lowering.StateLayout{Ranks: 1 + r.IntN(8)}
	for i, typ := range m {
		name := fmt.Sprint("state", i)
		axis := slices.IndexFunc(typ.Dims, func(d graph.Dim) bool { return len(d.Fields) > 1 })
		if axis < 0 || r.IntN(2) == 0 {
			k.Buffers = append(k.Buffers, lowering.StateBuffer{Name: name, Type: place(r, typ, max(axis, len(typ.Dims)-1))})
			continue
		}
		for _, f := range typ.Dims[axis].Fields {
			if r.IntN(3) == 0 && f.Name != typ.Dims[axis].Fields[0].Name {
				continue // nothing reads it
			}
			part := graph.TypeOf(typ.DType, slices.Clone(typ.Dims)...)
			part.Dims[axis] = graph.Units(f.Size, f.Unit)
			k.Buffers = append(k.Buffers, lowering.StateBuffer{Name: name + "." + f.Name, Type: place(r, part, axis),
				Part: &graph.Part{State: name, Type: typ, Axis: axis, Field: f.Name}})
		}
	}
	again, err := lowering.ParseStateLayout(k.String())
	if err != nil {
		t.Fatalf("%v in\n%s", err, k)
	}
	if again.String() != k.String() {
		t.Fatalf("%s comes back as\n%s", k, again)
	}
	return again
}

// place lays a state over ranks along an axis, or not.
func place(r *rand.Rand, t graph.Type, axis int) graph.Type {
	if r.IntN(5) == 0 {
		return t
	}
	var places []graph.Placement
	for _, f := range t.Dims[axis].Fields {
		p := graph.Placement{Kind: graph.Split}
		switch r.IntN(4) {
		case 0:
			p = graph.Placement{Kind: graph.Whole}
		case 1:
			p = graph.Placement{Kind: graph.Cover, Of: f.Units() * (1 + r.IntN(3))}
		}
		places = append(places, p)
	}
	t.Layout = graph.Layout{Kind: graph.Sharded, Axis: axis, Place: places}
	return t
}

// TestParseKeeps: what is no such text is an error, and what is has bounds.
func TestParseKeeps(t *testing.T) {
	good := "ranks 2\na : f32[s x:4/1|y:2/1 3] shard(1: x=split y=whole)\nb : f16[s c 8/2] shard(2: split)\n"
	if k, err := lowering.ParseStateLayout(good); err != nil || k.String() != good {
		t.Fatalf("%v, %v", k, err)
	}
	for text, want := range map[string]string{
		"":                                        "ranks",
		"ranks 0\n":                               "0 ranks",
		"ranks 99999\n":                           "99999 ranks",
		"ranks 2\na : f32[4]\n":                   "not kept per sequence",
		"ranks 2\na : f32[t 4]\n":                 "not kept per sequence",
		"ranks 2\na : f32[s t]\n":                 "may be symbols",
		"ranks 2\na : q8[s 64]\n":                 "in blocks",
		"ranks 2\na b : f32[s 4]\n":               "not a name",
		"ranks 2\na : f32[s 4] partial\n":         "not kept per sequence",
		"ranks 2\na : f32[s 4] shard(0: even)\n":  "not kept per sequence",
		"ranks 2\na : f32[s 4] shard(7: split)\n": "axis 7",
		"ranks 2\na : f32[s 4]\na : f32[s 4]\n":   "there twice",
		"ranks 2\na.x : f32[s 5] field(1: x) of %a : f32[s x:4/1|y:2/1]\n":                   "field x of a",
		"ranks 2\na.x : f32[s 4/1] field(1: z) of %a : f32[s x:4/1|y:2/1]\n":                 "no field z",
		"ranks 2\na : f32[s 4/1]\na.x : f32[s 4/1] field(1: x) of %a : f32[s x:4/1|y:2/1]\n": "there twice",
	} {
		if _, err := lowering.ParseStateLayout(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestAsManyRanks: between machines that are alike each rank reads of the same rank, and a
// state of the model in one piece, fields and all, however small these are.
func TestAsManyRanks(t *testing.T) {
	for _, dir := range covering.Drawn(t, goldens.Folders(t, "..")) {
		for _, h := range []how{
			{dir: dir, strategy: "channel", states: "conv=bf16", ranks: 2}, {dir: dir, strategy: "hoisted", ranks: 3}, {dir: dir, strategy: "channel", states: "conv=bf16", ranks: 5},
		} {
			k, ok := keepsOf(t, h)
			if !ok {
				t.Fatalf("%v does not compile", h)
			}
			x, err := lowering.NewTransfer(lowering.End{States: k, PageTokens: 16}, lowering.End{States: k, PageTokens: 16})
			if err != nil {
				t.Fatal(err)
			}
			for rank := range h.ranks {
				reads, err := x.Reads(rank, 16, 0)
				if err != nil {
					t.Fatal(err)
				}
				seen := map[string]bool{}
				for _, r := range reads {
					name, _ := k.Buffers[r.Dest.Buffer].State()
					if r.From != rank || r.Source != r.Dest || r.Count != 1 || seen[name] || r.Dest.Region == 0 && x.Name(rank, r) != name {
						t.Errorf("%v: rank %d reads %s as %+v", h, rank, x.Name(rank, r), r)
					}
					seen[name] = true
				}
			}
		}
	}
}

// TestSpread: what all ranks hold comes from those whose share of the model meets the
// reader's, as much from each.
func TestSpread(t *testing.T) {
	for _, x := range []struct {
		from, to int
		want     [][]int // how many states each rank reads of each
	}{
		{4, 1, [][]int{{2, 2, 2, 2}}},
		{4, 2, [][]int{{4, 4, 0, 0}, {0, 0, 4, 4}}},
		{2, 3, [][]int{{8, 0}, {4, 4}, {0, 8}}},
		{3, 3, [][]int{{8, 0, 0}, {0, 8, 0}, {0, 0, 8}}},
		{2, 4, [][]int{{8, 0}, {8, 0}, {0, 8}, {0, 8}}},
	} {
		from, to := &lowering.StateLayout{Ranks: x.from}, &lowering.StateLayout{Ranks: x.to}
		for i := range 8 {
			b := lowering.StateBuffer{Name: fmt.Sprint("layers.", i, ".B"), Type: graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), graph.Size(16))}
			from.Buffers, to.Buffers = append(from.Buffers, b), append(to.Buffers, b)
		}
		moves, err := lowering.Moves(from, to)
		if err != nil {
			t.Fatal(err)
		}
		for rank, list := range moves {
			got := make([]int, x.from)
			for _, m := range list {
				got[m.From]++
			}
			if !slices.Equal(got, x.want[rank]) {
				t.Errorf("from %d ranks to %d: rank %d reads %v, want %v", x.from, x.to, rank, got, x.want[rank])
			}
		}
	}
}

// FuzzParseKeeps: what is read can be written and read again, and asked for moves.
func FuzzParseKeeps(f *testing.F) {
	f.Add("ranks 2\na : f32[s x:4/1|y:2/1 3] shard(1: x=split y=whole)\nb : f16[s c 8/2] shard(2: split)\n")
	f.Add("ranks 3\na.x : f32[s 4/1] shard(1: cover/8) field(1: x) of %a : f32[s x:4/1|y:2/1]\n")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := lowering.ParseStateLayout(text)
		if err != nil {
			return
		}
		again, err := lowering.ParseStateLayout(k.String())
		if err != nil || again.String() != k.String() {
			t.Fatalf("%q comes back as %q, %v", k, again, err)
		}
		e := lowering.End{States: k, PageTokens: 3}
		x, err := lowering.NewTransfer(e, e)
		if err != nil {
			t.Fatal(err)
		}
		for rank := range k.Ranks {
			reads, err := x.Reads(rank, 4, 1)
			if err != nil {
				t.Fatal(err)
			}
			_, run := k.States(rank)
			_, page := k.Page(rank, e.PageTokens)
			for _, r := range reads {
				size := run
				if r.Source.Region > 0 {
					size = page
				}
				r.Each(func(from, to int64) {
					if r.Bytes < 1 || from < 0 || to < 0 || max(from, to)+r.Bytes > size {
						t.Fatalf("%q: rank %d reads %+v", k, rank, r)
					}
				})
			}
		}
	})
}
