package tests

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// meshes are those of two axes that models are run on.
var meshes = []krait.Sharding{{Ranks: 4, Context: 2}, {Ranks: 8, Context: 2}, {Ranks: 6, Context: 3}, {Ranks: 8, Context: 4}}

// TestMesh: on a mesh of two axes, all logits and states are those of one rank but for the order of
// sums.
func TestMesh(t *testing.T) {
	folders := goldens.Folders(t, "..")
	for _, c := range covering.Each(t, []int{len(folders)}, len(meshes)) {
		dir, s := folders[c[0]], meshes[c[1]]
		t.Run(fmt.Sprintf("%s/tp=%d,cp=%d", filepath.Base(dir), s.Ranks/s.Context, s.Context), func(t *testing.T) {
			slots := len(contextSteps[0])
			logits, states := runSharded(t, openModel(t, dir, krait.Options{Slots: slots}), contextSteps)
			m := openModel(t, dir, krait.Options{Slots: slots, Sharding: s})
			if mesh := (graph.Mesh{graph.TP: s.Ranks / s.Context, graph.CP: s.Context}); m.Compiled().Mesh != mesh {
				t.Fatalf("the mesh is %s, want %s", m.Compiled().Mesh, mesh)
			}
			got, kept := runSharded(t, m, contextSteps)
			near(t, got, logits, kept, states)
		})
	}
}
