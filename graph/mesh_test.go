package graph_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
)

// TestMesh: ranks have their places, groups share all but one of them, and text is read back.
func TestMesh(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		var m graph.Mesh
		for a := range m {
			m[a] = rapid.IntRange(0, max(1, min(8, graph.MaxMesh/m.Ranks()))).Draw(t, "along")
		}
		back, err := graph.ParseMesh(m.String())
		if err != nil || back.String() != m.String() || back.Ranks() != m.Ranks() {
			t.Fatalf("%v is read as %v: %v", m, back, err)
		}
		for rank := range m.Ranks() {
			number, scale := 0, 1
			for a := range graph.MeshAxis(len(m)) {
				number, scale = number+m.At(rank, a)*scale, scale*m.Along(a)
				group := m.Group(rank, a)
				if len(group) != m.Along(a) || group[m.At(rank, a)] != rank {
					t.Fatalf("%v: rank %d along %v is in %v", m, rank, a, group)
				}
				for i, other := range group {
					for b := range graph.MeshAxis(len(m)) {
						if want := m.At(rank, b); b != a && m.At(other, b) != want || b == a && m.At(other, b) != i {
							t.Fatalf("%v: rank %d and %d along %v differ along %v", m, rank, other, a, b)
						}
					}
				}
			}
			if number != rank {
				t.Fatalf("%v: rank %d is at the place of %d", m, rank, number)
			}
		}
	})
	m, err := graph.ParseMesh("pp=2, tp=4,cp=3")
	if err != nil || m.Ranks() != 24 || m.String() != "tp=4,cp=3,pp=2" || !slices.Equal(m.Group(13, graph.CP), []int{13, 17, 21}) {
		t.Errorf("%v, %v, %v", m, err, m.Group(13, graph.CP))
	}
}

// TestMeshErrors: what is not a mesh is refused by what is wrong with it.
func TestMeshErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "is not an axis",
		"4":                   "is not an axis",
		"tp":                  "is not an axis",
		"ep=2":                "the axes are tp, cp, pp, dp",
		"tp=0":                "must be a number from 1 to 64",
		"tp=2;pp=2":           `"2;pp=2" ranks along tp; it must be a number from 1 to 64, and commas separate axes`,
		"tp=x":                `"x" ranks along tp`,
		"tp=65":               "must be a number from 1 to 64",
		"tp=2,tp=2":           "there twice",
		"tp=8,cp=4,pp=4":      "128 ranks; at most 64",
		"tp=64,pp=64,dp=64":   "at most 64",
		"tp=2,,cp=2":          "is not an axis",
		"tp=9999999999999999": "must be a number from 1 to 64",
	} {
		if _, err := graph.ParseMesh(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
