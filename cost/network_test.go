package cost

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// round is hardware of round numbers: nodes of 4 ranks and 2 rails. Within a node a ring starts
// after 1 second, its steps take 2, and a rank sends 8 bytes per second; a tree starts after 3.
// Between nodes a ring starts after 5 and its steps take 10, a tree starts after 7 and its steps
// take 20; a rail carries 4 bytes per second.
func round() *Profile {
	return &Profile{Name: "round",
		Link:    Link{Algorithms: []Algorithm{{"ring", "p", is(1), is(2), is(8)}, {"tree", "p", is(3), is(2), is(8)}}},
		Network: &Network{Link: Link{Algorithms: []Algorithm{{"ring", "p", is(5), is(10), is(4)}, {"tree", "p", is(7), is(20), is(4)}}}, Ranks: is(4), Rails: is(2)},
	}
}

func exchange(t *testing.T, name string, ranks int, bytes float64) Exchange {
	t.Helper()
	op, ok := graph.Lookup(name)
	if !ok {
		t.Fatal(name)
	}
	return ExchangeOf(op, ranks, bytes, graph.Sent(op, graph.TypeOf(graph.F32, graph.Size(int(bytes)/4)), ranks).Float(graph.Sizes{}))
}

// TestRingAcross: rings over nodes, by hand: base 5, network steps of 10, steps of 2 within nodes,
// and the bytes at the lesser of the rails and 8.
func TestRingAcross(t *testing.T) {
	p := round()
	for _, c := range []struct {
		name                       string
		op                         string
		bytes                      float64
		r                          Reach
		ranks                      int
		latency, moving, near, far float64
	}{
		// 2 phases of 1 network and 6 near steps; a rank sends 2·7/8·64 = 112 bytes over 2 rails
		// of 4 a second
		{"8 ranks on 2 nodes", "all_reduce", 64, Reach{2, 4, 4, 2}, 8, 5 + 2*(10+6*2), 112. / 8, 112 * 6. / 8, 112 * 2. / 8},
		// the link of 8 bytes a second is slower than 3 rails
		{"3 rails", "all_reduce", 64, Reach{2, 4, 4, 3}, 8, 49, 112. / 8, 84, 28},
		{"1 rail", "all_reduce", 64, Reach{2, 4, 4, 1}, 8, 49, 112. / 4, 84, 28},
		// one rank a node: no link within, and 2 phases of 3 network steps
		{"4 nodes of 1", "all_reduce", 64, Reach{4, 1, 1, 3}, 4, 5 + 6*10, 96. / 12, 0, 96},
		{"one phase", "all_gather", 64, Reach{2, 4, 4, 2}, 8, 5 + 10 + 6*2, 56. / 8, 42, 14},
		{"the other", "reduce_scatter", 64, Reach{2, 4, 4, 2}, 8, 27, 7, 42, 14},
		// 6 ranks as 4 and 2: 2 phases of 1 network and 4 near steps
		{"uneven", "all_reduce", 48, Reach{2, 2, 4, 1}, 6, 5 + 2*(10+4*2), 80. / 4, 80 * 4. / 6, 80 * 2. / 6},
	} {
		e := exchange(t, c.op, c.ranks, c.bytes)
		got := ringAcross(&p.Network.Algorithms[0], &p.Link.Algorithms[0], e, c.r)
		same(t, c.name, got, [numLevels]Leg{{c.near, 0, 0}, {c.far, c.latency, c.moving}})
	}
	// without an algorithm of its name within nodes, all 14 steps take 10
	got := ringAcross(&p.Network.Algorithms[0], nil, exchange(t, "all_reduce", 8, 64), Reach{2, 4, 4, 3})
	same(t, "alone", got, [numLevels]Leg{{84, 0, 0}, {28, 5 + 14*10, 112. / 12}})
}

