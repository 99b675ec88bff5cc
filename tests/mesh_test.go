package tests

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

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
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
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

// TestMeshStates: a sequence moves between any two meshes bit for bit, at once and by snapshot,
// goes on there, and resumes from copies of its states and KV pages as it would have gone on.
func TestMeshStates(t *testing.T) {
	names := []string{"mamba-a", "mamba2-g4", "jamba", "zamba2", "qwen3-next"}
	ends := []krait.Sharding{{Ranks: 4, Context: 2}, {Ranks: 3}, {Ranks: 8, Context: 2}, {Ranks: 4, Context: 2, Stages: 2}, {Ranks: 2, Strategy: "context"}}
	cases := covering.Each(t, []int{len(names), len(ends), len(ends)})
	if goldens.Few(t) {
		cases = cases[:2]
	}
	for _, c := range cases {
		name, a, b := names[c[0]], ends[c[1]], ends[c[2]]
		t.Run(fmt.Sprintf("%s/%d to %d", name, c[1], c[2]), func(t *testing.T) {
			open := func(s krait.Sharding) *seq {
				return sequence(t, openModel(t, "../testdata/golden/"+name, krait.Options{Slots: 3, PageTokens: 16, Sharding: s}))
			}
			one, two, back := open(a), open(b), open(a)
			ids := randomIDs(141, one.m.Vocab())
			stepped(t, one, ids[:139]...)
			want := snapshot(t, one)
			bring(t, two, one, 0)
			sameSnapshot(t, "moved", snapshot(t, two), want)
			if err := back.m.Engine().Restore(back.slot, snapshot(t, two)); err != nil {
				t.Fatal(err)
			}
			sameSnapshot(t, "restored", snapshot(t, back), want)
			again := resumed(t, one)
			next := stepped(t, one, ids[139])
			for what, s := range map[string]*seq{"restored": back, "resumed": again} {
				if got := stepped(t, s, ids[139]); !sameBits(got, next) {
					t.Errorf("%s, it goes on otherwise, by %g of the largest logit", what, apart(got, next))
				}
			}
			if d := apart(stepped(t, two, ids[139]), next); !(d >= 0 && d <= 1e-4) {
				t.Errorf("moved, it goes on otherwise, by %g of the largest logit", d)
			}
		})
	}
}

// resumed is a sequence that has copies of what another keeps, as a hit of the prefix cache has.
func resumed(t *testing.T, s *seq) *seq {
	t.Helper()
	e, to := s.m.Engine(), sequence(t, s.m)
	n, err := s.Len()
	if err != nil {
		t.Fatal(err)
	}
	states, err := e.CopyState(s.slot)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := e.ShareKV(s.slot, 0, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Resume(to.slot, states, rows); err != nil {
		t.Fatal(err)
	}
	states.Free()
	rows.Free()
	return to
}

// TestMeshProcesses: ranks of a mesh in processes of their own have the bits of ranks in one.
func TestMeshProcesses(t *testing.T) {
	goldens.CI(t)
	s := krait.Sharding{Ranks: 4, Context: 2}
	for _, name := range []string{"mamba-a", "zamba2"} {
		t.Run(name, func(t *testing.T) {
			dir := "../testdata/golden/" + name
			all, err := spreadModel(t, connected(t, s.Ranks, time.Minute), func(_ int, o krait.Options) (*krait.Model, error) {
				o.Sharding, o.Slots = s, 5
				return krait.Open(dir, o)
			})
			if err != nil {
				t.Fatal(err)
			}
			want, _ := runSharded(t, openModel(t, dir, krait.Options{Slots: 5, Sharding: s}), contextSteps)
			got, _ := runSharded(t, all.Model, contextSteps)
			for i := range want {
				if !sameBits(got[i], want[i]) {
					t.Errorf("step %d: the logits are not those of ranks in one process", i)
				}
			}
		})
	}
}
