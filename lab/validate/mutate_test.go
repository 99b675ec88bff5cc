package validate

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/passes"
)

func parse(t testing.TB, text string) *graph.Graph {
	t.Helper()
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return g
}

func read(t testing.TB, file string) *graph.Graph {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

// wrong expects an error about a value.
func wrong(t *testing.T, g, out *graph.Graph, want ...string) {
	t.Helper()
	r, err := Run(t.Context(), g, out, Options{})
	if err == nil {
		t.Fatalf("nothing is found wrong:\n%s", r)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in: %v", text, err)
		}
	}
}

// TestCompiledWrong: graphs as rules once let the passes make them, or would have:
// a result of groups that is split evenly where ranks own units larger than groups.
func TestCompiledWrong(t *testing.T) {
	for _, name := range []string{"groups", "heads"} {
		wrong(t, read(t, name+".ir"), read(t, name+"-wrong.ir"), "q: differs from the source by ", "outside of blocks; seed 1")
	}
}

// TestMutations breaks graphs by hand, in ways that rules refuse or do not.
func TestMutations(t *testing.T) {
	for _, c := range []struct{ name, from, old, new, want string }{
		{"a sum is not reduced", "mamba-a", "%mixer.dt = field %mixer.x_proj_sum {name=dt}", "%mixer.dt = field %mixer.x_proj {name=dt}", "layers.0.mixer.dt: differs"},
		{"B and C are exchanged", "mamba-a", "%mixer.A %mixer.B %mixer.C", "%mixer.A %mixer.C %mixer.B", "layers.0.mixer.scan: differs"},
		{"whole instead of split", "mamba-a", "param @mixer.D : f32[128/1] shard(0: split)", "param @mixer.D : f32[128/1]", "layers.0.mixer.skip: scale: rank 0: runtime error: integer divide by zero"},
		{"split instead of whole", "mamba-a", "%norm = rmsnorm %/h_sum @norm.weight {eps=1e-05} : f32[t 64]", "%norm = rmsnorm %/h_sum @norm.weight {eps=1e-05} : f32[t 64] shard(1: split)", "layers.0.norm: "},
		{"another attribute", "mamba-a", "{eps=1e-05}", "{eps=0.01}", "norm: differs"},
		{"another layer's parameter", "mamba-a", `"backbone.layers.0.mixer.D"`, `"backbone.layers.1.mixer.D"`, "layers.0.mixer.skip: differs"},
		{"another layer's parameter, later", "mamba-a", `"backbone.layers.1.mixer.D"`, `"backbone.layers.0.mixer.D"`, "layers.1.mixer.skip: differs"},
		{"another layer's stream", "mamba-a", "%h = add %/layers.0.h ", "%h = add %/h_sum ", "layers.1.h: differs"},
		{"states that lie otherwise than they are", "mamba-a", "f32[s 128/1 16] shard(1: split)\n  param @mixer.D", "f32[s 128/1 16]\n  param @mixer.D", "layers.0.mixer.scan: selective_scan: rank 0: layers.0.mixer.ssm has"},
		{"fields of a state exchanged", "mamba2-g4", "@mixer.conv1d.weight.C %mixer.conv.C", "@mixer.conv1d.weight.C %mixer.conv.B", "layers.0.mixer.conv1d.C: differs"},
		{"an output of other values", "mamba-a", "output logits = %logits_all", "output logits = %norm_f", "output logits: is norm_f"},
		{"an output in parts", "mamba-a", "output logits = %logits_all", "output logits = %logits", "it must be whole"},
		{"no output", "mamba-a", "output logits = %logits_all\noutput tokens = %tokens", "", "has 0 outputs"},
		{"integers exchanged", "jamba", "%/seg %/past", "%/past %/seg", "attention."},
		{"other shape", "mamba-a", "%mixer.out_proj_sum = all_reduce %mixer.out_proj : f32[t 64]", "%mixer.out_proj_sum = all_reduce %mixer.out_proj : f32[t 63]", "layers.0.mixer.out_proj_sum: all_reduce: 192 elements"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := golden(t, c.from)
			text := graph.Print(compiled(t, g, passes.Options{Ranks: 2}, ""))
			if !strings.Contains(text, c.old) {
				t.Fatalf("%s is not in\n%s", c.old, text)
			}
			wrong(t, g, parse(t, strings.Replace(text, c.old, c.new, 1)), c.want)
		})
	}
}

// sparseIf is the length of runs with which most weights of goldens are zeros, in every other case.
func sparseIf(odd int) int { return 2 * (odd % 2) }

