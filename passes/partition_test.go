package passes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// stack is n blocks of the shape of a Mamba block, of the sizes of Mamba-2.8B.
func stack(t testing.TB, n int) *graph.Graph {
	b := graph.New("stack")
	hidden, inner, states, rank := graph.Size(2560), 5120, 16, 160
	param := func(l *graph.Builder, name string, dims ...graph.Dim) *graph.Value {
		return l.Param(name, graph.TypeOf(graph.F32, dims...), nil)
	}
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), hidden))
	seg := b.Input("seg", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs), graph.Size(3)))
	for i := range n {
		l := b.In("layers", i)
		ch := graph.Units(inner, 1)
		xz := l.MatMul("in_proj", l.RMSNorm("norm", x, param(l, "norm_w", hidden), 1e-5),
			param(l, "in_w", graph.Pack(graph.Field{Name: "x", Size: inner, Unit: 1}, graph.Field{Name: "z", Size: inner, Unit: 1}), hidden))
		conv := l.State("past", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), ch, graph.Size(3)))
		u := l.Map("u", "silu", l.Conv1D("conv", l.Field("x", xz), param(l, "taps", ch, graph.Size(4)), conv, seg))
		dbc := l.MatMul("x_proj", u, param(l, "x_w", graph.Pack(graph.Field{Name: "dt", Size: rank}, graph.Field{Name: "B", Size: states}, graph.Field{Name: "C", Size: states}), ch))
		dt := l.Map("delta", "softplus", l.MatMul("dt_proj", l.Field("dt", dbc), param(l, "dt_w", ch, graph.Size(rank))))
		a := l.Map("A", "neg_exp", param(l, "A_log", ch, graph.Size(states)))
		h := l.State("ssm", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), ch, graph.Size(states)))
		y := l.SelectiveScan("y", u, dt, a, l.Field("B", dbc), l.Field("C", dbc), h, seg)
		g := l.Mul("g", y, l.Map("gate", "silu", l.Field("z", xz)))
		x = l.Add("h", x, l.MatMul("out_proj", g, param(l, "out_w", hidden, ch)))
	}
	b.Output("y", x)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestTwoAllReduces: the block has two collectives at every number of ranks, with
// t × (R+2N) and t × H elements; the template has four gathers.
func TestTwoAllReduces(t *testing.T) {
	g := stack(t, 3)
	for ranks := 2; ranks <= MaxRanks; ranks++ {
		out, err := Run(g, Default, Options{Ranks: ranks})
		if err != nil {
			t.Fatal(err)
		}
		template, err := FindStrategy("naive")
		if err != nil {
			t.Fatal(err)
		}
		naive, err := Compile(g, Options{Ranks: ranks, Strategy: template})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range g.Blocks() {
			if got := collectives(out, b); got != "all_reduce 192·t, all_reduce 2560·t" {
				t.Errorf("%d ranks, %s: %s", ranks, b, got)
			}
			if got := collectives(naive, b); got != "all_gather 10240·t, all_gather 192·t, all_gather 5120·t, all_gather 2560·t" {
				t.Errorf("naive, %d ranks, %s: %s", ranks, b, got)
			}
		}
	}
}

func collectives(g *graph.Graph, block string) string {
	var list []string
	for _, n := range g.Nodes {
		if n.Op.Class == graph.Collective && n.Block() == block {
			list = append(list, n.Op.Name+" "+n.Results[0].Type.Elems().String())
		}
	}
	return strings.Join(list, ", ")
}

// TestSameText: compiling again gives the same text; so does every run with maps
// walked in another order.
func TestSameText(t *testing.T) {
	want := ""
	for range 20 {
		out, err := Run(stack(t, 2), Default, Options{Ranks: 5})
		if err != nil {
			t.Fatal(err)
		}
		if text := graph.Print(out); want == "" {
			want = text
		} else if text != want {
			t.Fatal("two compilations of one graph differ")
		}
	}
}

func TestDump(t *testing.T) {
	var seen []string
	_, err := Run(stack(t, 1), Default, Options{Ranks: 2, Dump: func(i int, pass string, g *graph.Graph) error {
		seen = append(seen, fmt.Sprintf("%d %s %s", i, pass, g.Stage))
		return nil
	}})
	if got := strings.Join(seen, ", "); err != nil || got != "3 unpack unpacked, 5 partition partitioned, 8 fuse fused" {
		t.Errorf("%s: %v", got, err)
	}
}

