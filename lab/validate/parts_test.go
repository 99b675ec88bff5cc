package validate

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
)

// recurrent is a convolution, a scan and a delta rule after each other.
const recurrent = `graph "g" stage=model ranks=1
input %seg : i32[s 3]
input %h : f32[t 6]

block layers.0
  param @in : f32[6/1 6]
  param @conv.weight : f32[6/1 4]
  param @A_log : f32[6/1 3]
  param @B : f32[3 6/1]
  param @q : f32[6/3 6]
  param @g : f32[2/1 6]
  state %conv : f32[s 6/1 3]
  state %ssm : f32[s 6/1 3]
  state %S : f32[s 2/1 3 3]
  %x = matmul %/h @in
  %u %u_state = conv1d %x @conv.weight %conv %/seg
  %b = matmul %u @B
  %d = softplus %u
  %A = neg_exp @A_log
  %y %y_state = selective_scan %u %d %A %b %b %ssm %/seg
  %q_proj = matmul %y @q
  %k = head_l2norm %q_proj {eps=1e-05}
  %g_proj = matmul %y @g
  %beta = sigmoid %g_proj
  %g_plus = softplus %g_proj
  %decay = times %g_plus {by=-0.01}
  %z %z_state = delta_scan %k %k %q_proj %decay %beta %S %/seg {scale=0.5}

output z = %layers.0.z
`

// TestParts: what the pass context makes of recurrences computes the same, on ranks that have a
// part and on ranks that have none; a graph in which something passes wrongly does not.
func TestParts(t *testing.T) {
	source, err := graph.Parse(recurrent)
	if err != nil {
		t.Fatal(err)
	}
	strategy, err := passes.FindStrategy("context")
	if err != nil {
		t.Fatal(err)
	}
	for _, ranks := range []int{2, 3, 5} {
		g, err := passes.Compile(source, passes.Options{Ranks: ranks, Strategy: strategy, Stop: graph.PartitionedStage})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := Run(t.Context(), source, g, Options{}); err != nil || r.Tokens != 198 {
			t.Fatalf("%d ranks: %v, %+v", ranks, err, r)
		}
		text := graph.Print(g)
		for _, c := range []struct{ name, old, new string }{
			{"the halo is left out", "conv1d %x @conv.weight %u_before_part", "conv1d %x @conv.weight %u_zero2"},
			{"the state before is left out", "%b %b %y_before_part", "%b %b %y_zero2"},
			{"steps are summed of something else", "segment_sums %d ", "segment_sums %x "},
			{"what is left of a delta state is left out", "{diagonal=1 dims=", "{diagonal=0 dims="},
		} {
			broken := strings.Replace(text, c.old, c.new, 1)
			for name, state := range map[string]string{"%u_zero2": "6/1 3", "%y_zero2": "6/1 3"} {
				if strings.Contains(c.new, name) { // and zeros in place of a state
					line := "  " + name + ` = zeros %u_parts {dims="` + state + `"}` + "\n"
					at := strings.LastIndex(broken[:strings.Index(broken, c.new)], "\n") + 1
					broken = broken[:at] + line + broken[at:]
				}
			}
			b, err := graph.Parse(broken)
			if err == nil {
				err = graph.Check(b)
			}
			if err != nil || broken == text {
				t.Fatalf("%s: %v", c.name, err)
			}
			if _, err := Run(t.Context(), source, b, Options{}); err == nil {
				t.Errorf("%d ranks: %s, and nothing is found", ranks, c.name)
			}
		}
	}
}
