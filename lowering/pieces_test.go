package lowering

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// aBlock gathers rows for two products, sums packed rows of which one field goes on, and
// scatters; between them is what needs the tokens of a sequence together.
const aBlock = `graph "block" stage=partitioned ranks=2
input %seg : i32[s 3]
input %x : f32[t 8]
%h = shard %x {axis=0 place=even}
%norm = unit_rmsnorm %h {eps=1.0}
%all = all_gather %norm
param @up : f32[6/1 8] shard(0: split)
%a = matmul %all @up
param @gate : f32[6/1 8] shard(0: split)
%z = matmul %all @gate
param @taps : f32[6/1 2] shard(0: split)
state %past : f32[s 6/1 1] shard(1: split)
%c %new = conv1d %a @taps %past %seg
param @xp : f32[dt:3|B:2 6/1] shard(1: split)
%packed = matmul %c @xp
%sum = all_reduce %packed
%dt = field %sum {name=dt}
%B = field %sum {name=B}
param @dtp : f32[6/1 3] shard(0: split)
%delta = matmul %dt @dtp
%g = mul %delta %c
%y = mul %g %z
param @down : f32[8 6/1] shard(1: split)
%part = matmul %y @down
%own = reduce_scatter %part {axis=0 place=even}
%next = add %h %own
%last = all_gather %next
input %rows : i32[o]
%wanted = select_rows %last %rows
%b = select_rows %B %rows
output y = %wanted
output b = %b
`

