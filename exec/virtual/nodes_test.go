package virtual

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// nodes is hardware of round numbers: nodes of 8 ranks and 2 rails. Within a node a ring starts
// after 1 second, a step takes 2, and a rank sends 8 bytes per second; between nodes a ring starts
// after 5, a step takes 10, and a rail carries 4 bytes per second.
func nodes() *cost.Profile {
	is := func(v float64) cost.Figure { return cost.Figure{Value: v} }
	p := plain(0)
	p.Link.Algorithms[0] = cost.Algorithm{Name: "ring", Base: is(1), Step: is(2), Bandwidth: is(8)}
	p.Network = &cost.Network{Ranks: is(8), Rails: is(2), Link: cost.Link{Algorithms: []cost.Algorithm{{Name: "ring", Base: is(5), Step: is(10), Bandwidth: is(4)}}}}
	return p
}

// TestNodesByHand: an all_reduce of 64 bytes by 8 ranks on 1 to 8 nodes, between kernels of 3 and 2
// seconds, worked out on paper.
//
//   - 1 node: a ring, 1 + 14·2, and 2·7/8·64 = 112 bytes at 8: 43.
//   - 2 nodes of 4: within them twice 1 + 3·2, and 2·48 bytes at 8, so 26; each rank has half a
//     rail for its 16 bytes, 5 + 2·10 + 16/2, so 33. A ring takes 5 + 2·(10 + 6·2) + 112/8 = 63.
//   - 4 nodes of 2: twice 1 + 2, and 2·32 bytes at 8, so 14; 5 + 6·10, and 2·3/4·32 = 48 bytes
//     at 4, so 77. A ring takes 5 + 2·(3·10 + 4·2) + 112/8 = 95.
//   - 8 nodes of 1: a ring, 5 + 14·10, and 112 bytes by a rail each, at 4: 173.
func TestNodesByHand(t *testing.T) {
	for _, c := range []struct {
		nodes int
		want  float64
		cross []Crossing
	}{
		{1, 43, []Crossing{{tp, cost.Within, 112, 43}}},
		{2, 59, []Crossing{{tp, cost.Within, 96, 26}, {tp, cost.Between, 16, 33}}},
		{4, 91, []Crossing{{tp, cost.Within, 64, 14}, {tp, cost.Between, 48, 77}}},
		{8, 173, []Crossing{{tp, cost.Between, 112, 173}}},
	} {
		m := byHand(t, &Device{Profile: nodes(), NodeRanks: 8 / c.nodes}, both(8, "k3 r0 w1 k2 | w0 sum64 r1"))
		s, err := m.Run(graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1}, nil)
		if err != nil || s.Seconds() != 3+c.want+2 || s.Travelled != c.want {
			t.Errorf("%d nodes: %g seconds, %g of them in a collective, want %g; %v", c.nodes, s.Seconds(), s.Travelled, c.want, err)
		}
		if got := m.Crossings(); !slices.Equal(got, c.cross) {
			t.Errorf("%d nodes: %+v, want %+v", c.nodes, got, c.cross)
		}
	}
	if got := makespan(t, &Device{Profile: nodes()}, both(8, "k3 r0 w1 k2 | w0 sum64 r1")); got != 48 {
		t.Errorf("as many nodes as 8 ranks fill: %g", got)
	}
	_, err := New([]*lowering.Schedule{hand(t, "k1", 0, 2), hand(t, "k1", 1, 2)}, &Device{Profile: plain(1), NodeRanks: 1}, exec.Setup{})
	if err == nil || !strings.Contains(err.Error(), "2 ranks with 1 on a node: profile plain has no network between nodes") {
		t.Error(err)
	}
}

var tp, cp = cost.AxesOf(graph.TP), cost.AxesOf(graph.CP)

// onMesh makes the schedules of the ranks of a mesh, with the same words on each: an axis before a
// collective, as in cp:sum8, says along which it runs.
func onMesh(t testing.TB, mesh graph.Mesh, text string) (list []*lowering.Schedule) {
	t.Helper()
	var along []string
	for _, word := range strings.Fields(text) {
		axis, _, ok := strings.Cut(word, ":")
		if ok {
			text = strings.Replace(text, axis+":", "", 1)
			along = append(along, axis)
		}
	}
	for r := range mesh.Ranks() {
		s := hand(t, text, r, mesh.Ranks())
		s.Mesh = mesh
		n := 0
		for i := range s.Steps {
			if st := &s.Steps[i]; st.Kind == lowering.Collective {
				st.Attrs = graph.Attrs{"along": along[n]}
				n++
			}
		}
		list = append(list, s)
	}
	return list
}

