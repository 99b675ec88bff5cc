package cost

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// numAxes is the number of axes of a mesh.
const numAxes = int(graph.DP) + 1

// Arrangement puts the ranks of a mesh on nodes. Nodes are filled one after another, along the axes
// of an order: ranks that differ along the first axis alone are neighbours. The order of the axes'
// own numbers is that of [graph.Mesh], where rank r is on node r / Each.
type Arrangement struct {
	Mesh  graph.Mesh
	Each  int // ranks on a node; the last node may have fewer
	Order [numAxes]graph.MeshAxis
}

// Axes is a set of axes: an exchange along them is among the ranks that differ along them alone.
type Axes uint8

// AxesOf is the set of some axes.
func AxesOf(list ...graph.MeshAxis) (set Axes) {
	for _, a := range list {
		set |= 1 << a
	}
	return set
}

// Has reports whether an axis is in the set.
func (s Axes) Has(a graph.MeshAxis) bool { return s>>a&1 == 1 }

// In is the text of the set on a mesh, without axes of one rank: "tp" or "tp, cp".
func (s Axes) In(mesh graph.Mesh) string {
	var names []string
	for a := range graph.MeshAxis(numAxes) {
		if s.Has(a) && mesh.Along(a) > 1 {
			names = append(names, a.String())
		}
	}
	return strings.Join(names, ", ")
}

// Traffic is an exchange along some axes that happens several times.
type Traffic struct {
	Axes Axes
	Exchange
	Times float64
}

// NodeRanks is the number of ranks on each of some nodes, among which they divide evenly; 0 nodes
// are as many as the ranks fill. The error says what is wrong with the number.
func (p *Profile) NodeRanks(ranks, nodes int) (int, error) {
	most := ranks
	if p.Network != nil {
		most = int(p.Network.Ranks.Value)
	}
	switch {
	case nodes < 0:
		return 0, fmt.Errorf("%d nodes; the number must be at least 1", nodes)
	case nodes == 0:
		return min(ranks, most), nil
	case nodes > 1 && p.Network == nil:
		return 0, fmt.Errorf("%d nodes: profile %s has one node and no network; take %s, or a file with \"network\" (docs/simulate.md)", nodes, p.Name, strings.Join(clusters(), ", "))
	case ranks%nodes != 0:
		return 0, fmt.Errorf("%d ranks on %d nodes: the ranks must divide evenly among the nodes", ranks, nodes)
	case ranks/nodes > most:
		return 0, fmt.Errorf("%d ranks on %d nodes: a node of profile %s has %d; take at least %d nodes", ranks, nodes, p.Name, most, (ranks+most-1)/most)
	}
	return ranks / nodes, nil
}

// Arranged puts a mesh on nodes in its own order, with some number of ranks on a node; 0 is a full
// node.
func (p *Profile) Arranged(mesh graph.Mesh, each int) Arrangement {
	a := Arrangement{Mesh: mesh, Each: each}
	for i := range a.Order {
		a.Order[i] = graph.MeshAxis(i)
	}
	if each == 0 {
		a.Each, _ = p.NodeRanks(mesh.Ranks(), 0)
	}
	return a
}

// clusters lists the profiles with a network.
func clusters() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return builtIn(name).Network == nil })
}

// Nodes is the number of nodes.
func (a *Arrangement) Nodes() int { return (a.Mesh.Ranks() + a.Each - 1) / a.Each }

// Position is where a rank is in the order in which nodes are filled.
func (a *Arrangement) Position(rank int) int {
	at, stride := 0, 1
	for _, axis := range a.Order {
		at += a.Mesh.At(rank, axis) * stride
		stride *= a.Mesh.Along(axis)
	}
	return at
}

// Node is the node of a rank.
func (a *Arrangement) Node(rank int) int { return a.Position(rank) / a.Each }

// Reach says how the ranks of a group lie on nodes. The groups along an axis run at the same time,
// so a group has its ranks' share of each node's rails.
func (a *Arrangement) Reach(group []int, n *Network) Reach {
	on := map[int]int{} // ranks of the group, by node
	for _, r := range group {
		on[a.Node(r)]++
	}
	r := Reach{Nodes: len(on), Least: len(group)}
	for _, ranks := range on {
		r.Least, r.Most = min(r.Least, ranks), max(r.Most, ranks)
	}
	if n != nil {
		r.Rails = n.rails(r.Least, min(a.Each, a.Mesh.Ranks()))
	}
	return r
}

// Reaches lists how the groups along some axes lie on nodes, each way once: of an exchange of fewer
// ranks, such as a send to a neighbour, those of as many ranks that follow each other in a group.
func (a *Arrangement) Reaches(axes Axes, ranks int, n *Network) (list []Reach) {
	groups := map[int][]int{} // by the first rank
	for rank := range a.Mesh.Ranks() {
		first, stride := rank, 1
		for axis := range graph.MeshAxis(numAxes) {
			if axes.Has(axis) {
				first -= a.Mesh.At(rank, axis) * stride
			}
			stride *= a.Mesh.Along(axis)
		}
		groups[first] = append(groups[first], rank)
	}
	for _, first := range slices.Sorted(maps.Keys(groups)) {
		g := groups[first]
		for at := 0; at+ranks <= len(g); at++ {
			if r := a.Reach(g[at:at+ranks], n); !slices.Contains(list, r) {
				list = append(list, r)
			}
		}
	}
	return list
}

// Level is the level over which an axis goes.
func (a *Arrangement) Level(axis graph.MeshAxis) Level {
	if slices.ContainsFunc(a.Reaches(AxesOf(axis), a.Mesh.Along(axis), nil), func(r Reach) bool { return r.Nodes > 1 }) {
		return Between
	}
	return Within
}

// Arrange chooses which axes go within nodes and which between them: of all orders of the axes, the
// one whose exchanges take the least time, one after another. The mesh's own order is the first of
// equal ones.
func Arrange(a Arrangement, p *Profile, traffic []Traffic) Arrangement {
	best, least := a, p.seconds(&a, traffic)
	orders(a.Order[:], 0, func() {
		if s := p.seconds(&a, traffic); s < least*(1-1e-12) { // else it is a rounding error
			best, least = a, s
		}
	})
	return best
}

// orders calls f with all permutations of a list from an index on, made in place.
func orders(list []graph.MeshAxis, from int, f func()) {
	if from == len(list) {
		f()
		return
	}
	for i := from; i < len(list); i++ {
		list[from], list[i] = list[i], list[from]
		orders(list, from+1, f)
		list[from], list[i] = list[i], list[from]
	}
}

// seconds is the time of all exchanges, each that of its slowest group.
func (p *Profile) seconds(a *Arrangement, traffic []Traffic) (sum float64) {
	type kind struct {
		axes  Axes
		ranks int
	}
	known := map[kind][]Reach{}
	for _, x := range traffic {
		k := kind{x.Axes, x.Ranks}
		if known[k] == nil {
			known[k] = a.Reaches(x.Axes, x.Ranks, p.Network)
		}
		worst := 0.0
		for _, r := range known[k] {
			t := p.Best(x.Exchange, r)
			worst = max(worst, t.Seconds())
		}
		sum += x.Times * worst
	}
	return sum
}

// String names the axes of more than one rank with their level: "tp=8 within a node, pp=2 between
// nodes".
func (a *Arrangement) String() string {
	var parts []string
	for _, axis := range a.Order {
		if n := a.Mesh.Along(axis); n > 1 {
			parts = append(parts, fmt.Sprintf("%s=%d %s", axis, n, a.Level(axis)))
		}
	}
	return strings.Join(parts, ", ")
}
