package passes_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// families calls do with the graph of every golden checkpoint.
func families(t *testing.T, do func(t *testing.T, g *graph.Graph)) {
	for _, dir := range covering.Drawn(t, goldens.Folders(t, "..")) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			_, g, err := checkpoint.Describe(dir)
			if err != nil {
				t.Fatal(err)
			}
			do(t, g)
		})
	}
}

var stages = []graph.Stage{graph.ModelStage, graph.UnpackedStage, graph.PartitionedStage, graph.FusedStage}

func compile(t *testing.T, g *graph.Graph, o passes.Options) *graph.Graph {
	t.Helper()
	out, err := passes.Compile(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// again is a graph as its text says.
func again(t *testing.T, g *graph.Graph) *graph.Graph {
	t.Helper()
	out, err := graph.Parse(graph.Print(g))
	if err != nil {
		t.Fatal(err)
	}
	if !graph.Equal(g, out) || graph.Print(g) != graph.Print(out) { // with notes
		t.Fatal("the text of the graph is that of another")
	}
	return out
}

// TestGoesOn: the text of every stage compiles to what the model does.
func TestGoesOn(t *testing.T) {
	families(t, func(t *testing.T, g *graph.Graph) {
		for _, ranks := range []int{1, 4} {
			want := compile(t, g, passes.Options{Ranks: ranks})
			for _, stage := range stages {
				o := passes.Options{Ranks: ranks, Stop: stage}
				mid := compile(t, g, o)
				if mid.Stage != stage {
					t.Errorf("stopped at stage %s instead of %s", mid.Stage, stage)
				}
				if same := compile(t, again(t, mid), o); !graph.Equal(same, mid) {
					t.Errorf("%d ranks: the graph at stage %s changes when it is taken there again", ranks, stage)
				}
				if ranks == 1 && stage != graph.ModelStage && stage != graph.FusedStage {
					continue // shown, but not what runs
				}
				if got := compile(t, again(t, mid), passes.Options{Ranks: ranks}); !graph.Equal(got, want) {
					t.Errorf("%d ranks: from stage %s comes another graph than from the model", ranks, stage)
				}
			}
		}
	})
}

// TestEveryBlock: a block of any family at any stage is a graph that checks, prints,
// parses, compiles and lowers.
func TestEveryBlock(t *testing.T) {
	families(t, func(t *testing.T, g *graph.Graph) {
		for _, stage := range stages {
			whole := compile(t, g, passes.Options{Ranks: 3, Stop: stage})
			for _, name := range whole.Blocks() {
				block, err := graph.Extract(whole, name)
				if err != nil {
					t.Fatalf("%s, %s: %v", stage, name, err)
				}
				runs := compile(t, again(t, block), passes.Options{Ranks: 3})
				if _, err := lowering.Lower(runs); err != nil {
					t.Errorf("%s, %s: %v", stage, name, err)
				}
				for _, n := range whole.Nodes { // nothing is lost
					if _, ok := block.Value(n.Name()); !ok && n.Block() == name && n.Op.Class != graph.Leaf {
						t.Errorf("%s, %s: %s is not there", stage, name, n.Name())
					}
				}
			}
		}
	})
}

// TestNothingToShare: no family computes anything twice, at any stage before what
// runs, which is why there is no pass cse.
func TestNothingToShare(t *testing.T) {
	planted, err := graph.Parse("graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\nparam @a : f32[4 4] from \"w\"\nparam @b : f32[4 4] from \"w\"\n%y = matmul %x @a\n%z = matmul %x @b\n")
	if err != nil || common(planted) != "z is y again\n" {
		t.Fatalf("%v: %q", err, common(planted))
	}
	families(t, func(t *testing.T, g *graph.Graph) {
		for _, s := range passes.Strategies {
			for _, stage := range stages[:3] {
				h, err := passes.Compile(g, passes.Options{Ranks: 4, Stop: stage, Strategy: s})
				if err != nil {
					continue // the strategy is about other models
				}
				if twice := common(h); twice != "" {
					t.Errorf("%s, %s: %s", s.Name, stage, twice)
				}
			}
		}
	})
}

// common finds nodes that compute the same of the same.
func common(g *graph.Graph) (twice string) {
	seen := map[string]string{}
	for _, n := range g.Nodes {
		var key strings.Builder
		fmt.Fprint(&key, n.Op.Name, n.Attrs)
		for _, v := range n.Args {
			if v.Def.Storage != nil { // parameters may be of the same tensor
				fmt.Fprint(&key, v.Def.Storage, v.Type)
			} else {
				fmt.Fprint(&key, " ", v.ID)
			}
		}
		if n.Op.Class == graph.Leaf {
			continue
		}
		if first, ok := seen[key.String()]; ok {
			twice += fmt.Sprintf("%s is %s again\n", n.Name(), first)
		}
		seen[key.String()] = n.Name()
	}
	return twice
}

// TestCodecsGoOn: graphs and schedules with payloads in codecs are as their text says, and compile
// from it. Each family has one codec, in turn, and every second one gathers tokens in it.
func TestCodecsGoOn(t *testing.T) {
	next := 0
	families(t, func(t *testing.T, g *graph.Graph) {
		kind := graph.CodecKinds()[next%len(graph.CodecKinds())]
		payload, strategy := graph.Codec{Kind: kind, Block: graph.MinBlock << (next % 8)}.String(), "channel"
		if next++; next%2 == 0 {
			payload, strategy = payload+",ag="+payload, "sequence"
		}
		o := passes.Options{Ranks: 2, Stop: graph.PartitionedStage}
		var err error
		if o.Strategy, err = passes.FindStrategy(strategy); err != nil {
			t.Fatal(err)
		}
		if o.Quantize, err = passes.ParseQuantize(payload); err != nil {
			t.Fatal(err)
		}
		mid := again(t, compile(t, g, o))
		if text := graph.Print(mid); !strings.Contains(text, ": "+kind.String()+"/") {
			t.Fatalf("nothing travels in %s:\n%s", kind, text)
		}
		fused := again(t, compile(t, mid, passes.Options{}))
		o.Stop = graph.NoStage
		if !graph.Equal(fused, compile(t, g, o)) {
			t.Errorf("%s: the text of the partitioned graph compiles to another", payload)
		}
		schedules, err := lowering.Lower(fused)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := lowering.ParseSchedule(schedules[1].String()); err != nil || s.String() != schedules[1].String() {
			t.Errorf("%s: the schedule is not as its text: %v", payload, err)
		}
	})
}