// TestEveryMutation breaks each node of each distinct block, or every third where
// there are many, in every way that applies: one half of the ways for a node, the other
// for the next, unless all are to run; in half of the cases with weights that are mostly zeros.
func TestEveryMutation(t *testing.T) {
	for name, every := range map[string]int{"mamba-a": 1, "mamba2-g4": 1, "jamba": 3} {
		if name == "mamba2-g4" && goldens.Few(t) {
			continue // jamba has most of it
		}
		g := golden(t, name)
		out := compiled(t, g, passes.Options{Ranks: 3}, "")
		r, err := Run(t.Context(), g, out, Options{})
		if err != nil {
			t.Fatal(err)
		}
		distinct := []string{""}
		for _, p := range r.Parts {
			distinct = append(distinct, p.Blocks[:min(1, len(p.Blocks))]...)
		}
		text, tried := graph.Print(out), 0
		for i, n := range out.Nodes {
			if i%every != 0 || !slices.Contains(distinct, n.Block()) {
				continue
			}
			for k, how := range mutations {
				if (i/every+k)%3 != 0 && !goldens.All() {
					continue
				}
				broken := parse(t, text)
				if !how.do(broken, broken.Nodes[i]) {
					continue
				}
				tried++
				if r, err := Run(t.Context(), g, broken, Options{run: sparseIf(tried)}); err == nil {
					t.Errorf("%s: %s: %s of %s is not found:\n%s", name, n.Name(), how.name, n.Op.Name, r)
				}
			}
		}
		if t.Logf("%s: %d mutations", name, tried); tried < 35 {
			t.Errorf("%d mutations", tried)
		}
	}
}

var mutations = []struct {
	name string
	do   func(g *graph.Graph, n *graph.Node) bool
}{
	{"leaving out", func(g *graph.Graph, n *graph.Node) bool {
		if n.Op.Class != graph.Collective && n.Op.Class != graph.Relayout {
			return false
		}
		for _, m := range g.Nodes {
			for i, v := range m.Args {
				if k := slices.Index(n.Results, v); k >= 0 {
					m.Args[i] = n.Args[k]
				}
			}
		}
		for i, o := range g.Outputs {
			if k := slices.Index(n.Results, o.Value); k >= 0 {
				g.Outputs[i].Value = n.Args[k]
			}
		}
		return true
	}},
	{"exchanging operands", func(g *graph.Graph, n *graph.Node) bool {
		for i, v := range n.Args {
			for k := range i {
				if w := n.Args[k]; v != w && v.Type.Equal(w.Type) && n.Op.Name != "add" && n.Op.Name != "mul" {
					n.Args[i], n.Args[k] = w, v
					return true
				}
			}
		}
		return false
	}},
	{"another number", func(g *graph.Graph, n *graph.Node) bool {
		for _, a := range n.Op.Attrs {
			switch v := n.Attrs[a.Name].(type) {
			case float64:
				n.Attrs[a.Name] = v*1.5 + 1
				return !math.IsInf(v, 0)
			case int:
				n.Attrs[a.Name] = v + 1
				return n.Op.Name != "experts" // top only says how many weights are not 0
			}
		}
		return false
	}},
	{"another tensor", func(g *graph.Graph, n *graph.Node) bool {
		if n.Storage == nil {
			return false
		}
		n.Storage.Pieces[0].Tensor += "x"
		return true
	}},
	{"a partial sum", func(g *graph.Graph, n *graph.Node) bool { return relay(n, graph.Layout{Kind: graph.Partial}) }},
	{"a whole value", func(g *graph.Graph, n *graph.Node) bool { return relay(n, graph.Layout{}) }},
	{"a split value", func(g *graph.Graph, n *graph.Node) bool {
		t := n.Results[0].Type
		for axis, d := range t.Dims {
			if d.Sym == 0 && d.Len() > 1 {
				return relay(n, graph.SplitOn(axis, len(d.Fields)))
			}
		}
		return false
	}},
}

func relay(n *graph.Node, l graph.Layout) bool {
	t := &n.Results[0].Type
	if t.Layout.Equal(l) {
		return false
	}
	t.Layout = l
	return true
}

// TestGathersLeftOut: gathers and shards that are left out are found, too.
func TestGathersLeftOut(t *testing.T) {
	g := golden(t, "mamba-a")
	for k, s := range passes.Strategies {
		if k%3 > 0 && goldens.Few(t) {
			continue
		}
		out := compiled(t, g, passes.Options{Ranks: 2, Strategy: s}, "")
		text := graph.Print(out)
		for i, n := range out.Nodes {
			if (i+k)%3 != 0 && !goldens.All() {
				continue
			}
			broken := parse(t, text)
			if mutations[0].do(broken, broken.Nodes[i]) {
				if r, err := Run(t.Context(), g, broken, Options{}); err == nil {
					t.Errorf("%s: %s is not missed:\n%s", s.Name, n.Name(), fmt.Sprint(r))
				}
			}
		}
	}
}
