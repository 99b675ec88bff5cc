package explain_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
	"github.com/krait-ml/krait/visualize/explain"
)

// input is what the page of a graph is made of.
func input(t testing.TB, g *graph.Graph, ranks int, strategy string, batch, prompt int64) *explain.Input {
	t.Helper()
	in := &explain.Input{Model: g.Name, Strategy: strategy, Stages: []explain.Stage{{Graph: g}}, Unproved: "one rank"}
	o := passes.Options{Ranks: ranks}
	var err error
	if ranks > 1 {
		if o.Strategy, err = passes.FindStrategy(strategy); err != nil {
			t.Fatal(err)
		}
	}
	var source, partitioned *graph.Graph
	source = g
	o.Dump = func(_ int, pass string, g *graph.Graph) error {
		in.Stages = append(in.Stages, explain.Stage{Pass: pass, Doc: pass, Graph: g})
		if g.Stage <= graph.UnpackedStage {
			source = g
		}
		if g.Stage == graph.PartitionedStage {
			partitioned = g
		}
		return nil
	}
	if _, err = passes.Compile(g, o); err != nil {
		t.Fatal(err)
	}
	if partitioned != nil {
		if in.Certificate, err = prove.Prove(source, partitioned, prove.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if in.Schedules, err = lowering.Lower(in.Stages[len(in.Stages)-1].Graph); err != nil {
		t.Fatal(err)
	}
	runs(t, in, batch, prompt)
	return in
}

// runs takes a prompt and a token on the virtual device.
func runs(t testing.TB, in *explain.Input, batch, prompt int64) {
	hw, err := cost.Find("a100-nvlink")
	if err != nil {
		t.Fatal(err)
	}
	var events []exec.Event
	m, err := virtual.New(in.Schedules, &virtual.Device{Profile: hw}, exec.Setup{Slots: int(batch), PageTokens: 128, Record: func(e []exec.Event) { events = slices.Clone(e) }})
	if err != nil {
		t.Fatal(err)
	}
	wanted := make(lowering.OutputMask, len(in.Schedules[0].Outputs))
	for i := range wanted {
		wanted[i] = true
	}
	for _, r := range []explain.Run{
		{Name: "prompt", Sizes: graph.Sizes{Tokens: batch * prompt, Seqs: batch, Rows: batch, Cached: batch * prompt, Pairs: batch * prompt * (prompt + 1) / 2}},
		{Name: "decode", Sizes: graph.Sizes{Tokens: batch, Seqs: batch, Rows: batch, Cached: batch * (prompt + 1), Pairs: batch * (prompt + 1)}},
	} {
		if _, err := m.Run(r.Sizes, wanted); err != nil {
			t.Fatal(err)
		}
		r.Events, r.Clock, r.About = events, hw.Name, "a batch"
		in.Runs = append(in.Runs, r)
	}
}

func golden(t testing.TB, name string) *graph.Graph {
	t.Helper()
	_, g, err := checkpoint.Describe(filepath.Join("..", "..", "testdata", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// page is the page of an input, and the data in it.
func page(t testing.TB, in *explain.Input) (html string, d document) {
	t.Helper()
	var text bytes.Buffer
	err := explain.Page(&text, in)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(text.String(), `id="data">`)
	data, _, ends := strings.Cut(rest, "</script>")
	if !ok || !ends {
		t.Fatal("the page has no data")
	}
	var sides []document
	if err := json.Unmarshal([]byte(data), &sides); err != nil {
		t.Fatal(err)
	}
	return text.String(), sides[0]
}

// document is what the script reads, as far as tests look at it.
type document struct {
	Sections []string
	Stages   []stage
	Steps    []struct{ N string }
	Runs     []struct {
		Counts []int64
		Ranks  []struct {
			Same int
			I    []int
			T, D []int64
		}
		End, Exposed, Comm float64
	}
	Collectives []struct {
		N, K, R string
		P, S, D []int64
	}
	Memory []struct {
		Same    int
		Regions []int64
		Buffers []struct {
			N    string
			G    int
			O, B int64
			F, T int
		}
	}
}

type stage struct {
	Pass  string
	Kinds []struct {
		Nodes []struct {
			O string
			R [][]any
			A []any
			S any
		}
		Variants [][]string
	}
	Of   [][2]int
	Diff *struct {
		Pairs                          [][][3]int
		Of                             []int
		Added, Removed, Changed, Moved int
	}
}

var relative = regexp.MustCompile("\x01(-?\\d+)\x01")

// slot is a text of a section, as the script works it out.
func (s *stage) slot(sections []string, section int, x any) string {
	i, ok := x.(float64)
	if !ok {
		return x.(string)
	}
	own, _ := strconv.Atoi(strings.TrimPrefix(sections[section], "layers."))
	return relative.ReplaceAllStringFunc(s.Kinds[s.Of[section][0]].Variants[s.Of[section][1]][int(i)], func(m string) string {
		n, _ := strconv.Atoi(strings.Trim(m, "\x01"))
		return strconv.Itoa(own + n)
	})
}

// lines are the nodes of a stage as text.
func (s *stage) lines(sections []string) []string {
	var out []string
	for i, of := range s.Of {
		block := ""
		if strings.HasPrefix(sections[i], "layers.") {
			block = sections[i] + "."
		}
		for _, n := range s.Kinds[of[0]].Nodes {
			line := n.O
			for _, r := range n.R {
				if name, ok := r[0].(string); ok {
					line += " %" + block + name
				} else {
					line += " %" + s.slot(sections, i, r[0])
				}
				line += fmt.Sprint(" ", r[1], " ", r[2])
			}
			for _, a := range n.A {
				if name, ok := a.(string); ok {
					line += " <" + name[:1] + block + name[1:]
				} else {
					line += " <" + s.slot(sections, i, a)
				}
			}
			if n.S != nil {
				line += s.slot(sections, i, n.S)
			}
			out = append(out, line)
		}
	}
	return out
}

// linesOf are those of the graph itself, section by section.
func linesOf(g *graph.Graph) []string {
	var out []string
	for _, n := range g.Nodes {
		line := n.Op.Name
		for _, v := range n.Results {
			layout := v.Type.LayoutString()
			line += " %" + v.Name + " " + strings.TrimSuffix(strings.TrimSuffix(v.Type.String(), layout), " ") + " " + layout
		}
		for _, v := range n.Args {
			sigil := "%"
			if v.Def.Op.Name == "param" {
				sigil = "@"
			}
			line += " <" + sigil + v.Name
		}
		if n.Storage != nil {
			line += n.Storage.String()
		}
		if n.Part != nil {
			line += n.Part.String()
		}
		out = append(out, line)
	}
	return out
}

// TestFolded: what the page has of each graph, with equal layers once, is all of it, for
// families whose layers share parameters too.
func TestFolded(t *testing.T) {
	for _, c := range []struct {
		golden, strategy string
		ranks            int
	}{{"mamba-a", "channel", 1}, {"mamba-a", "channel", 3}, {"zamba2", "channel", 2}, {"jamba", "sequence", 2}, {"bamba", "hoisted", 2}, {"falcon-h1", "channel", 4}, {"granite-hybrid", "channel", 3}, {"nemotron-h-moe", "sequence", 2}} {
		in := input(t, golden(t, c.golden), c.ranks, c.strategy, 2, 5)
		_, d := page(t, in)
		for i := range d.Stages {
			got, want := d.Stages[i].lines(d.Sections), linesOf(in.Stages[i].Graph)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				for k := range min(len(got), len(want)) {
					if got[k] != want[k] {
						t.Fatalf("%s on %d, stage %d: the page has\n%s\nthe graph\n%s", c.golden, c.ranks, i, got[k], want[k])
					}
				}
				t.Fatalf("%s on %d, stage %d: the page has %d nodes, the graph %d", c.golden, c.ranks, i, len(got), len(want))
			}
		}
	}
}

// TestRows: the rows of a section have each node of both sides once, in order but for those
// that moved, and say of each whether it is the same.
func TestRows(t *testing.T) {
	for _, name := range []string{"mamba2-g1", "zamba2", "jamba"} {
		_, d := page(t, input(t, golden(t, name), 2, "channel", 1, 4))
		for i := 1; i < len(d.Stages); i++ {
			before, after := &d.Stages[i-1], &d.Stages[i]
			var counts [6]int
			for section := range d.Sections {
				rows := after.Diff.Pairs[after.Diff.Of[section]]
				var left, right []int
				for _, r := range rows {
					counts[r[0]]++
					if r[0] != 3 && r[0] != 5 {
						left = append(left, r[1])
					}
					if r[0] != 2 && r[0] != 4 {
						right = append(right, r[2])
					}
				}
				for _, side := range []struct {
					list []int
					n    int
				}{{left, len(before.Kinds[before.Of[section][0]].Nodes)}, {right, len(after.Kinds[after.Of[section][0]].Nodes)}} {
					if len(side.list) != side.n || !slices.IsSorted(side.list) {
						t.Fatalf("%s, %s, %s: rows have %v of %d nodes", name, after.Pass, d.Sections[section], side.list, side.n)
					}
				}
			}
			if c := after.Diff; c.Changed != counts[1] || c.Removed != counts[2] || c.Added != counts[3] || c.Moved != counts[5] || counts[1]+counts[2]+counts[3] == 0 {
				t.Errorf("%s, %s: %d changed, %d removed, %d added and %d moved are counted, and rows are %v", name, after.Pass, c.Changed, c.Removed, c.Added, c.Moved, counts)
			}
		}
	}
}

// TestAlign: of random lists the rows give both sides back.
func TestAlign(t *testing.T) {
	seed := prop.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		names := r.Perm(12)
		a, b := names[:r.IntN(12)], slices.Clone(names[r.IntN(6):])
		if r.IntN(3) == 0 {
			r.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
		}
		pairs := explain.Common(a, b)
		last := [2]int{-1, -1}
		for _, p := range pairs {
			if a[p[0]] != b[p[1]] || p[0] <= last[0] || p[1] <= last[1] {
				t.Fatalf("%v and %v have %v in common", a, b, pairs)
			}
			last = p
		}
		if n := longest(a, b); len(pairs) != n {
			t.Fatalf("%v and %v have %d in common, and %v was found", a, b, n, pairs)
		}
	}
}

// longest is how many a and b have in common in order, by the textbook.
func longest(a, b []int) int {
	best := make([][]int, len(a)+1)
	for i := range best {
		best[i] = make([]int, len(b)+1)
	}
	for i := range a {
		for j := range b {
			if best[i+1][j+1] = max(best[i][j+1], best[i+1][j]); a[i] == b[j] {
				best[i+1][j+1] = best[i][j] + 1
			}
		}
	}
	return best[len(a)][len(b)]
}

// TestMemory: what lives at the same time lies apart, and within what the plan says.
func TestMemory(t *testing.T) {
	for _, strategy := range []string{"channel", "sequence"} {
		in := input(t, golden(t, "jamba"), 3, strategy, 3, 7)
		plan, err := lowering.NewPlan(in.Schedules)
		if err != nil {
			t.Fatal(err)
		}
		_, d := page(t, in)
		for rank, m := range d.Memory {
			if m.Same >= 0 {
				m = d.Memory[m.Same]
			}
			for k := range d.Runs {
				sum := int64(0)
				for i, b := range m.Regions {
					sum += b * d.Runs[k].Counts[i]
				}
				if want := plan.Ranks[rank].Arena.At(in.Runs[k].Sizes); sum != want {
					t.Errorf("%s, rank %d: an arena of %d bytes, and %d are planned", strategy, rank, sum, want)
				}
			}
			for i, a := range m.Buffers {
				if a.O+a.B > m.Regions[a.G] {
					t.Errorf("%s ends at %d of %d", a.N, a.O+a.B, m.Regions[a.G])
				}
				for _, b := range m.Buffers[:i] {
					// A result may take the place of an operand that dies at its step.
					if a.G == b.G && a.F < b.T && b.F < a.T && a.O < b.O+b.B && b.O < a.O+a.B {
						t.Errorf("%s, steps %d to %d at %d, and %s, %d to %d at %d, lie over each other", a.N, a.F, a.T, a.O, b.N, b.F, b.T, b.O)
					}
				}
			}
		}
	}
}

// TestEvents: each rank has each step that it ran once, at its time, and collectives add up.
func TestEvents(t *testing.T) {
	in := input(t, golden(t, "mamba-a"), 2, "channel", 1, 9)
	_, d := page(t, in)
	for k, r := range d.Runs {
		if len(r.Ranks) != 2 || r.End <= 0 || r.Comm <= 0 || r.Exposed < 0 || r.Exposed > r.Comm+1e-12 {
			t.Fatalf("%d ranks, %g s, %g at collectives, %g of it exposed", len(r.Ranks), r.End, r.Comm, r.Exposed)
		}
		for rank, x := range r.Ranks {
			if x.Same >= 0 {
				x = r.Ranks[x.Same]
			}
			n := 0
			for _, e := range in.Runs[k].Events {
				if e.Rank != rank || e.Kind == lowering.Wait {
					continue
				}
				if d.Steps[x.I[n]].N != e.Name || x.D[n] < 0 || float64(x.D[n]) > (e.End-e.Start)*1e9+2 {
					t.Fatalf("event %d of rank %d is %s for %d ns, and was %+v", n, rank, d.Steps[x.I[n]].N, x.D[n], e)
				}
				n++
			}
			if n != len(x.I) {
				t.Errorf("rank %d has %d events of %d", rank, len(x.I), n)
			}
		}
	}
	for _, c := range d.Collectives {
		if c.R == "" || c.P[0] <= 0 || c.D[0] <= 0 {
			t.Errorf("%+v has no reason, payload or time", c)
		}
	}
}

// TestBad: what is no page is an error.
func TestBad(t *testing.T) {
	in := input(t, golden(t, "mamba-a"), 2, "channel", 1, 9)
	for name, change := range map[string]func(in *explain.Input){
		"no graph":       func(in *explain.Input) { in.Stages = nil },
		"no schedule":    func(in *explain.Input) { in.Schedules = nil },
		"unknown step":   func(in *explain.Input) { in.Runs[0].Events = []exec.Event{{Name: "nothing"}} },
		"unknown rank":   func(in *explain.Input) { in.Runs[0].Events[0].Rank = 2 },
		"ends too early": func(in *explain.Input) { in.Runs[0].Events[0].End = -1 },
	} {
		bad := *in
		bad.Runs = slices.Clone(in.Runs)
		bad.Runs[0].Events = slices.Clone(in.Runs[0].Events)
		change(&bad)
		if err := explain.Page(io.Discard, &bad); err == nil {
			t.Errorf("%s: a page", name)
		}
	}
}

// hostile is what a model may be called.
const hostile = `</script><script>window.bad=1</script><img src=x onerror="window.bad=2">&lt;"'` + "\u202e\x00\u2028]]>"

// TestHostile: no text of a model is markup, whatever it is.
func TestHostile(t *testing.T) {
	in := input(t, golden(t, "mamba-a"), 2, "channel", 1, 4)
	in.Model, in.Strategy, in.Facts = hostile, hostile, []explain.Fact{{Name: hostile, Text: hostile}}
	in.Stages[0].Doc, in.Runs[0].About = hostile, hostile
	html, _ := page(t, in)
	for _, bad := range []string{"<img", "window.bad=1</script>", "\u202e", "\x00", "\u2028"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page has %q as it stands", bad)
		}
	}
	if n := strings.Count(html, "<script"); n != 2 {
		t.Errorf("there are %d scripts", n)
	}
}
