package validate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/passes"
)

// golden is the graph of a folder of testdata/golden.
func golden(t testing.TB, name string) *graph.Graph {
	t.Helper()
	_, g, err := checkpoint.Describe("../../testdata/golden/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// compiled is a graph as the passes make it; nil where the strategy does not apply.
func compiled(t testing.TB, g *graph.Graph, o passes.Options, payload string) *graph.Graph {
	t.Helper()
	var err error
	if o.Quantize, err = passes.ParseQuantize(payload); err != nil {
		t.Fatal(err)
	}
	o.Stop = graph.PartitionedStage
	out, err := passes.Compile(g, o)
	if err != nil && (o.Strategy == nil || o.Strategy.Name == "channel") {
		t.Fatal(err)
	}
	return out
}

// TestFamilies: what the passes make of every family is right, by every strategy that applies,
// on some number of ranks, by the default one on two; with KRAIT_TEST_ALL on all. By default it is
// a third of them.
func TestFamilies(t *testing.T) {
	few := goldens.Few(t)
	for i, dir := range goldens.Folders(t, "../..") {
		name := filepath.Base(dir)
		g := golden(t, name)
		for k, s := range passes.Strategies {
			for j, ranks := range []int{2, 3, 4, 8} {
				drawn := (i+2*j+k)%16 == 0 // one rank count, of every fourth strategy
				if k == 0 {
					drawn = (i+j)%4 == 0
				}
				if !drawn && !goldens.All() || few && (i+k)%3 != 0 {
					continue
				}
				out := compiled(t, g, passes.Options{Ranks: ranks, Strategy: s}, "")
				if out == nil {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/tp=%d", name, s.Name, ranks), func(t *testing.T) { right(t, g, out, false) })
			}
		}
		for ranks, payload := range map[int]string{2: "fp16", 3: "bf16:acc32"} {
			if i%2 != ranks%2 && !goldens.All() {
				continue
			}
			out := compiled(t, g, passes.Options{Ranks: ranks}, payload)
			t.Run(fmt.Sprintf("%s/%s/tp=%d", name, payload, ranks), func(t *testing.T) { right(t, g, out, true) })
		}
	}
}

// right expects that all of a graph is run and found to be its source.
func right(t *testing.T, g, out *graph.Graph, rounds bool) {
	r, err := Run(t.Context(), g, out, Options{})
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, p := range r.Parts {
		blocks += len(p.Blocks)
		if p.Skipped != "" || p.Values == 0 || p.Difference > 1e-13 || p.Difference > 0 && p.Worst == "" {
			t.Errorf("%+v", p)
		}
		// A lookup in a table of few bits may lose nothing.
		if rounded := p.Rounded > 0; rounded != rounds && len(p.Blocks) > 0 || p.Rounded > 0.05 || p.Overflow != "" {
			t.Errorf("rounded: %+v", p)
		}
	}
	if want := len(g.Blocks()); blocks != want {
		t.Errorf("%d blocks in\n%s\nwant %d", blocks, r, want)
	}
}

// TestUnpackedSource: a source may be at a later stage, and the graph of one rank
// may be its own source.
func TestUnpackedSource(t *testing.T) {
	g := golden(t, "mamba2-g4")
	unpacked, err := passes.Run(g, []string{"unpack", "decompose"}, passes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	right(t, unpacked, compiled(t, g, passes.Options{Ranks: 3}, ""), false)
	right(t, g, unpacked, false)
	right(t, g, g, false)
}

// TestGroupedRows: rows of a projection that is grouped by heads, cut in another way than the
// model's, are refused or give other values: each piece one unit further, and pieces in another
// order.
func TestGroupedRows(t *testing.T) {
	for _, name := range []string{"qwen3-next", "qwen3-5"} {
		g := golden(t, name)
		text := graph.Print(compiled(t, g, passes.Options{Ranks: 2}, ""))
		tried := map[string]int{}
		for i, n := range parse(t, text).Nodes {
			if n.Op.Name != "param" || len(n.Storage.Pieces) < 2 || strings.Contains(n.Name(), "experts.") {
				continue
			}
			for k, how := range []string{"further", "order"} {
				out := parse(t, text)
				pieces := slices.Clone(out.Nodes[i].Storage.Pieces)
				if k == 0 {
					at := tried[how] % len(pieces)
					if pieces[at].Start += pieces[at].Count; pieces[at].Start+pieces[at].Count > out.Nodes[i].Storage.Shape[0] {
						pieces[at].Start = 0
					}
				} else {
					slices.Reverse(pieces)
				}
				out.Nodes[i].Storage.Pieces = pieces
				if tried[how]++; tried[how] > 6 && !goldens.All() {
					continue
				}
				r, err := Run(t.Context(), g, out, Options{})
				if err == nil && !slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Difference > 1e-6 }) {
					t.Errorf("%s: %s with %v is not found", name, n.Name(), pieces)
				}
			}
		}
		if tried["order"] < 2 {
			t.Errorf("%s: tried %v", name, tried)
		}
	}
}
