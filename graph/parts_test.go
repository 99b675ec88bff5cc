package graph_test

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// inParts is a convolution and a scan over the parts of sequences, on two ranks.
const inParts = `graph "g" stage=partitioned ranks=2
input %seg : i32[s 3]
input %x_in : f32[t 8/1]
input %dt_in : f32[t 8/1]
input %B_in : f32[t 3]
param @w : f32[8/1 4] from "w"
param @A : f32[8/1 3] from "A"
state %conv : f32[s 8/1 3]
state %h : f32[s 8/1 3]
%x = shard %x_in {axis=0 place=parts} : f32[t 8/1] shard(0: parts)
%dt = shard %dt_in {axis=0 place=parts} : f32[t 8/1] shard(0: parts)
%B = shard %B_in {axis=0 place=parts} : f32[t 3] shard(0: parts)
%parts = parts %x %seg {parts=2} : i32[s*2 3] shard(0: even)
%no_inputs = zeros %parts {dims="8/1 3"} : f32[s*2 8/1 3] shard(0: even)
%c %tail = conv1d %x @w %no_inputs %parts : f32[t 8/1] shard(0: parts), f32[s*2 8/1 3] shard(0: even)
%tails = all_gather %tail : f32[s*2 8/1 3]
%halo %conv_new = conv_states %tails %conv %seg : f32[s*2 8/1 3], f32[s 8/1 3]
%halo_here = shard %halo {axis=0 place=even} : f32[s*2 8/1 3] shard(0: even)
%u %tail_again = conv1d %x @w %halo_here %parts : f32[t 8/1] shard(0: parts), f32[s*2 8/1 3] shard(0: even)
%none = zeros %parts {dims="8/1 3"} : f32[s*2 8/1 3] shard(0: even)
%y0 %made = selective_scan %u %dt @A %B %B %none %parts : f32[t 8/1] shard(0: parts), f32[s*2 8/1 3] shard(0: even)
%sum = segment_sums %dt %parts : f32[s*2 8/1] shard(0: even)
%all_made %sums = all_gather %made %sum : f32[s*2 8/1 3], f32[s*2 8/1]
%before %h_new = selective_states %sums %all_made @A %h %seg : f32[s*2 8/1 3], f32[s 8/1 3]
%before_here = shard %before {axis=0 place=even} : f32[s*2 8/1 3] shard(0: even)
%y %after = selective_scan %u %dt @A %B %B %before_here %parts : f32[t 8/1] shard(0: parts), f32[s*2 8/1 3] shard(0: even)
%out = all_gather %y : f32[t 8/1]
output y = %out
`

// TestParts: the graph is legal, and its text is that of the graph which it is read as.
func TestParts(t *testing.T) {
	g, err := graph.Parse(inParts)
	if err != nil {
		t.Fatal(err)
	}
	if err := graph.Check(g); err != nil {
		t.Fatal(err)
	}
	if again, err := graph.Parse(graph.Print(g)); err != nil || !graph.Equal(g, again) {
		t.Errorf("its text is another graph: %v", err)
	}
}

// TestPartsRefused: rules refuse a graph in which a rank would read, or replace, what is not of its
// part.
func TestPartsRefused(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"states of all parts": {"%B %B %before_here %parts", "%B %B %before %parts",
			"operand 5 is f32[s*2 8/1 3]; with tokens in parts it must be f32[s*2 8/1 3] shard(0: even)"},
		"sums that were not gathered": {"selective_states %sums", "selective_states %sum",
			"operand 0 is split on z!, which this operation cannot split"},
		"tokens of all parts": {"%B %B %before_here", "%B_in %B %before_here",
			"operand 3 is f32[t 3]; with tokens in parts it must be f32[t 3] shard(0: parts)"},
		"tokens cut elsewhere": {"%dt = shard %dt_in {axis=0 place=parts} : f32[t 8/1] shard(0: parts)", "%dt = shard %dt_in {axis=0 place=even} : f32[t 8/1] shard(0: even)",
			"with tokens in parts it must be f32[t 8/1] shard(0: parts)"},
		"segments of sequences": {"%B %B %before_here %parts", "%B %B %before_here %seg", "s is s in operand 6 and s*2 before"},
		"a state taken twice":   {"%B %B %before_here %parts", "%B %B %made %parts", "which the operation replaces, and it is taken 2 times"},
		"a state of sequences":  {"%B %B %before_here %parts", "%B %B %h %parts", "s is s*2 in operand 6 and s before"},
		"more parts than ranks": {"{parts=2} : i32[s*2 3]", "{parts=3} : i32[s*3 3]", "the segments are 3 parts of each sequence; 2 ranks have one each: write s*2"},
		"one part":              {"{parts=2}", "{parts=1}", "attribute parts is 1; it must be 2 to 1024"},
		"half a diagonal":       {`%none = zeros %parts {dims="8/1 3"}`, `%none = zeros %parts {diagonal=2 dims="8/1 3"}`, "attribute diagonal is 2; it must be 0 or 1"},
		"an oblong diagonal":    {`%none = zeros %parts {dims="8/1 3"}`, `%none = zeros %parts {diagonal=1 dims="8/1 3"}`, "a diagonal needs two last axes of equal sizes"},
		"parts of tokens":       {"%c %tail =", "%c2 = zeros %x {dims=\"t\"} : f32[t t]\n%c %tail =", "at most 5 axes without symbols"},
		"parts of parts":        {"%c %tail =", "%p2 = parts %x %parts {parts=2} : i32[s*2 3] shard(0: even)\n%c %tail =", "operand 1 must be the segments i32[s 3]"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Count(inParts, c.old) == 0 {
				t.Fatalf("there is no %q", c.old)
			}
			g, err := graph.Parse(strings.ReplaceAll(inParts, c.old, c.new))
			if err == nil {
				err = graph.Check(g)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %s", err, c.want)
			}
		})
	}
}