// TestArrange: of a mesh of 4 × 4 ranks on 2 nodes, the axis that carries more goes within nodes.
// A sum of 64 bytes by 4 ranks takes 1 + 6·2 + 96/8 = 25 within a node. Over 2 nodes with 2 ranks
// of the group on each, a rank has a quarter of a rail: twice 1 + 2 and 2·32 bytes at 8, so 14, and
// 5 + 2·10 and 32 bytes at 1, so 57: 71 in all, less than a ring's 5 + 2·(10 + 2·2) + 96/2 = 81.
func TestArrange(t *testing.T) {
	mesh := graph.Mesh{graph.TP: 4, graph.CP: 4}
	for _, c := range []struct {
		text, want string
		cross      []Crossing
		seconds    float64
	}{
		{"| tp:sum64 tp:sum64 cp:sum64", "tp=4 within a node, cp=4 between nodes", []Crossing{{tp, cost.Within, 192, 50}, {cp, cost.Within, 64, 14}, {cp, cost.Between, 32, 57}}, 121},
		{"| tp:sum64 cp:sum64 cp:sum64", "cp=4 within a node, tp=4 between nodes", []Crossing{{tp, cost.Within, 64, 14}, {tp, cost.Between, 32, 57}, {cp, cost.Within, 192, 50}}, 121},
	} {
		m, err := New(onMesh(t, mesh, c.text), &Device{Profile: nodes()}, exec.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		z := graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1}
		if _, err := m.Run(z, nil); err != nil { // another arrangement may follow a run
			t.Fatal(err)
		}
		m.Arrange(Steps{z, 1})
		s, err := m.Run(z, nil)
		if err != nil || math.Abs(s.Seconds()-c.seconds) > 1e-12*c.seconds {
			t.Errorf("%s: %g seconds, want %g; %v", c.text, s.Seconds(), c.seconds, err)
		}
		nodes := m.Nodes()
		if got := m.Crossings(); nodes.String() != c.want || !slices.Equal(got, c.cross) {
			t.Errorf("%s: %s, %+v\nwant %s, %+v", c.text, &nodes, got, c.want, c.cross)
		}
	}
}

// TestStagesOnNodes: two stages of 4 ranks, each a kernel of 3 and 5 seconds and a sum of 64 bytes,
// with 8 bytes between them, on 1 to 8 nodes, worked out on paper. The sums stay within nodes while
// these have 4 ranks.
//
//   - 1 node: a sum is 1 + 6·2 + 96/8 = 25, a send 1 + 2 + 8/8 = 4: 3 + 25 + 4 + 25 + 5 = 62.
//   - 2 nodes: a rank has half a rail, and a send takes 5 + 10 + 8/2 = 19.
//   - 4 nodes: a sum goes over two of them, with a rail for each rank: a ring takes 5 + 2·14 and 96
//     bytes at 8, so 45 (the hierarchical way 6 + 8 + 5 + 20 + 8 = 47); a send takes 15 and 8/4.
//   - 8 nodes: a sum goes over four, 5 + 6·10 + 96/4 = 89, a send takes 17.
func TestStagesOnNodes(t *testing.T) {
	mesh := graph.Mesh{graph.TP: 4, graph.PP: 2}
	for _, c := range []struct {
		nodes int
		want  float64
		how   string
	}{
		{1, 3 + 25 + 4 + 25 + 5, "tp=4 within a node, pp=2 within a node"},
		{2, 3 + 25 + 19 + 25 + 5, "tp=4 within a node, pp=2 between nodes"},
		{4, 3 + 45 + 17 + 45 + 5, "tp=4 between nodes, pp=2 between nodes"},
		{8, 3 + 89 + 17 + 89 + 5, "tp=4 between nodes, pp=2 between nodes"},
	} {
		var list []*lowering.Schedule
		for stage, text := range []string{"k3 r0 w1 | w0 sum64 send8 r1", "w0 k5 | receive8 sum64 r0"} {
			for r := range 4 {
				s := hand(t, text, r, 4)
				s.Mesh, s.Stage = mesh, stage
				list = append(list, s)
			}
		}
		m, err := New(list, &Device{Profile: nodes(), NodeRanks: 8 / c.nodes}, exec.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		z := graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1}
		m.Arrange(Steps{z, 1})
		s, err := m.Run(z, nil)
		how := m.Nodes()
		if err != nil || s.Seconds() != c.want || how.String() != c.how {
			t.Errorf("%d nodes, %s: %g seconds, want %s and %g; %v", c.nodes, &how, s.Seconds(), c.how, c.want, err)
		}
	}
}
