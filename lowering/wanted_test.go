package lowering

import (
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// chooses has a state, logits, and tokens chosen from them.
var chooses = `graph "g" stage=fused ranks=1
input %x : f32[t 4]
input %seg : i32[s 3]
input %rows : i32[o]
param @c : f32[4 2]
state %s : f32[s 4 1]
%y %new = conv1d %x @c %s %seg
%z = silu %y
%last = select_rows %z %rows
param @w : f32[40 4]
%logits = matmul %last @w
input %choice : ` + graph.ChoiceType().String() + `
input %seen : ` + graph.SeenType(40).String() + `
%tokens = choose %logits %choice %seen
output logits = %logits
output tokens = %tokens
`

// lines are those of a schedule's text that begin with a word of those given.
func linesOf(s *Schedule, words ...string) string {
	var out []string
	for line := range strings.SplitSeq(s.String(), "\n") {
		if word, _, _ := strings.Cut(line, " "); slices.Contains(words, word) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// TestFor: what updates a state always runs; the rest says for which outputs.
func TestFor(t *testing.T) {
	s := lower(t, chooses)[0]
	const want = `compute y, new = conv1d x, c, s, seg
compute z = silu y for logits, tokens
compute last = select_rows z, rows for logits, tokens
compute logits = matmul last, w for logits, tokens
compute tokens = choose logits, choice, seen for tokens
output logits = logits
output tokens = tokens`
	if got := linesOf(s, "compute", "output"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for name, want := range map[string]string{"x": "", "seg": "", "rows": "logits tokens", "choice": "tokens", "seen": "tokens"} {
		i := slices.IndexFunc(s.Buffers, func(b Buffer) bool { return b.Name == name })
		got := strings.ReplaceAll(strings.TrimPrefix(s.outputNames(s.Buffers[i].For), " for "), ",", "")
		if got != want {
			t.Errorf("input %s is for %q, want %q", name, got, want)
		}
	}
	for wanted, want := range map[string]string{"": "y", "logits": "y z last logits", "tokens": "y z last logits tokens"} {
		o, err := s.Only(strings.Fields(wanted)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Check(); err != nil {
			t.Error(err)
		}
		var got []string
		for _, st := range o.Steps {
			got = append(got, st.Name)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("outputs %q: the steps are %q, want %q", wanted, text, want)
		}
		if inputs := strings.Count(linesOf(o, "buffer"), " input+"); inputs != map[string]int{"": 2, "logits": 3, "tokens": 5}[wanted] {
			t.Errorf("outputs %q: %d inputs", wanted, inputs)
		}
	}
	if _, err := s.Only("hidden"); err == nil || err.Error() != `unknown output "hidden"` {
		t.Errorf("got %v", err)
	}
}

// TestForState: Check refuses a step that updates a state and may be left out.
func TestForState(t *testing.T) {
	s := lower(t, chooses)[0]
	s.Steps[0].For = []int{0, 1}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "what updates a state always runs") {
		t.Errorf("got %v", err)
	}
}

// TestPlanOfTokens: a plan counts what runs for tokens; all steps without tokens.
func TestPlanOfTokens(t *testing.T) {
	s := lower(t, strings.Replace(chooses, "output logits = %logits\n", "%more = silu %last\noutput more = %more\n", 1))
	if p, err := NewPlan(s); err != nil || p.Ranks[0].Launches != 5 {
		t.Errorf("%+v, %v; want 5 launches", p, err)
	}
	s = lower(t, strings.Replace(chooses, "output tokens", "output others", 1))
	if p, err := NewPlan(s); err != nil || p.Ranks[0].Launches != 5 {
		t.Errorf("%+v, %v; want 5 launches", p, err)
	}
}

// TestWanted: on random graphs, for all outputs and for none, for each and for those
// drawn, what runs is what the graph needs, and it reads what it read in the whole.
func TestWanted(t *testing.T) {
	left := 0
	prop.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		for _, n := range g.Nodes {
			if v := n.Results[0]; n.Op.Class == graph.Compute && v.Type.Layout.Kind == graph.Replicated && rapid.Bool().Draw(t, "output") {
				_ = g.AddOutput(v.Name, v)
			}
		}
		schedules, err := Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		subset := rapid.SliceOfN(rapid.Bool(), len(g.Outputs), len(g.Outputs)).Draw(t, "wanted")
		var names []string
		for i, o := range g.Outputs {
			if subset[i] {
				names = append(names, o.Name)
			}
		}
		for _, s := range schedules {
			need := needed(g, s, names)
			o, err := s.Only(names...)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.Check(); err != nil {
				t.Fatalf("%v\n%s\n%s", err, s, o)
			}
			reads := readsOf(s)
			for name, read := range readsOf(o) {
				if reads[name] != read {
					t.Fatalf("%s reads %s, in the whole %s\n%s\n%s", name, read, reads[name], s, o)
				}
			}
			runs := map[string]bool{}
			for _, st := range o.Steps {
				runs[st.Name] = true
			}
			for _, st := range s.Steps {
				if st.Kind == Record || st.Kind == Wait {
					continue
				}
				if runs[st.Name] != need[st.Name] {
					t.Fatalf("outputs %q: %s runs: %v, want %v\n%s", names, st.Name, runs[st.Name], need[st.Name], s)
				}
				if !runs[st.Name] {
					left++
				}
			}
		}
	})
	if left < 6 { // of 20 draws, or 100 in CI
		t.Errorf("only %d steps were left out", left)
	}
}

// readsOf is what each step reads, by its name; outputs by none.
func readsOf(s *Schedule) map[string]string {
	read, at, out := meant(s), 0, map[string]string{}
	for _, st := range s.Steps {
		if st.Kind != Record && st.Kind != Wait {
			out[st.Name] = read[at]
			at++
		}
	}
	return out
}

// needed says by name which nodes some outputs need, or what always runs: what
// updates a state, collectives, and steps of a schedule that nothing comes of.
func needed(g *graph.Graph, s *Schedule, outputs []string) map[string]bool {
	takers := map[*graph.Value][]*graph.Node{}
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			takers[v] = append(takers[v], n)
		}
	}
	step := map[string]bool{}
	for _, st := range s.Steps {
		step[st.Name] = true
	}
	// What makes no step passes each operand on as the result of the same number.
	var used func(v *graph.Value) bool
	used = func(v *graph.Value) bool {
		return slices.ContainsFunc(g.Outputs, func(o graph.Output) bool { return o.Value == v }) ||
			slices.ContainsFunc(takers[v], func(n *graph.Node) bool { return step[n.Name()] || used(n.Results[slices.Index(n.Args, v)]) })
	}
	need := map[string]bool{}
	var visit func(v *graph.Value)
	visit = func(v *graph.Value) {
		n := v.Def
		if !step[n.Name()] && n.Op.Class != graph.Leaf {
			visit(n.Args[slices.Index(n.Results, v)])
		} else if !need[n.Name()] {
			need[n.Name()] = true
			for _, v := range n.Args {
				visit(v)
			}
		}
	}
	for _, n := range g.Nodes {
		exchanges := n.Op.Class == graph.Collective && g.Ranks > 1
		if exchanges || len(n.Op.States) > 0 || step[n.Name()] && !slices.ContainsFunc(n.Results, used) {
			visit(n.Results[0])
		}
	}
	for _, o := range g.Outputs {
		if slices.Contains(outputs, o.Name) {
			visit(o.Value)
		}
	}
	return need
}

// TestForRefuses: whatever step or input is taken from the users of what it makes,
// Check refuses it.
func TestForRefuses(t *testing.T) {
	for i := range lower(t, chooses)[0].Steps {
		s := lower(t, chooses)[0]
		if s.Steps[i].Name == "tokens" {
			continue // only its output needs it
		}
		s.Steps[i].For = []int{0} // the logits alone
		if err := s.Check(); err == nil {
			t.Errorf("Check is content where %s is for the logits alone", s.Steps[i].Name)
		}
	}
	for i, b := range lower(t, chooses)[0].Buffers {
		s := lower(t, chooses)[0]
		s.Buffers[i].For = []int{0}
		if err := s.Check(); b.Space == Input && err == nil {
			t.Errorf("Check is content where %s is for the logits alone", b.Name)
		}
	}
	s := lower(t, chooses)[0]
	s.Steps[len(s.Steps)-1].For = []int{0}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "output tokens reads tokens, which is there for logits only") {
		t.Errorf("got %v", err)
	}
}
