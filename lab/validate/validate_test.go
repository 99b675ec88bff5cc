package validate

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/passes"
)

// TestRepeats: the same seed gives the same report, another seed another.
func TestRepeats(t *testing.T) {
	g := golden(t, "falcon-h1")
	out := compiled(t, g, passes.Options{Ranks: 3}, "fp16")
	run := func(seed uint64) *Report {
		r, err := Run(t.Context(), g, out, Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one := run(0)
	if again := run(1); one.Seed != 1 || !reflect.DeepEqual(one, again) {
		t.Errorf("%s\nand again\n%s", one, again)
	}
	if other := run(2); other.Seed != 2 || reflect.DeepEqual(one.Parts, other.Parts) {
		t.Errorf("seeds 1 and 2 give the same:\n%s", other)
	}
	text, err := json.Marshal(one)
	if err != nil || !strings.Contains(string(text), `"seed":1,"tokens":3,"sequences":2,"parts":[{"values":`) {
		t.Errorf("%s, %v", text, err)
	}
	for _, want := range []string{"(seed 1)", "3 tokens in 2 sequences", "outside of blocks: ", " values, off by at most ", " with payloads rounded"} {
		if !strings.Contains(one.String(), want) {
			t.Errorf("%q is not in\n%s", want, one)
		}
	}
}

// TestMemory: what takes more than is allowed is not run, and says so.
func TestMemory(t *testing.T) {
	g := golden(t, "zamba")
	out := compiled(t, g, passes.Options{Ranks: 4}, "")
	done := 0
	r, err := Run(t.Context(), g, out, Options{Memory: 200 << 10, Progress: func(n, all int) {
		if done++; n != done || all < n {
			t.Errorf("%d of %d", n, all)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	skipped := 0
	for _, p := range r.Parts {
		if p.Skipped != "" {
			skipped++
			if !strings.Contains(p.Skipped, "MiB, more than the 0.2 MiB allowed") || p.Values > 0 {
				t.Errorf("%+v", p)
			}
		}
	}
	if skipped == 0 || skipped == len(r.Parts) || done != len(r.Parts) {
		t.Errorf("%d of %d are skipped:\n%s", skipped, len(r.Parts), r)
	}
}

// TestSkipped: what cannot be executed is no error.
func TestSkipped(t *testing.T) {
	const head = "graph \"g\" stage=model ranks=1\n"
	for _, c := range []struct{ name, text, want string }{
		{"integers of unclear use", "input %i : i32[t]\ninput %x : f32[t 4]\n%y = select_rows %x %i\n%e = add %y %y\noutput y = %e", "i is i32[t], and what it is used for"},
		{"integers without a reader", "input %x : f32[t 4]\ninput %i : i32[t]\n%y = silu %x\noutput y = %y\noutput i = %i", "i is i32[t], and what it is used for"},
		{"a symbol inside", "input %x : f32[4 t]\n%y = silu %x\noutput y = %y", "how large t is"},
		{"a symbol of caches", "input %x : f32[c 4]\n%y = silu %x\noutput y = %y", "how large c is"},
		{"numbers that overflow", "input %x : f32[t 4]\n%a = times %x {by=1e300}\n%y = mul %a %a\noutput y = %y", "y has +Inf in the source"},
		{"pieces of unknown size", "input %x : f32[t 4]\nparam @w : f32[3 4] from \"a\" \"b\"\n%y = matmul %x @w\noutput y = %y", `rows of tensor "a" of several are not known`},
		{"a parameter of another format", "input %x : f32[t 4]\nparam @w : f64[3 4]\n%y = matmul %x @w : f32[t 3]\noutput y = %y", "parameter w is f64[3 4]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := parse(t, head+c.text)
			r, err := Run(t.Context(), g, g, Options{})
			if err != nil || len(r.Parts) != 1 || !strings.Contains(r.Parts[0].Skipped, c.want) || !strings.Contains(r.String(), "not executed: ") {
				t.Errorf("%v\n%s", err, r)
			}
		})
	}
	// A value of another block that the source does not have.
	g := parse(t, head+"input %x : f32[t 4]\nblock layers.0\n  %h = silu %/x\nblock layers.1\n  %h = silu %/layers.0.h\n\noutput y = %layers.1.h")
	out := parse(t, head+"input %x : f32[t 4]\nblock layers.0\n  %k = silu %/x\nblock layers.1\n  %h = silu %/layers.0.k\n\noutput y = %layers.1.h")
	r, err := Run(t.Context(), g, out, Options{})
	if err != nil || len(r.Parts) != 2 || !strings.Contains(r.Parts[0].Skipped, "layers.0.h leaves it in the source") || !strings.Contains(r.Parts[1].Skipped, "layers.0.k comes from elsewhere") {
		t.Errorf("%v\n%s", err, r)
	}
}

// TestStored: parameters in pieces, permuted, and in shapes that no type says are
// made, alike on both sides.
func TestStored(t *testing.T) {
	const head = "graph \"g\" stage=model ranks=1\ninput %x : f32[t 6/1]\n"
	for _, from := range []string{``, ` from "w" shape(5 1 6)`, ` from "w"[1:2:5]`, ` from "w" perm(1 0)`, ` from "w" shape(6 5) perm(1 0)`,
		` from "a"[0:1:2] "b"[3:1:3]`, ` from "a"[0:3:2] "a"[1:1:3] shape(9 6)`, ` from "a" "b" "c" "d" "e" shape(6)`, ` from "a" "b" "c" "d" "e"`} {
		g := parse(t, head+"param @w : f32[5 6/1]"+from+"\n%y = matmul %x @w\noutput y = %y")
		for _, ranks := range []int{1, 2, 4} {
			right(t, g, compiled(t, g, passes.Options{Ranks: ranks}, ""), false)
		}
	}
}

// TestSmall: what has nothing in it, and what has no axes but one, is run as well.
func TestSmall(t *testing.T) {
	const head = "graph \"g\" stage=model ranks=1\n"
	for _, text := range []string{
		"input %x : f32[t 0]\n%y = silu %x\noutput y = %y",
		"input %x : f32[t 1/1]\nparam @w : f32[1/1 1/1]\n%y = matmul %x @w\noutput y = %y",
		"input %x : f32[t 3/1]\n%y = sumsq %x\noutput y = %y",
		"param @a : f32[3/1 2]\n%y = neg_exp @a\noutput y = %y",
		"input %x : f32[t 3]\noutput y = %x",
	} {
		g := parse(t, head+text)
		for _, ranks := range []int{1, 2, 4} {
			out := compiled(t, g, passes.Options{Ranks: ranks}, "")
			if r, err := Run(t.Context(), g, out, Options{}); err != nil || len(r.Parts) != 1 || r.Parts[0].Skipped != "" {
				t.Errorf("%s on %d ranks: %v\n%s", text, ranks, err, r)
			}
		}
	}
}

// TestUntouched: a kernel that writes the state of a sequence that is not there
// is found, although it does so on both sides.
func TestUntouched(t *testing.T) {
	good := reference.Kernels["selective_scan"]
	defer func() { reference.Kernels["selective_scan"] = good }()
	bad := good
	bad.Run = func(c *kernels.Call, lo, hi int) {
		good.Run(c, lo, hi)
		if state := c.Args[5]; state.Start() == 0 {
			state.F64[unused*state.Stride]++
		}
	}
	reference.Kernels["selective_scan"] = bad
	g := golden(t, "mamba-a")
	wrong(t, g, compiled(t, g, passes.Options{Ranks: 2}, ""), "layers.0.mixer.ssm: rank 0 has changed the state of a slot")
}

// TestPanic: a kernel that panics is an error at its value, not a crash, and one
// of the source says that it is the source's.
func TestPanic(t *testing.T) {
	good := reference.Kernels["mul"]
	defer func() { reference.Kernels["mul"] = good }()
	bad := good
	bad.Run = func(*kernels.Call, int, int) { panic("no more") }
	reference.Kernels["mul"] = bad
	g := golden(t, "mamba-a")
	wrong(t, g, compiled(t, g, passes.Options{Ranks: 2}, ""), "the source: layers.0.mixer.gated: mul: no more")
}

// TestOverflow: a payload that leaves the range of its format is named.
func TestOverflow(t *testing.T) {
	g := parse(t, "graph \"g\" stage=model ranks=1\ninput %x : f32[t 6/1]\nparam @w : f32[5 6/1]\n%a = times %x {by=1e6}\n%y = matmul %a @w\noutput y = %y")
	out := compiled(t, g, passes.Options{Ranks: 2}, "fp16")
	r, err := Run(t.Context(), g, out, Options{})
	if err != nil || r.Parts[0].Overflow != "y_q" || !strings.Contains(r.String(), "rounded, y_q leaves the range") {
		t.Errorf("%v\n%s", err, r)
	}
}

// TestRounding: sums are rounded as they are when they run: term by term, or at the end.
func TestRounding(t *testing.T) {
	for acc, want := range map[string]float64{"": 2048, "f32": 2050} {
		m := &machine{runner: &runner{}, ranks: 3, rounds: true}
		v := &graph.Value{Type: graph.TypeOf(graph.F16)}
		n := &graph.Node{Args: []*graph.Value{v}, Results: []*graph.Value{v}, Attrs: graph.Attrs{"acc": acc}}
		terms := []kernels.Tensor{{F64: []float64{2048}}, {F64: []float64{1}}, {F64: []float64{1}}}
		if sum, err := m.sum(n, 0, terms); err != nil || sum.F64[0] != want {
			t.Errorf("acc=%q: %v, %v, want %g", acc, sum.F64, err, want)
		}
	}
}

func TestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := golden(t, "mamba-a")
	if _, err := Run(ctx, g, g, Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestRefused: what makes no sense to run.
func TestRefused(t *testing.T) {
	g := golden(t, "mamba-a")
	out := compiled(t, g, passes.Options{Ranks: 2}, "")
	fused, err := passes.Compile(out, passes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	invalid := parse(t, graph.Print(out))
	invalid.Nodes[3].Results[0].Type.Layout = graph.SplitOn(7, 1)
	for _, c := range []struct {
		source, partition *graph.Graph
		want              string
	}{{out, out, "source is for 2 ranks"}, {g, fused, "fused"}, {g, invalid, "axis 7"}} {
		if _, err := Run(t.Context(), c.source, c.partition, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// TestIntegers: every operand of integers that an operation has is known, and
// there is a kernel for every operation that computes.
func TestIntegers(t *testing.T) {
	for _, op := range graph.Ops() {
		var want []int
		for i, kind := range op.Operands {
			if kind == 'i' {
				want = append(want, i)
			}
		}
		for _, i := range want {
			if integers[op.Name][i] == noRole {
				t.Errorf("operand %d of %s are integers of unknown use", i, op.Name)
			}
		}
		if len(integers[op.Name]) != len(want) {
			t.Errorf("%s: %v, want operands %v", op.Name, integers[op.Name], want)
		}
		if _, ok := reference.Kernels[op.Name]; !ok && op.Class == graph.Compute {
			t.Errorf("no reference kernel for %s", op.Name)
		}
	}
}

// TestExchangedElsewhere: a collective between two nodes of a block may have the name of another
// block, and what the block computes is still compared.
func TestExchangedElsewhere(t *testing.T) {
	source := parse(t, `graph "g" stage=model ranks=1
input %x : f32[t 4]
block layers.0
  param @w : f32[6/1 4]
  %y = matmul %/x @w
  param @v : f32[4 6/1]
  %z = matmul %y @v
  %h = add %/x %z
output h = %layers.0.h
`)
	const text = `graph "g" stage=partitioned ranks=2
input %x : f32[t 4]
block layers.0
  param @w : f32[6/1 4] shard(0: split)
  %y = matmul %/x @w
  param @v : f32[4 6/1] shard(1: split)
  %z = matmul %y @v
%sum = all_reduce %layers.0.z
block layers.0
  %h = add %/x %/sum
output h = %layers.0.h
`
	right(t, source, parse(t, text), false)
	wrong(t, source, parse(t, strings.Replace(text, "add %/x %/sum", "add %/sum %/sum", 1)), "layers.0.h: differs")

	r, err := Run(t.Context(), source, parse(t, strings.NewReplacer("%h =", "%k =", "layers.0.h", "layers.0.k").Replace(text)), Options{})
	if err != nil || len(r.Parts) != 2 || !strings.Contains(r.Parts[0].Skipped, "layers.0.h leaves it in the source, and the partitioned graph has no value of that name") {
		t.Errorf("an output of another name: %v, %+v", err, r)
	}
}