// TestBrokenPassIsNamed: a pass that breaks an invariant, or panics, is named.
func TestBrokenPassIsNamed(t *testing.T) {
	for want, run := range map[string]func(*graph.Graph, *Options) (*graph.Graph, error){
		"BUG: planted": func(*graph.Graph, *Options) (*graph.Graph, error) { panic("planted") },
		"BUG: left the graph at stage model instead of unpacked": func(g *graph.Graph, _ *Options) (*graph.Graph, error) { return g, nil },
		"BUG: the graph does not check afterwards: u: operand": func(*graph.Graph, *Options) (*graph.Graph, error) {
			return graph.Parse("graph \"g\" stage=unpacked ranks=1\ninput %x : f32[t 4]\nparam @w : f32[3 3]\n%u = matmul %x @w : f32[t 4]")
		},
	} {
		p := &Pass{Name: "broken", From: []graph.Stage{graph.ModelStage}, To: graph.UnpackedStage, Run: run}
		if _, err := p.run(stack(t, 1), &Options{Ranks: 1}, new(graph.Checker)); err == nil || !strings.Contains(err.Error(), strings.Split(want, ": u:")[0]) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestStrategyFiles(t *testing.T) {
	for text, want := range map[string]string{
		"*":                 `file: line 1: "*" has no layout`,
		"# doc\n\nx  halve": `file: line 3: unknown layout "halve"`,
		"x split:y":         `unknown layout "split:y"`,
		"[ whole":           `"[" is not a valid pattern`,
		"border odd":        `file: line 1: border odd; it must be whole, even, sequence or parts`,
		"border":            `file: line 1: border ; it must be whole, even, sequence or parts`,
	} {
		if _, err := ParseStrategy("file", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
	for _, s := range Strategies {
		if s.Doc == "" {
			t.Errorf("strategy %s has no doc", s.Name)
		}
	}
	if _, err := FindStrategy("best"); err == nil || !strings.Contains(err.Error(), `unknown strategy "best"; it must be one of channel, hoisted, replicated-x, sequence, batch, context, naive, paper-naive`) {
		t.Error(err)
	}
	bad, err := ParseStrategy("file", "* split:7")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(stack(t, 1), Default, Options{Ranks: 2, Strategy: bad}); err == nil || !strings.Contains(err.Error(), "x: strategy file: axis 7 of f32[t 2560] cannot be split") {
		t.Error(err)
	}
}

// TestRowsByPattern: a placement file may say of a value that its rows are split; what has
// none is an error.
func TestRowsByPattern(t *testing.T) {
	s, err := ParseStrategy("file", "layers.*.h even\nx whole even\nlayers.*.out_proj partial even\n* units")
	if err != nil {
		t.Fatal(err)
	}
	g, err := Run(stack(t, 1), Default, Options{Ranks: 4, Strategy: s})
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := g.Value("layers.0.h"); v.Type.String() != "f32[t 2560] shard(0: even)" {
		t.Errorf("h is %s", v.Type)
	}
	if s, err = ParseStrategy("file", "layers.*.norm_w sequence\n* units"); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(stack(t, 1), Default, Options{Ranks: 4, Strategy: s}); err == nil || !strings.Contains(err.Error(), "layers.0.norm_w: strategy file: f32[2560] has no tokens to be split sequence") {
		t.Error(err)
	}
}

// BenchmarkCompile compiles stacks of 16 to 128 blocks of the sizes of
// Mamba-2.8B for 8 ranks, and 64 with their tokens split.
func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{16, 32, 64, 128} {
		for _, strategy := range []string{"channel", "sequence"} {
			s, err := FindStrategy(strategy)
			if err != nil {
				b.Fatal(err)
			}
			if n != 64 && strategy != "channel" {
				continue
			}
			b.Run(fmt.Sprint("layers=", n, "/", strategy), func(b *testing.B) {
				g := stack(b, n)
				for b.Loop() {
					if _, err := Run(g, Default, Options{Ranks: 8, Strategy: s}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
