package passes

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

func TestParseStates(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "conv=bf16": "", "conv=bf16,cache=f16,ssm=bf16": "", "conv=e4m3,cache=e4m3": "", "ssm=f32,conv=f32,cache=f32": "",
		"bf16":                `states "bf16": "bf16" must be KIND=FORMAT, such as conv=bf16`,
		"conv=bf16,":          `states "conv=bf16,": "" must be KIND=FORMAT, such as conv=bf16`,
		"keys=f16":            `states "keys=f16": unknown kind "keys"; it must be one of conv, ssm, cache`,
		"conv=bf16,conv=bf16": `states "conv=bf16,conv=bf16": conv is given twice`,
		"conv=fp16":           `states "conv=fp16": unknown format "fp16"; it must be f32, f16, bf16 or e4m3`,
		"conv=":               `states "conv=": unknown format ""; it must be f32, f16, bf16 or e4m3`,
		"cache=i32":           `states "cache=i32": cache is i32; a state of kind cache is f32, f16, bf16 or e4m3`,
		"ssm=e4m3":            `states "ssm=e4m3": ssm is e4m3; a state of kind ssm is f32 or bf16`,
		"cache=e4m3/32":       `states "cache=e4m3/32": cache is e4m3/32; a state of kind cache is f32, f16, bf16 or e4m3`,
		"ssm=f16":             `states "ssm=f16": ssm is f16; a state of kind ssm is f32 or bf16`,
	} {
		if _, err := ParseStates(text); want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestStatesTakeLess: in 16 bits the states of a stack take half, on any number of
// ranks, and nothing else changes: neither activations nor what travels.
func TestStatesTakeLess(t *testing.T) {
	states, err := ParseStates("conv=bf16,ssm=bf16")
	if err != nil {
		t.Fatal(err)
	}
	for _, ranks := range []int{1, 2, 3} {
		plans := map[string]*lowering.Plan{}
		for name, o := range map[string]Options{"f32": {Ranks: ranks}, "bf16": {Ranks: ranks, States: states}} {
			g, err := Compile(stack(t, 2), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range g.Leaves("state") {
				if d := n.Results[0].Type.DType.String(); d != name {
					t.Errorf("%d ranks: %s is %s, want %s", ranks, n.Name(), d, name)
				}
			}
			all, err := lowering.Lower(g)
			if err != nil {
				t.Fatal(err)
			}
			if plans[name], err = lowering.NewPlan(all); err != nil {
				t.Fatal(err)
			}
		}
		for r := range ranks {
			wide, narrow := plans["f32"].Ranks[r], plans["bf16"].Ranks[r]
			if narrow.State >= wide.State || narrow.State < wide.State/2 {
				t.Errorf("rank %d of %d: states take %d bytes in bf16 and %d in f32", r, ranks, narrow.State, wide.State)
			}
			if z := (graph.Sizes{Tokens: 7, Seqs: 2, Rows: 2}); narrow.Arena.At(z) != wide.Arena.At(z) || narrow.Weights != wide.Weights || narrow.Launches != wide.Launches {
				t.Errorf("rank %d of %d: more than states changed", r, ranks)
			}
		}
		if len(plans["f32"].Collectives) != len(plans["bf16"].Collectives) {
			t.Errorf("%d ranks: the collectives changed", ranks)
		}
	}
}

// TestStatesLeaveTheGraph: the pass changes a copy.
func TestStatesLeaveTheGraph(t *testing.T) {
	states, err := ParseStates("conv=f16")
	if err != nil {
		t.Fatal(err)
	}
	g := stack(t, 1)
	text := graph.Print(g)
	out, err := Run(g, []string{"statetype"}, Options{States: states})
	if err != nil {
		t.Fatal(err)
	}
	if graph.Print(g) != text || !strings.Contains(graph.Print(out), "f16[s") {
		t.Errorf("from\n%s\ncame\n%s", text, graph.Print(out))
	}
}
