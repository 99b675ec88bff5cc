package passes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// scanOfNorms is a scan with dt_proj of which dt, B and C are normed: with B and C of the
// dimension b, C's norm with eps, and an output y.
func scanOfNorms(b, eps, output string) string {
	return fmt.Sprintf(`graph "g" stage=model ranks=1
input %%seg : i32[s 3]
input %%u : f32[t 8/1]
input %%z : f32[t 8/1]
input %%dt : f32[t 5]
input %%B : f32[t %[1]s]
input %%C : f32[t %[1]s]
param @g : f32[5]
%%x = rmsnorm %%dt @g {eps=1e-5}
%%nB = unit_rmsnorm %%B {eps=1e-5}
%%nC = unit_rmsnorm %%C {eps=%[2]s}
%%nx = unit_rmsnorm %%dt {eps=1e-5}
param @w : f32[8/1 5]
%%p = matmul %%nx @w
param @bias : f32[8/1]
%%q = bias %%p @bias
%%delta = softplus %%q
param @A_log : f32[8/1 3]
%%A = neg_exp @A_log
state %%h : f32[s 8/1 3]
%%s %%new = selective_scan %%u %%delta %%A %%nB %%nC %%h %%seg
param @D : f32[8/1]
%%skip = scale %%u @D
%%sum = add %%s %%skip
%%gate = silu %%z
%%y = mul %%sum %%gate
output y = %%%[3]s
output x = %%x
`, b, eps, output)
}

// TestFuseNorms: the norms of a scan's operands go into it where all of them are alike, no node
// else takes their results, and all channels share B and C.
func TestFuseNorms(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       string
	}{
		{"all", scanOfNorms("3", "1e-5", "y"), "rmsnorm neg_exp selective_scan_unit_normed"},
		{"another eps", scanOfNorms("3", "1e-6", "y"), "rmsnorm unit_rmsnorm unit_rmsnorm unit_rmsnorm neg_exp selective_scan_projected"},
		{"two groups", scanOfNorms("6/3", "1e-5", "y"), "rmsnorm unit_rmsnorm unit_rmsnorm unit_rmsnorm neg_exp selective_scan_projected"},
		{"an output", scanOfNorms("3", "1e-5", "y\noutput b = %nB"), "rmsnorm unit_rmsnorm unit_rmsnorm unit_rmsnorm neg_exp selective_scan_projected"},
		{"one with a weight", strings.Replace(scanOfNorms("3", "1e-5", "y"), "matmul %nx", "matmul %x", 1), "rmsnorm unit_rmsnorm unit_rmsnorm neg_exp selective_scan_projected"},
		{"no norm of C", strings.Replace(scanOfNorms("3", "1e-5", "y"), "%nB %nC", "%nB %C", 1), "rmsnorm unit_rmsnorm unit_rmsnorm neg_exp selective_scan_projected"},
	} {
		if got := fusedOps(t, c.text); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestFuseGated: both products of a gated MLP and what gates are one, with the norm that only
// they take.
func TestFuseGated(t *testing.T) {
	const head = "graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\ninput %z : f32[t 4]\nparam @g : f32[4]\nparam @w : f32[6/1 4]\nparam @v : f32[6/1 4]\nparam @d : f32[4 6/1]\n" +
		"%n = rmsnorm %x @g {eps=1e-5}\n%a = matmul %n @w\n"
	for _, c := range []struct{ nodes, want string }{
		{"%b = matmul %n @v\n%s = silu %a\n%m = mul %s %b\n%y = matmul %m @d", "norm_gated_matmul matmul"},
		{"%b = matmul %n @v\n%s = silu %a\n%m = mul %b %s\n%o = matmul %m @d\n%y = add %o %x", "norm_gated_matmul matmul_add"},
		{"%b = matmul %n @v\n%s = silu %a\n%m = mul %b %s\n%o = matmul %m @d\n%y = add %o %n", "rmsnorm gated_matmul matmul_add"}, // others take what is normed
		{"%k = add %x %z\n%p = rmsnorm %k @g {eps=1e-5}\n%b = matmul %p @v\n%c = matmul %p @w\n%s = silu %c\n%m = mul %s %b\n%o = matmul %m @d\n%y = add %o %k",
			"add_rmsnorm gated_matmul matmul_add"}, // the norm of a sum goes with that
		{"%k = add %x %z\n%p = rmsnorm %k @g {eps=1e-5}\n%b = matmul %p @w\n%m = add %b %b\n%o = matmul %m @d\n%y = add %o %k", "add_rmsnorm matmul add matmul_add"},
		{"%b = matmul %z @v\n%s = silu %a\n%m = mul %s %b\n%y = matmul %m @d", "norm_matmul matmul silu_mul matmul"}, // products of two values
		{"%b = matmul %n @v\n%s = gelu %a\n%m = mul %s %b\n%y = matmul %m @d", "rmsnorm matmul matmul gelu mul matmul"},
		{"%b = matmul %n @v\n%s = silu %a\n%m = mul %s %b\n%k = add %b %m\n%y = matmul %k @d", "rmsnorm matmul matmul silu_mul add matmul"}, // others take a product
	} {
		if got := fusedOps(t, head+c.nodes+"\noutput y = %y\n"); got != c.want {
			t.Errorf("%s: %s, want %s", c.nodes, got, c.want)
		}
	}
}

// fusedOps are the operations of a graph as it is fused for launches.
func fusedOps(t *testing.T, text string) string {
	t.Helper()
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Compile(g, Options{Fuse: ForLaunches})
	if err != nil {
		t.Fatal(err)
	}
	var ops []string
	for _, n := range out.Nodes {
		if n.Op.Class == graph.Compute {
			ops = append(ops, n.Op.Name)
		}
	}
	return strings.Join(ops, " ")
}