// TestTreeAcross: trees over nodes, by hand: base 7, network steps of 20 and near steps of 2.
func TestTreeAcross(t *testing.T) {
	p := round()
	for _, c := range []struct {
		name            string
		r               Reach
		ranks           int
		latency, moving float64
		near, far       float64
	}{
		{"2 nodes of 4", Reach{2, 4, 4, 2}, 8, 7 + 2*(1*20+2*2), 112. / 8, 112 * 6. / 7, 112 * 1. / 7},
		{"8 nodes of 1", Reach{8, 1, 1, 2}, 8, 7 + 2*3*20, 112. / 8, 0, 112},
		{"3 nodes of 2", Reach{3, 2, 2, 1}, 6, 7 + 2*(2*20+2), 64 * 2 * 5. / 6 / 4, 64 * 3. / 3, 64 * 2. / 3},
	} {
		got := treeAcross(&p.Network.Algorithms[1], &p.Link.Algorithms[1], exchange(t, "all_reduce", c.ranks, 64), c.r)
		same(t, c.name, got, [numLevels]Leg{{c.near, 0, 0}, {c.far, c.latency, c.moving}})
	}
}

// TestHierarchical: the hierarchical way, by hand, on 2 nodes of 4 ranks with 1 rail for each
// rank's part, if not said otherwise.
func TestHierarchical(t *testing.T) {
	p := round()
	p.Link.Algorithms, p.Network.Algorithms = p.Link.Algorithms[:1], p.Network.Algorithms[:1]
	for _, c := range []struct {
		op    string
		bytes float64
		ranks int
		r     Reach
		want  [numLevels]Leg
	}{
		// within: 2 times (1 + 3·2) and 3/4·64 = 48 bytes at 8; between: 2 ranks, 16 bytes each, 2
		// steps of 10, 16 bytes sent at 4
		{"all_reduce", 64, 8, Reach{2, 4, 4, 4}, [numLevels]Leg{{96, 14, 12}, {16, 5 + 2*10, 4}}},
		// half the rails: the 16 bytes at 2
		{"all_reduce", 64, 8, Reach{2, 4, 4, 2}, [numLevels]Leg{{96, 14, 12}, {16, 25, 8}}},
		{"all_gather", 64, 8, Reach{2, 4, 4, 4}, [numLevels]Leg{{48, 7, 6}, {8, 5 + 10, 2}}},
		{"reduce_scatter", 64, 8, Reach{2, 4, 4, 4}, [numLevels]Leg{{48, 7, 6}, {8, 15, 2}}},
		// 4 nodes of 2: within 2·(1 + 2) and 2·32 bytes at 8; between 6 steps, 2·3/4·32 = 48 at 4
		{"all_reduce", 64, 8, Reach{4, 2, 2, 2}, [numLevels]Leg{{64, 6, 8}, {48, 5 + 6*10, 12}}},
	} {
		same(t, c.op, p.hierarchical(exchange(t, c.op, c.ranks, c.bytes), c.r), c.want)
	}
}

func same(t *testing.T, name string, got Travel, want [numLevels]Leg) {
	t.Helper()
	for i, leg := range got.Legs {
		w := want[i]
		if math.Abs(leg.Sent-w.Sent) > 1e-12*w.Sent || leg.Latency != w.Latency || math.Abs(leg.Moving-w.Moving) > 1e-12*w.Moving {
			t.Errorf("%s, %s: %+v, want %+v", name, Level(i), leg, w)
		}
	}
}