// TestPartOf: parts have every token once, in order, are cut at multiples of a block, and differ by
// one block at most.
func TestPartOf(t *testing.T) {
	for _, tokens := range []int{0, 1, 63, 64, 65, 127, 128, 129, 200, 512, 1000, 4097} {
		for ranks := 1; ranks <= 9; ranks++ {
			end, least, most := 0, tokens, 0
			for rank := range ranks {
				r := graph.PartOf(tokens, ranks, rank)
				if r.Start != end || r.Len < 0 || r.Len > 0 && r.Start%graph.PartBlock != 0 {
					t.Errorf("%d tokens on %d ranks: rank %d has %v after token %d", tokens, ranks, rank, r, end)
				}
				end = r.End()
				blocks := (r.Len + graph.PartBlock - 1) / graph.PartBlock
				least, most = min(least, blocks), max(most, blocks)
			}
			if end != tokens || most > least+1 && tokens > 0 {
				t.Errorf("%d tokens on %d ranks: parts end at %d, and have %d to %d blocks", tokens, ranks, end, least, most)
			}
		}
	}
}

// TestExtentsInParts: a rank has a run of each sequence; rows within a window of the batch lie
// together in what it holds.
func TestExtentsInParts(t *testing.T) {
	b := &graph.Batch{Sizes: graph.Sizes{Tokens: 331, Seqs: 3}, Ends: []int{200, 201, 331}}
	x := graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(2))
	x.Layout = graph.SplitRows(graph.InParts)
	for rank, want := range [][]graph.Run{{{Start: 0, Len: 128}, {Start: 200, Len: 0}, {Start: 201, Len: 64}}, {{Start: 128, Len: 72}, {Start: 200, Len: 1}, {Start: 265, Len: 66}}} {
		got := x.Extents(b, 2, rank)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("rank %d has %v of sequence %d, want %v", rank, got[i], i, want[i])
			}
		}
		for _, window := range []graph.Run{{Start: 0, Len: 331}, {Start: 100, Len: 120}, {Start: 190, Len: 80}, {Start: 330, Len: 1}} {
			var before, within int
			for _, r := range want {
				for token := r.Start; token < r.End(); token++ {
					if token < window.Start {
						before++
					} else if token < window.End() {
						within++
					}
				}
			}
			if got := x.ExtentsWithin(b, 2, rank, window); got != (graph.Run{Start: before, Len: within}) {
				t.Errorf("rank %d has %v of %v, want %d from %d on", rank, got, window, within, before)
			}
			var n int
			pieces := graph.PiecesWithin(b, x, 2, rank, window)
			for _, s := range pieces.List {
				if s.Part != n {
					t.Errorf("rank %d: stretch %v of %v does not follow the one before", rank, s, window)
				}
				n += s.N
			}
			if n != within {
				t.Errorf("rank %d: the pieces of %v have %d rows, want %d", rank, window, n, within)
			}
		}
	}
	if n := b.LargestShare(graph.InParts, 2); n != 192 {
		t.Errorf("the largest share is %d, want 192", n)
	}
}
