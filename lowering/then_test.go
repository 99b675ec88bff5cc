package lowering_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

const thenText = `graph "g" stage=fused ranks=2
input %h : f32[t 4/1]
param @g : f32[4/1]
param @w : f32[4/1 4/1] shard(1: split)
param @up : f32[4/1 4/1] shard(0: split)
%u = matmul %h @up
%o = matmul %u @w
%sum = all_reduce %o {then=add_rmsnorm}
%r %n = add_rmsnorm %h %sum @g {eps=1e-05}
output r = %r
output n = %n
`

// TestThen: the norm behind a marked all_reduce is found, and none where a launch lies between
// them, or where the schedule, edited, reads the sum elsewhere.
func TestThen(t *testing.T) {
	then := func(text string, edit func(*lowering.Schedule)) (ok bool, collectives int) {
		g, err := graph.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list, err := lowering.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		s := list[1]
		if edit != nil {
			edit(s)
		}
		for i := range s.Steps {
			k, found := s.Then(i)
			if s.Steps[i].Kind == lowering.Collective {
				collectives++
			}
			if ok = ok || found; found && (s.Steps[i].Kind != lowering.Collective || s.Steps[k].Op.Name != "add_rmsnorm") {
				t.Errorf("step %d, %s, goes with step %d, %s", i, &s.Steps[i], k, &s.Steps[k])
			}
		}
		return ok, collectives
	}
	for what, c := range map[string]struct {
		text string
		edit func(*lowering.Schedule)
		want bool
	}{
		"right behind": {thenText, nil, true},
		"not marked":   {strings.Replace(thenText, " {then=add_rmsnorm}", "", 1), nil, false},
		"a launch between": {strings.Replace(thenText, "%r %n = add_rmsnorm %h", "%a = silu %h\n%r %n = add_rmsnorm %a", 1),
			nil, false},
		"an output": {thenText, func(s *lowering.Schedule) {
			s.Outputs = append(s.Outputs, lowering.Output{Name: "sum", Ref: collectiveOf(s).Results[0]})
		}, false},
		"read later": {thenText, func(s *lowering.Schedule) {
			again := s.Steps[len(s.Steps)-1]
			again.Args = []lowering.Ref{collectiveOf(s).Results[0]}
			s.Steps = append(s.Steps, again)
		}, false},
	} {
		if ok, n := then(c.text, c.edit); ok != c.want || n != 1 {
			t.Errorf("%s: the norm is found: %v, want %v, of %d collectives", what, ok, c.want, n)
		}
	}
}

func collectiveOf(s *lowering.Schedule) *lowering.Step {
	return &s.Steps[slices.IndexFunc(s.Steps, func(st lowering.Step) bool { return st.Kind == lowering.Collective })]
}
