package validate

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/passes"
)

var square = graph.Mesh{graph.TP: 2, graph.CP: 2}

// onMesh compiles a golden checkpoint's graph for a mesh.
func onMesh(t *testing.T, dir string, m graph.Mesh) (source, partitioned *graph.Graph) {
	t.Helper()
	_, g, err := checkpoint.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if source, err = passes.Compile(g, passes.Options{Stop: graph.ModelStage}); err == nil {
		partitioned, err = passes.Compile(g, passes.Options{Ranks: m.Ranks(), Mesh: m, Stop: graph.PartitionedStage})
	}
	if err != nil {
		t.Fatal(err)
	}
	return source, partitioned
}

// TestMesh runs every family on all ranks of a mesh of two axes.
func TestMesh(t *testing.T) {
	for _, dir := range covering.Drawn(t, goldens.Folders(t, "../..")) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			source, partitioned := onMesh(t, dir, square)
			r, err := Run(t.Context(), source, partitioned, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range r.Parts {
				if p.Skipped != "" || p.Values == 0 {
					t.Errorf("%v: %d values compared; skipped: %s", p.Blocks, p.Values, p.Skipped)
				}
			}
		})
	}
}

// TestMeshBroken breaks a graph on a mesh in ways that running it must find, asking no rule; by
// default in two.
func TestMeshBroken(t *testing.T) {
	source, partitioned := onMesh(t, "../../testdata/golden/mamba-a", square)
	text := graph.Print(partitioned)
	few := goldens.Few(t)
	for i, c := range []struct{ name, old, new, want string }{
		{"a sum along the wrong axis", "all_reduce %mixer.out_proj {along=tp}", "all_reduce %mixer.out_proj {along=cp}", "mixer.out_proj_sum: all_reduce: takes layers."},
		{"states gathered along the wrong axis", "all_gather %mixer.conv1d_made {along=cp}", "all_gather %mixer.conv1d_made {along=tp}", "mixer.conv1d_made_all: all_gather: takes layers."},
		{"another part's state", "shard %mixer.conv1d_before {along=cp", "shard %mixer.conv1d_made_all {along=cp", "conv1d"},
		{"rows that ranks of one row of the mesh do not have", "%h = embedding %ids_part @embeddings.weight : f32[t 64] partial cp shard(0: parts)", "%h = embedding %ids @embeddings.weight : f32[t 64] partial cp shard(0: parts)", "h"},
	} {
		if few && i%2 > 0 {
			continue
		}
		broken := strings.Replace(text, c.old, c.new, 1)
		if broken == text {
			t.Fatalf("%s: nothing was changed", c.name)
		}
		g, err := graph.Parse(broken)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if _, err := Run(t.Context(), source, g, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", c.name, err, c.want)
		}
	}
}
