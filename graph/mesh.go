package graph

import (
	"fmt"
	"strconv"
	"strings"
)

// MeshAxis is a kind of parallelism: what the ranks along one axis of a mesh share.
type MeshAxis uint8

// The axes of a mesh, the nearest ranks first: neighbours along TP have consecutive numbers.
const (
	TP          MeshAxis = iota // tensor parallelism: channels, heads and experts
	CP                          // context parallelism: the tokens of a prompt
	PP                          // pipeline parallelism: the layers
	DP                          // data parallelism: the sequences
	numMeshAxes = int(DP) + 1
)

var meshAxisNames = [numMeshAxes]string{"tp", "cp", "pp", "dp"}

// String is the axis's name in the text of a mesh.
func (a MeshAxis) String() string { return meshAxisNames[a] }

// MaxMesh is the largest number of ranks of a mesh.
const MaxMesh = 64

// Mesh arranges ranks along axes: the number of ranks along each, where 0 and 1 both mean that
// nothing is shared along it. Rank 0 is at the origin; the number grows along TP first.
type Mesh [numMeshAxes]int

// Ranks is the number of ranks of the mesh.
func (m Mesh) Ranks() int {
	n := 1
	for a := range numMeshAxes {
		n *= m.Along(MeshAxis(a))
	}
	return n
}

// Along is the number of ranks along an axis, at least 1.
func (m Mesh) Along(a MeshAxis) int { return max(m[a], 1) }

// At is a rank's index along an axis.
func (m Mesh) At(rank int, a MeshAxis) int { return rank / m.stride(a) % m.Along(a) }

// Group lists the ranks that differ from a rank along an axis alone, itself among them, in the
// order of the axis.
func (m Mesh) Group(rank int, a MeshAxis) []int {
	group, stride := make([]int, m.Along(a)), m.stride(a)
	first := rank - m.At(rank, a)*stride
	for i := range group {
		group[i] = first + i*stride
	}
	return group
}

// stride is the distance of neighbours along an axis.
func (m Mesh) stride(a MeshAxis) int {
	n := 1
	for b := range a {
		n *= m.Along(b)
	}
	return n
}

// String is the text that [ParseMesh] reads: "tp=4,cp=2", without axes of one rank; "tp=1" if there
// is no other.
func (m Mesh) String() string {
	var parts []string
	for a := range numMeshAxes {
		if n := m.Along(MeshAxis(a)); n > 1 {
			parts = append(parts, fmt.Sprintf("%s=%d", MeshAxis(a), n))
		}
	}
	if len(parts) == 0 {
		return "tp=1"
	}
	return strings.Join(parts, ",")
}

// ParseMesh reads a mesh: axes in any order, each at most once.
func ParseMesh(text string) (Mesh, error) {
	var m Mesh
	for part := range strings.SplitSeq(text, ",") {
		name, count, ok := strings.Cut(strings.TrimSpace(part), "=")
		a := axisNamed(name)
		n, err := strconv.Atoi(count)
		switch {
		case !ok || a < 0:
			return m, fmt.Errorf("mesh %q: %q is not an axis with its number of ranks, such as tp=4; the axes are %s", text, part, strings.Join(meshAxisNames[:], ", "))
		case err != nil || n < 1 || n > MaxMesh:
			return m, fmt.Errorf("mesh %q: %q ranks along %s; it must be a number from 1 to %d, and commas separate axes", text, count, name, MaxMesh)
		case m[a] != 0:
			return m, fmt.Errorf("mesh %q: axis %s is there twice", text, name)
		}
		m[a] = n
	}
	if n := m.Ranks(); n > MaxMesh {
		return m, fmt.Errorf("mesh %q has %d ranks; at most %d are supported", text, n, MaxMesh)
	}
	return m, nil
}

// axisNamed is the axis of a name, -1 if there is none.
func axisNamed(name string) int {
	for a, n := range meshAxisNames {
		if n == name {
			return a
		}
	}
	return -1
}