// TestBest: the fastest way is taken: a tree for few bytes, the hierarchical way for many, a ring
// if nodes have one rank; within a node the link alone.
func TestBest(t *testing.T) {
	p := round()
	on2 := Reach{2, 4, 4, 2}
	for _, c := range []struct {
		op      string
		bytes   float64
		ranks   int
		r       Reach
		want    string
		seconds float64
	}{
		// a ring takes 49 and 7168/8, a tree 55 and as much, the hierarchical way 14 + 25 = 39, 6144/8 and
		// 1024/2; with one rail 49 + 7168/4 and 39 + 6144/8 + 1024
		{"all_reduce", 4096, 8, on2, "ring", 49 + 7168./8},
		{"all_reduce", 4096, 8, Reach{2, 4, 4, 1}, "hierarchical", 39 + 6144./8 + 1024},
		{"all_reduce", 64, 8, on2, "hierarchical", 39 + 12 + 8},
		{"all_gather", 64, 8, on2, "hierarchical", 7 + 6 + 5 + 10 + 8./2},
		// 4 and 2 ranks are not hierarchical, which would take 60
		{"all_reduce", 48, 6, Reach{2, 2, 4, 1}, "ring", 5 + 2*(10+4*2) + 80./4},
		{"all_reduce", 64, 2, Reach{2, 1, 1, 1}, "ring", 5 + 2*10 + 64./4},
		{"all_reduce", 64, 4, Reach{}, "tree", 3 + 4*2 + 96./8},
		{"all_gather", 64, 4, Reach{1, 4, 4, 2}, "ring", 1 + 3*2 + 48./8},
	} {
		got := p.Best(exchange(t, c.op, c.ranks, c.bytes), c.r)
		if got.Algorithm == nil || got.Algorithm.Name != c.want || math.Abs(got.Seconds()-c.seconds) > 1e-12*c.seconds {
			t.Errorf("%s of %g bytes on %d ranks, %+v: %+v takes %g, want %s and %g", c.op, c.bytes, c.ranks, c.r, got, got.Seconds(), c.want, c.seconds)
		}
	}
	for _, name := range clusters() {
		p := builtIn(name)
		for _, bytes := range []float64{64, 1 << 12, 1 << 18, 1 << 24, 1 << 30} {
			for _, r := range []Reach{{2, 1, 1, 1}, {2, 8, 8, 8}, {4, 2, 2, 1}, {8, 8, 8, 2}} {
				fastest(t, p, exchange(t, "all_reduce", r.Nodes*r.Most, bytes), r)
				fastest(t, p, exchange(t, "all_gather", r.Nodes*r.Most, bytes), r)
			}
		}
	}
}

// fastest: no way is faster than the best.
func fastest(t *testing.T, p *Profile, e Exchange, r Reach) {
	t.Helper()
	best := p.Best(e, r)
	ways := []Travel{}
	for i := range p.Network.Algorithms {
		switch a := &p.Network.Algorithms[i]; {
		case a.Name == "ring":
			ways = append(ways, ringAcross(a, p.Link.named(a), e, r))
		case e.Phases == 2:
			ways = append(ways, treeAcross(a, p.Link.named(a), e, r))
		}
	}
	if r.Most > 1 {
		ways = append(ways, p.hierarchical(e, r))
	}
	for _, w := range ways {
		if w.Seconds() < best.Seconds() {
			t.Errorf("%s: %+v over %+v: %s takes %g, and %s %g", p.Name, e, r, w.Algorithm.Name, w.Seconds(), best.Algorithm.Name, best.Seconds())
		}
	}
}

// TestNodeRanks: ranks on nodes, and numbers that are not possible.
func TestNodeRanks(t *testing.T) {
	p, alone := round(), &Profile{Name: "alone"}
	for _, c := range []struct {
		p     *Profile
		ranks int
		nodes int
		each  int
		err   string
	}{
		{p, 8, 0, 4, ""}, {p, 6, 0, 4, ""}, {p, 3, 0, 3, ""}, {p, 8, 4, 2, ""}, {p, 1, 1, 1, ""}, {alone, 8, 0, 8, ""}, {alone, 8, 1, 8, ""},
		{alone, 8, 2, 0, `2 nodes: profile alone has one node and no network; take a100-efa, a100-hdr, a6000-25gbe, h100-ndr, h200-ndr, or a file with "network"`},
		{p, 8, 3, 0, "8 ranks on 3 nodes: the ranks must divide evenly among the nodes"},
		{p, 8, 1, 0, "8 ranks on 1 nodes: a node of profile round has 4; take at least 2 nodes"},
		{p, 8, 16, 0, "8 ranks on 16 nodes: the ranks must divide evenly"},
		{p, 8, -1, 0, "-1 nodes; the number must be at least 1"},
	} {
		each, err := c.p.NodeRanks(c.ranks, c.nodes)
		if each != c.each || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %d on a node, %v", c, each, err)
		}
		if a := c.p.Arranged(graph.Mesh{graph.TP: c.ranks}, each); err == nil && c.nodes > 0 && a.Nodes() != c.nodes {
			t.Errorf("%+v: %d nodes", c, a.Nodes())
		}
	}
}

