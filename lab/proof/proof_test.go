package proof_test

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/proof"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/passes"
)

// TestOf: the certificate has both proofs, of the graph that is returned; an impossible sharding is
// an error.
func TestOf(t *testing.T) {
	_, g, err := checkpoint.Describe("../../testdata/golden/jamba")
	if err != nil {
		t.Fatal(err)
	}
	text := graph.Print(g)
	for _, strategy := range []string{"", "hoisted"} {
		c, sharded, err := proof.Of(t.Context(), g, passes.Sharding{Ranks: 2, Strategy: strategy}, validate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Ranks != 2 || c.Execution == nil || !strings.Contains(c.String(), "executed in float64") || sharded.Ranks != 2 || sharded.Stage != graph.PartitionedStage {
			t.Errorf("%d ranks, stage %s: %s", sharded.Ranks, sharded.Stage, c)
		}
	}
	if graph.Print(g) != text {
		t.Error("the model has changed")
	}
	if _, _, err := proof.Of(t.Context(), g, passes.Sharding{Ranks: 2, Strategy: "none"}, validate.Options{}); err == nil {
		t.Error("an unknown strategy passes")
	}
}
