package lowering_test

import (
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// TestAcross: the schedules of a mesh of two axes check, each group has the same collectives, and
// their text is the same schedule. 64 ranks are the most.
func TestAcross(t *testing.T) {
	meshes := []graph.Mesh{{graph.TP: 2, graph.CP: 3}, {graph.TP: 8, graph.CP: 8}}
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	for i, dir := range folders {
		m := meshes[i%len(meshes)]
		t.Run(filepath.Base(dir)+"/"+m.String(), func(t *testing.T) {
			_, g, err := checkpoint.Describe(dir)
			if err != nil {
				t.Fatal(err)
			}
			if g, err = passes.Compile(g, passes.Options{Ranks: m.Ranks(), Mesh: m}); err != nil {
				t.Fatal(err)
			}
			list, err := lowering.Lower(g)
			if err == nil {
				err = lowering.CheckAll(list)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []*lowering.Schedule{list[0], list[m.Ranks()-1]} {
				again, err := lowering.ParseSchedule(s.String())
				if err != nil || again.String() != s.String() {
					t.Errorf("rank %d: the text is that of another schedule: %v", s.Rank, err)
				}
			}
			if n := list[0].RowRanks(); n != m.Along(graph.CP) {
				t.Errorf("%d ranks share the tokens, want %d", n, m.Along(graph.CP))
			}
		})
	}
}