// TestPosition: each order numbers the ranks of a mesh anew, each once; in the mesh's own it
// changes nothing, and in the reverse one the last axis has the neighbours.
func TestPosition(t *testing.T) {
	mesh := graph.Mesh{2, 3, 1, 4}
	a := round().Arranged(mesh, 0)
	own, seen := a.Order, map[[numAxes]graph.MeshAxis]bool{}
	orders(a.Order[:], 0, func() {
		seen[a.Order] = true
		var at []int
		for r := range mesh.Ranks() {
			at = append(at, a.Position(r))
			if a.Order == own && at[r] != r {
				t.Errorf("rank %d is at %d", r, at[r])
			}
		}
		if sorted := slices.Sorted(slices.Values(at)); sorted[0] != 0 || sorted[23] != 23 || len(slices.Compact(sorted)) != 24 {
			t.Errorf("%v: %v", a.Order, at)
		}
		first := slices.IndexFunc(a.Order[:], func(x graph.MeshAxis) bool { return mesh.Along(x) > 1 })
		if g := mesh.Group(0, a.Order[first]); a.Position(g[1])-a.Position(g[0]) != 1 {
			t.Errorf("%v: %v are no neighbours", a.Order, g)
		}
	})
	if len(seen) != 24 || a.Order != own {
		t.Errorf("%d orders, and %v at the end", len(seen), a.Order)
	}
}

// TestReach: how groups lie on nodes of 4 ranks with 2 rails, by hand.
func TestReach(t *testing.T) {
	const tp, cp, pp, dp = graph.TP, graph.CP, graph.PP, graph.DP
	for _, c := range []struct {
		mesh  graph.Mesh
		order [numAxes]graph.MeshAxis
		axis  graph.MeshAxis
		want  []Reach
	}{
		// 4 ranks a node: a rank alone has half a rail, a whole node 2
		{graph.Mesh{tp: 4, pp: 2}, [...]graph.MeshAxis{tp, cp, pp, dp}, tp, []Reach{{1, 4, 4, 2}}},
		{graph.Mesh{tp: 4, pp: 2}, [...]graph.MeshAxis{tp, cp, pp, dp}, pp, []Reach{{2, 1, 1, .5}}},
		{graph.Mesh{tp: 4, pp: 2}, [...]graph.MeshAxis{pp, tp, cp, dp}, pp, []Reach{{1, 2, 2, 1}}},
		{graph.Mesh{tp: 4, pp: 2}, [...]graph.MeshAxis{pp, tp, cp, dp}, tp, []Reach{{2, 2, 2, 1}}},
		{graph.Mesh{tp: 8}, [...]graph.MeshAxis{tp, cp, pp, dp}, tp, []Reach{{2, 4, 4, 2}}},
		{graph.Mesh{tp: 6}, [...]graph.MeshAxis{tp, cp, pp, dp}, tp, []Reach{{2, 2, 4, 1}}},
		{graph.Mesh{tp: 2, cp: 2, pp: 2}, [...]graph.MeshAxis{tp, cp, pp, dp}, pp, []Reach{{2, 1, 1, .5}}},
		// two groups of 3: one on a node, the other with a rank there and 2 on the next
		{graph.Mesh{tp: 3, dp: 2}, [...]graph.MeshAxis{tp, cp, pp, dp}, tp, []Reach{{1, 3, 3, 1.5}, {2, 1, 2, .5}}},
	} {
		a := round().Arranged(c.mesh, 0)
		a.Order = c.order
		if got := a.Reaches(AxesOf(c.axis), c.mesh.Along(c.axis), round().Network); !slices.Equal(got, c.want) {
			t.Errorf("%s along %s in the order %v: %+v, want %+v", c.mesh, c.axis, c.order, got, c.want)
		}
	}
	stages := round().Arranged(graph.Mesh{tp: 2, pp: 4}, 0) // 2 stages a node: sends within one, and between
	if got, want := stages.Reaches(AxesOf(pp), 2, round().Network), []Reach{{1, 2, 2, 1}, {2, 1, 1, .5}}; !slices.Equal(got, want) {
		t.Errorf("sends: %+v, want %+v", got, want)
	}
	both := round().Arranged(graph.Mesh{tp: 2, cp: 4}, 0)
	if got, want := both.Reaches(AxesOf(tp, cp), 8, round().Network), []Reach{{2, 4, 4, 2}}; !slices.Equal(got, want) || AxesOf(tp, cp, dp).In(both.Mesh) != "tp, cp" {
		t.Errorf("two axes: %+v, want %+v", got, want)
	}
	n := &Network{Ranks: is(4), Rails: is(8)} // two rails for a rank
	for _, c := range []struct {
		ranks, using int
		want         float64
	}{{1, 1, 2}, {1, 4, 2}, {4, 4, 8}} {
		if got := n.rails(c.ranks, c.using); got != c.want {
			t.Errorf("%d of %d ranks have %g of 8 rails, want %g", c.ranks, c.using, got, c.want)
		}
	}
	n.Rails = is(1)
	for _, c := range []struct {
		ranks, using int
		want         float64
	}{{1, 1, 1}, {1, 4, .25}, {2, 2, 1}} {
		if got := n.rails(c.ranks, c.using); got != c.want {
			t.Errorf("%d of %d ranks have %g of one rail, want %g", c.ranks, c.using, got, c.want)
		}
	}
}