// looped lowers a graph with pieces of 4 tokens.
func looped(t *testing.T, text string) []*Schedule {
	t.Helper()
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	list, err := LowerFor(g, 4)
	if err == nil {
		err = CheckAll(list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestLoops: what goes row by row with what is gathered, summed and scattered is in loops, and has
// room for a piece if no other node reads it; text and schedule are the same.
func TestLoops(t *testing.T) {
	s := looped(t, aBlock)[1]
	var got []string
	for line := range strings.Lines(s.String()) {
		if strings.HasPrefix(line, "loop") || strings.Contains(line, " piece") || strings.Contains(line, "pieces") {
			got = append(got, line)
		}
	}
	const want = `pieces of 4 tokens
region piece_share 64 bytes
buffer all piece_share-64 64 bytes : f32[t 8]
buffer packed piece_share+0 40 bytes : f32[t dt:3|B:2] partial
buffer part piece_share-128 64 bytes : f32[t 8] partial
loop 1 compute all = all_gather norm
loop 1 compute a = matmul all, up
loop 1 compute z = matmul all, gate
loop 2 compute packed = matmul c, xp
loop 2 compute sum = all_reduce packed
loop 2 compute B = field sum {name="B"} for b
loop 2 compute delta = matmul dt, dtp
loop 3 compute part = matmul y, down
loop 3 compute own = reduce_scatter part {axis=0 place="even"}
`
	if got := strings.Join(got, ""); got != want {
		t.Errorf("got\n%s\nof\n%s", got, s)
	}
	back, err := ParseSchedule(s.String())
	if err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%v\nread back as\n%s", err, back)
	}
	p, err := NewPlan(looped(t, aBlock))
	if err != nil {
		t.Fatal(err)
	}
	z, piece := graph.Sizes{Tokens: 9, Seqs: 2, Rows: 1}, graph.Sizes{Tokens: 4, Seqs: 2, Rows: 1}
	if rest := s.Bytes[PerTokenShare]; p.Ranks[1].Arena.At(z) != 5*rest+2*s.Bytes[PerPieceShare]+s.Bytes[PerRow] || p.Ranks[1].Arena.At(piece) != 2*rest+2*s.Bytes[PerPieceShare]+s.Bytes[PerRow] {
		t.Errorf("the arena takes %s", p.Ranks[1].Arena)
	}
}

// TestPieces: pieces are the tokens, in order, and each has no more than there is room for.
func TestPieces(t *testing.T) {
	for most := 1; most < 9; most++ {
		s := &Schedule{PieceTokens: most}
		for tokens := range 40 {
			at := 0
			for k := range s.PieceCount(tokens) {
				r := s.Piece(tokens, k)
				if r.Start != at || r.Len > min(most, tokens) {
					t.Fatalf("piece %d of %d tokens in pieces of %d is %v", k, tokens, most, r)
				}
				at = r.End()
			}
			if at != tokens || s.PieceCount(tokens) > max(1, (tokens+most-1)/most) {
				t.Fatalf("%d pieces of %d tokens, which end at %d", s.PieceCount(tokens), tokens, at)
			}
		}
	}
}

// TestNoLoops: a change to a graph that must keep one of its loops from being.
func TestNoLoops(t *testing.T) {
	for _, c := range []struct{ name, old, new, loops string }{
		{"as it is", "", "", "all packed part"},
		{"the gathered rows are an output", "output b", "output all = %all\noutput b", "packed part"},
		{"the gathered rows are needed for all tokens", "%b = select_rows %B", "%b = select_rows %all", "packed part"},
		{"a product needs what comes later", "%z = matmul %all @gate", "%w = times %x {by=2.0}\n%both = add %all %w\n%z = matmul %both @gate", "packed part"},
		{"the sum is needed for all tokens", "%b = select_rows %B", "%b = select_rows %sum", "all part"},
		{"no field goes on", "%delta = matmul %dt @dtp", "%kept = select_rows %dt %rows\n%delta = times %c {by=2.0}", "all part"},
		{"the partial sum is needed otherwise", "%next = add %h %own", "%twice = reduce_scatter %part {axis=0 place=even}\n%next = add %twice %own", "all packed"},
	} {
		text := strings.Replace(aBlock, c.old, c.new, 1)
		if strings.Contains(text, "%kept") { // it reads rows before they are there
			text = strings.Replace(strings.Replace(text, "input %rows : i32[o]\n", "", 1), "input %x", "input %rows : i32[o]\ninput %x", 1)
		}
		var loops []string
		for _, b := range looped(t, text)[0].Buffers {
			if b.Space.OfPiece() {
				loops = append(loops, b.Name)
			}
		}
		if got := strings.Join(loops, " "); got != c.loops {
			t.Errorf("%s: pieces of %s, want %s", c.name, got, c.loops)
		}
	}
}

// TestLoopsRefused: schedules whose loops are broken do not check.
func TestLoopsRefused(t *testing.T) {
	step := func(s *Schedule, name string) int {
		return slices.IndexFunc(s.Steps, func(st Step) bool { return st.Name == name })
	}
	buffer := func(s *Schedule, name string) *Buffer {
		return &s.Buffers[slices.IndexFunc(s.Buffers, func(b Buffer) bool { return b.Name == name })]
	}
	for want, change := range map[string]func(s *Schedule){
		"a = matmul all, up: of all there is a piece":                      func(s *Schedule) { s.Steps[step(s, "a")].Loop = 0 },
		"is apart from the rest of loop 1":                                 func(s *Schedule) { s.Steps[step(s, "part")].Loop, s.Steps[step(s, "own")].Loop = 1, 1 },
		"is in loop 1, of pieces of 0 tokens":                              func(s *Schedule) { s.PieceTokens = 0 },
		"c, new = conv1d a, taps, past, seg is in a loop, and":             func(s *Schedule) { s.Steps[step(s, "c")].Loop = 1 },
		"wanted = select_rows last, rows is in a loop":                     func(s *Schedule) { s.Steps[step(s, "wanted")].Loop = 4 },
		"norm = unit_rmsnorm h {eps=1}: ranks have parts of the rows of h": func(s *Schedule) { s.Steps[step(s, "norm")].Loop = 4 },
		"last = all_gather next is on the comm stream":                     func(s *Schedule) { s.Steps[step(s, "last")].Loop = 4 },
		"it is in a loop; a loop is on one stream": func(s *Schedule) {
			s.Steps[slices.IndexFunc(s.Steps, func(st Step) bool { return st.Kind == Wait })].Loop = 4
		},
		// The second piece of the gather needs it.
		"all reads norm, which a has overwritten": func(s *Schedule) { buffer(s, "a").Offset = buffer(s, "norm").Offset },
		// A piece is where all tokens have something.
		"z writes z over all, which it reads":      func(s *Schedule) { buffer(s, "all").Offset = buffer(s, "z").Offset - s.Bytes[PerTokenShare] },
		"all writes all over norm, which it reads": func(s *Schedule) { buffer(s, "all").Offset = buffer(s, "norm").Offset - s.Bytes[PerTokenShare] },
		"buffer all: bytes -384+64 of 64":          func(s *Schedule) { buffer(s, "all").Offset = -384 },
		"part reads all, which no step has written": func(s *Schedule) {
			st := &s.Steps[step(s, "part")]
			st.Args[0], st.Args[1] = s.Steps[step(s, "a")].Args[0], s.Steps[step(s, "a")].Args[1]
		},
	} {
		s := looped(t, aBlock)[1]
		change(s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestLoopsWait: a loop with a collective begins when those on the other stream are done.
func TestLoopsWait(t *testing.T) {
	s := looped(t, strings.Replace(strings.Replace(aBlock, "%part =", "param @m : f32[8 6/1] shard(1: split)\n%q = matmul %c @m\n%qs = all_reduce %q\n%part =", 1),
		"output b", "%wq = select_rows %qs %rows\noutput q = %wq\noutput b", 1))[0]
	i := slices.IndexFunc(s.Steps, func(st Step) bool { return st.Name == "part" })
	if s.Steps[i-1].Kind != Wait || s.Steps[i-1].Stream != Compute {
		t.Fatalf("nothing waits before the loop:\n%s", s)
	}
	s.Steps = slices.Delete(s.Steps, i-1, i)
	const want = "own on compute does not wait for qs on comm: ranks may come to them in another order"
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

// TestParseLoops: text that says nonsense about loops is refused.
func TestParseLoops(t *testing.T) {
	text := looped(t, aBlock)[0].String()
	for want, change := range map[string][2]string{
		"how long pieces are is said twice": {"pieces of 4 tokens\n", "pieces of 4 tokens\npieces of 4 tokens\n"},
		"from 1 to 1073741824":              {"pieces of 4 tokens", "pieces of 0 tokens"},
		`expected "of N tokens"`:            {"pieces of 4 tokens", "pieces of four tokens"},
		"loop 0; they count from 1":         {"loop 1 compute", "loop 0 compute"},
		`expected "N", found "one"`:         {"loop 1 compute", "loop one compute"},
		"expected one of compute, comm":     {"loop 1 compute", "loop 1 record"},
	} {
		if _, err := ParseSchedule(strings.Replace(text, change[0], change[1], 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
