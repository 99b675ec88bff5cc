package cuda

import (
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestEveryCollective: there is no row that CUDA does not know, on one GPU and on several.
func TestEveryCollective(t *testing.T) {
	for _, op := range graph.Collectives() {
		if f := collectives[[2]graph.LayoutKind{op.From, op.To}]; f.launches == nil || f.stage == nil {
			t.Errorf("CUDA does not know %s", op.Name)
		}
	}
}
