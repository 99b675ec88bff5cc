package lowering_test

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// TestNarrow: buffers say in which batches their values are in bf16, text keeps it, a field has
// what it is a field of, and no result in one format takes the place of an operand in the other.
func TestNarrow(t *testing.T) {
	g, err := graph.Parse(`graph "g" stage=fused ranks=1
input %h : f32[t 4]
param @w : bf16[a:4|b:4 4]
param @v : bf16[4 4]
%n = gelu %h : f32[t 4] as bf16
%ab = matmul %n @w : f32[t a:4|b:4] as bf16 in prompts
%a = field %ab {name=a} : f32[t 4] as bf16 in prompts
%b = field %ab {name=b} : f32[t 4] as bf16 in prompts
%c = silu_mul %a %b : f32[t 4] as bf16 in prompts
%d = silu %c : f32[t 4]
%e = tanh %d : f32[t 4]
output e = %e
`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	s := list[0]
	want := map[string]graph.Narrow{"n": graph.NarrowAlways, "ab": graph.NarrowPrompts, "c": graph.NarrowPrompts, "d": graph.NarrowNever}
	for i := range s.Buffers {
		b := &s.Buffers[i]
		if b.Narrow != want[b.Name] {
			t.Errorf("%s is kept as %q, want %q", b.Name, b.Narrow, want[b.Name])
		}
		delete(want, b.Name)
		if b.Name == "e" {
			t.Error("e does not take the place of d")
		}
	}
	if len(want) > 0 || s.Check() != nil {
		t.Errorf("there are no buffers %v; %v", want, s.Check())
	}
	again, err := lowering.ParseSchedule(s.String())
	if err != nil || again.String() != s.String() {
		t.Errorf("%v: %s", err, s)
	}
	if _, err := lowering.ParseSchedule(strings.Replace(s.String(), "as bf16 in prompts", "as f8", 1)); err == nil || err.Error() != `line 9: a value is kept as "f8"; it may be as bf16 or as pieces, each also in prompts` {
		t.Errorf("another format: %v", err)
	}
	for i := range s.Buffers {
		if b := &s.Buffers[i]; b.Space == lowering.Param {
			b.Narrow = graph.NarrowAlways
			break
		}
	}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "only activations of f32 may be") {
		t.Errorf("a parameter in bf16 of choice: %v", err)
	}
}

// TestNarrowIn: few rows are in f32, and so are what only prompts have in bf16 where each sequence
// has one token.
func TestNarrowIn(t *testing.T) {
	for _, c := range []struct {
		n    graph.Narrow
		rows int64
		z    graph.Sizes
		want bool
	}{
		{graph.NarrowNever, 100, graph.Sizes{Tokens: 100, Seqs: 1}, false},
		{graph.NarrowAlways, 32, graph.Sizes{Tokens: 100, Seqs: 1}, false},
		{graph.NarrowAlways, 33, graph.Sizes{Tokens: 33, Seqs: 33}, true},
		{graph.NarrowPrompts, 33, graph.Sizes{Tokens: 33, Seqs: 33}, false},
		{graph.NarrowPrompts, 33, graph.Sizes{Tokens: 33, Seqs: 32}, true},
	} {
		if got := c.n.In(c.rows, c.z); got != c.want {
			t.Errorf("%s, %d rows of %+v: %v, want %v", c.n, c.rows, c.z, got, c.want)
		}
	}
}