// TestArrange: tp has more to exchange than pp and is kept within nodes, even where the mesh
// numbers pp's ranks first; where pp has more, it is pp. Nothing to exchange keeps the mesh's
// order.
func TestArrange(t *testing.T) {
	const tp, cp, pp, dp = graph.TP, graph.CP, graph.PP, graph.DP
	p := round()
	sum := func(n int, bytes float64) Exchange { return exchange(t, "all_reduce", n, bytes) }
	send := func(bytes float64) Exchange { return Exchange{Ranks: 2, Phases: 1, Bytes: bytes, Sent: bytes} }
	for _, c := range []struct {
		name    string
		mesh    graph.Mesh
		traffic []Traffic
		want    string
		seconds float64
	}{
		// tp: 10 times the tree of 4 ranks, 3 + 4·2 + 96/8 = 23; pp: 5 + 10 + 16/(4/2) = 23
		{"tp within", graph.Mesh{tp: 4, pp: 2}, []Traffic{{AxesOf(tp), sum(4, 64), 10}, {AxesOf(pp), send(16), 1}}, "tp=4 within a node, pp=2 between nodes", 230 + 23},
		// pp: 10 times a ring of 2, 1 + 2 + 6400/8 = 803; tp over 2 nodes of 2 ranks: the hierarchical
		// way, 2·(1+2) + 64/8 within, and 5 + 20 + 32/(4/2) between
		{"pp within", graph.Mesh{tp: 4, pp: 2}, []Traffic{{AxesOf(tp), sum(4, 64), 1}, {AxesOf(pp), send(6400), 10}}, "pp=2 within a node, tp=4 between nodes", 8030 + 6 + 8 + 25 + 16},
		{"nothing", graph.Mesh{tp: 4, pp: 2}, nil, "tp=4 within a node, pp=2 between nodes", 0},
		{"one node", graph.Mesh{tp: 2, pp: 2}, []Traffic{{AxesOf(tp), sum(2, 64), 1}, {AxesOf(pp), send(64), 9}}, "tp=2 within a node, pp=2 within a node", 1 + 2*2 + 8 + 9*(1+2+8)},
		{"dp goes out", graph.Mesh{tp: 2, cp: 2, dp: 2}, []Traffic{{AxesOf(tp), sum(2, 64), 5}, {AxesOf(cp), sum(2, 64), 1}}, "tp=2 within a node, cp=2 within a node, dp=2 between nodes", 6 * 13},
	} {
		a := p.Arranged(c.mesh, 0)
		best := Arrange(a, p, c.traffic)
		if got := p.seconds(&best, c.traffic); best.String() != c.want || math.Abs(got-c.seconds) > 1e-12*c.seconds {
			t.Errorf("%s: %s takes %g, want %s and %g", c.name, &best, got, c.want, c.seconds)
		}
		orders(a.Order[:], 0, func() {
			if s := p.seconds(&a, c.traffic); s < p.seconds(&best, c.traffic)-1e-9 {
				t.Errorf("%s: %v takes %g", c.name, a.Order, s)
			}
		})
	}
}
