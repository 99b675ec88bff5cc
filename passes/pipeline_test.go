package passes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// ran compiles a graph and lists the passes that ran.
func ran(t *testing.T, g *graph.Graph, o Options) (names string, out *graph.Graph) {
	t.Helper()
	table := slices.Clone(Table)
	defer func() { Table = table }()
	Table = nil
	var list []string
	for _, p := range table {
		q := *p
		q.Run = func(g *graph.Graph, o *Options) (*graph.Graph, error) {
			list = append(list, p.Name)
			return p.Run(g, o)
		}
		Table = append(Table, &q)
	}
	out, err := Compile(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " "), out
}

// TestWhatRuns: the passes that run, by ranks, the stage to stop at, the strategy, and
// the stage that the graph is at.
func TestWhatRuns(t *testing.T) {
	strategy := func(text string) *Strategy {
		s, err := ParseStrategy("file", text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		o    Options
		from graph.Stage // the graph that is compiled is at this stage, of a run by the same options
		want string
	}{
		{Options{}, 0, "dce statetype fuse"},
		{Options{Ranks: 1}, 0, "dce statetype fuse"},
		{Options{Stop: graph.FusedStage}, 0, "dce statetype fuse"},
		{Options{Stop: graph.ModelStage}, 0, "dce statetype"},
		{Options{Stop: graph.UnpackedStage}, 0, "dce statetype unpack decompose"},
		{Options{Stop: graph.PartitionedStage}, 0, "dce statetype unpack decompose partition merge quantize"},
		{Options{Strategy: strategy("with norm-hoist")}, 0, "dce statetype fuse"},
		{Options{Ranks: 3}, 0, "dce statetype unpack decompose partition merge quantize fuse"},
		{Options{Ranks: 3, Fuse: ForLaunches}, 0, "dce statetype unpack decompose partition merge quantize fuse peers"},
		{Options{Ranks: 3, Fuse: ForLaunches, Overlap: true}, 0, "dce statetype unpack decompose partition merge quantize fuse overlap peers"},
		{Options{Ranks: 3, Fuse: ForLaunches, Stop: graph.PartitionedStage}, 0, "dce statetype unpack decompose partition merge quantize"},
		{Options{Ranks: 2, Fuse: ForLaunches, Target: standIn{}}, 0, "dce statetype unpack decompose partition merge quantize fuse peers formats"},
		{Options{Target: standIn{}}, graph.PartitionedStage, "fuse formats"},
		{Options{Ranks: 3, Fuse: ForLaunches, Target: standIn{}, Strategy: strategy("without fuse")}, 0, "dce statetype unpack decompose partition merge quantize"},
		{Options{Ranks: 3, Stop: graph.ModelStage}, 0, "dce statetype"},
		{Options{Ranks: 3, Stop: graph.UnpackedStage}, 0, "dce statetype unpack decompose"},
		{Options{Ranks: 3, Stop: graph.PartitionedStage}, 0, "dce statetype unpack decompose partition merge quantize"},
		{Options{Ranks: 3, Strategy: strategy("with norm-hoist\nwithout dce merge\nwithout unpack fuse")}, 0, "statetype decompose norm-hoist partition quantize"},
		{Options{Ranks: 3, Strategy: strategy("without unpack decompose"), Stop: graph.UnpackedStage}, 0, "dce statetype"},

		{Options{}, graph.UnpackedStage, "dce statetype fuse"},
		{Options{}, graph.PartitionedStage, "fuse"},
		{Options{}, graph.FusedStage, ""},
		{Options{Ranks: 3}, graph.UnpackedStage, "dce statetype decompose partition merge quantize fuse"},
		{Options{Ranks: 3, Strategy: strategy("with norm-hoist")}, graph.UnpackedStage, "dce statetype decompose norm-hoist partition merge quantize fuse"},
		{Options{Ranks: 3}, graph.PartitionedStage, "fuse"},
		{Options{Ranks: 3, Stop: graph.PartitionedStage}, graph.PartitionedStage, ""},
		{Options{Ranks: 3}, graph.FusedStage, ""},
	} {
		g := stack(t, 1)
		if c.from != graph.NoStage {
			before := c.o
			before.Stop = c.from
			_, g = ran(t, g, before)
		}
		text := graph.Print(g)
		if got, _ := ran(t, g, c.o); got != c.want {
			t.Errorf("%+v from stage %d: ran %q, want %q", c.o, c.from, got, c.want)
		}
		if graph.Print(g) != text {
			t.Errorf("%+v from stage %d: the graph that was given changed", c.o, c.from)
		}
	}
}

// TestCompileRefuses: options that contradict the graph, or have no effect.
func TestCompileRefuses(t *testing.T) {
	g := stack(t, 1)
	split, err := Compile(g, Options{Ranks: 2, Stop: graph.PartitionedStage})
	if err != nil {
		t.Fatal(err)
	}
	fp16, err := ParseQuantize("fp16")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := ParseStrategy("file", "without quantize")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := ParseStrategy("file", "without statetype")
	if err != nil {
		t.Fatal(err)
	}
	conv, err := ParseStates("conv=bf16")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := ParseStates("cache=f16")
	if err != nil {
		t.Fatal(err)
	}
	noState, err := graph.Parse("graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\n%y = silu %x\noutput y = %y\n")
	if err != nil {
		t.Fatal(err)
	}
	unmatched, err := ParseStrategy("file", "op:matmul/1 units\n*.gone whole\nop:matmul/3 whole\noptional op:head_down whole\nop:silu/0 whole\n*.in_w.x units\n")
	if err != nil {
		t.Fatal(err)
	}
	noOutput, err := graph.Parse("graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\n%y = silu %x\n")
	if err != nil {
		t.Fatal(err)
	}
	compile := func(g *graph.Graph, o Options) func() error {
		return func() error { _, err := Compile(g, o); return err }
	}
	run := func(g *graph.Graph, o Options, names ...string) func() error {
		return func() error { _, err := Run(g, names, o); return err }
	}
	for _, c := range []struct {
		do   func() error
		want string
	}{
		{compile(g, Options{Ranks: -1}), "-1 ranks; the number must be from 1 to 64"},
		{compile(g, Options{Ranks: 65}), "65 ranks; the number must be from 1 to 64"},
		{compile(split, Options{Ranks: 3}), "the graph has stage=partitioned ranks=2 and cannot be sharded over 3 ranks"},
		{compile(split, Options{Strategy: Strategies[0]}), "strategy channel has no effect on a graph that is partitioned already"},
		{compile(split, Options{Quantize: fp16}), "payload fp16 has no effect on a graph that is partitioned already"},
		{compile(split, Options{States: conv}), "states conv=bf16 has no effect on a graph that is partitioned already"},
		{compile(g, Options{States: conv, Strategy: kept}), "states conv=bf16: no effect without the pass statetype"},
		{compile(g, Options{States: cache}), "pass statetype: states cache=f16: the graph has no state of kind cache; it has conv"},
		{compile(noState, Options{States: cache}), "pass statetype: states cache=f16: the graph has no states"},
		{compile(split, Options{Stop: graph.UnpackedStage}), "the graph is at stage partitioned already, and cannot go back to unpacked"},
		{compile(g, Options{Quantize: fp16}), "payload fp16: one rank has no all_reduces"},
		{compile(g, Options{Ranks: 2, Quantize: fp16, Strategy: plain}), "payload fp16: no effect without the pass quantize"},
		{compile(g, Options{Ranks: 2, Strategy: unmatched}), `pass partition: file: line 2: no value of the graph fits the pattern "*.gone"
file: line 3: no value of the graph fits the pattern "op:matmul/3"
file: line 5: no value of the graph fits the pattern "op:silu/0"
a placement file says optional before a pattern that some models have no value for`},
		{compile(g, Options{Strategy: unmatched}), ""},
		{compile(g, Options{Strategy: unmatched, Stop: graph.PartitionedStage}), ""}, // one rank
		{compile(noOutput, Options{}), "pass dce: the graph has no output"},
		{run(g, Options{Ranks: 2}, "unpack"), "2 ranks: no effect without the pass partition; the passes are unpack"},
		{run(g, Options{Strategy: plain}, "unpack"), "strategy file: no effect without the pass partition"},
		{run(split, Options{Quantize: fp16}, "merge"), "payload fp16: no effect without the pass quantize"},
		{run(split, Options{Quantize: fp16, Ranks: 2}, "quantize"), ""},
		{run(split, Options{}, "partition"), "pass partition: the graph is at stage partitioned; the pass takes [model unpacked]"},
	} {
		if err := c.do(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// TestStrategyPasses: a strategy adds passes and leaves some out, in the table's order.
func TestStrategyPasses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "dce statetype unpack decompose partition merge quantize fuse",
		"with norm-hoist":                       "dce statetype unpack decompose norm-hoist partition merge quantize fuse",
		"without merge unpack":                  "dce statetype decompose partition quantize fuse",
		"without fuse\nwith norm-hoist # why\n": "dce statetype unpack decompose norm-hoist partition merge quantize",
		"with":                                  "line 1: a pass is missing; it must be one of dce, statetype, unpack, ",
		"with best":                             `line 1: unknown pass "best"; it must be one of dce, statetype, unpack, `,
		"without norm-hoist best":               "line 1: pass norm-hoist does not run here; remove it from without",
		"without merge best":                    `line 1: unknown pass "best"`,
		"\nwith unpack":                         "line 2: pass unpack always runs; with is for the optional passes norm-hoist",
		"without merge merge":                   "line 1: pass merge does not run",
		"with norm-hoist norm-hoist":            "line 1: pass norm-hoist always runs",
		"without partition":                     "line 1: pass partition cannot be left out: the strategy configures it",
		"optional":                              `line 1: "" has no layout`,
		"optional x":                            `line 1: "x" has no layout`,
		"optional [ whole":                      `line 1: "[" is not a valid pattern`,
	} {
		s, err := ParseStrategy("file", text)
		got := fmt.Sprint(err)
		if err == nil {
			got = strings.Join(s.Passes, " ")
		}
		if got != want && !strings.HasPrefix(got, "file: "+want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := strings.Join(Default, " "); got != "dce statetype unpack decompose partition merge quantize fuse" {
		t.Errorf("a strategy changed the default: %s", got)
	}
}
