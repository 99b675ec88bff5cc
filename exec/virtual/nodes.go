package virtual

import (
	"cmp"
	"slices"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// meshOf is the mesh of a schedule; one that names none has its ranks along [graph.TP].
func meshOf(s *lowering.Schedule) graph.Mesh {
	if s.Mesh == (graph.Mesh{}) {
		return graph.Mesh{graph.TP: s.Ranks}
	}
	return s.Mesh
}

// axesOf is the axes along which the ranks of a group differ.
func axesOf(mesh graph.Mesh, group []int) (axes cost.Axes) {
	for a := graph.TP; a <= graph.DP; a++ {
		if slices.ContainsFunc(group, func(r int) bool { return mesh.At(r, a) != mesh.At(group[0], a) }) {
			axes |= cost.AxesOf(a)
		}
	}
	return axes
}

// ranksOf is the ranks of the group that runs a collective.
func ranksOf(s *lowering.Schedule, st *lowering.Step) []int {
	g := s.Group(st)
	list := make([]int, g.Size)
	for i := range list {
		list[i] = g.At(i)
	}
	return list
}

// arrange puts the ranks on nodes.
func (c *clock) arrange(a cost.Arrangement) {
	c.nodes = a
	for i := range c.exchanges {
		x := &c.exchanges[i]
		x.reaches = x.reaches[:0]
		for _, g := range x.groups {
			if r := a.Reach(g, c.profile.Network); !slices.Contains(x.reaches, r) {
				x.reaches = append(x.reaches, r)
			}
		}
	}
}

// join adds a group of ranks that run the collective.
func (x *exchange) join(group []int) {
	if !slices.ContainsFunc(x.groups, func(g []int) bool { return slices.Equal(g, group) }) {
		x.groups = append(x.groups, group)
	}
}

// travel costs the collective for a batch, of the slowest group.
func (x *exchange) travel(p *cost.Profile, z graph.Sizes) (worst cost.Travel) {
	e := x.of(z)
	for _, r := range x.reaches {
		if t := p.Best(e, r); worst.Algorithm == nil || t.Seconds() > worst.Seconds() {
			worst = t
		}
	}
	return worst
}

// of is the exchange for a batch.
func (x *exchange) of(z graph.Sizes) cost.Exchange {
	return cost.ExchangeOf(x.op, x.ranks, x.bytes.Float(z), x.sent.Float(z))
}

// each calls f for the collectives of all ranks in the batches of the current step.
func (c *clock) each(f func(x *exchange, t *cost.Travel, z graph.Sizes)) {
	for _, b := range c.batches {
		for _, p := range b.programs {
			if p.schedule.Replica != b.replica {
				continue
			}
			for _, steps := range p.steps {
				for i := range steps {
					if st := &steps[i]; st.Kind == lowering.Collective && st.Op != lowering.Receive {
						t := b.of(st)
						f(&c.exchanges[st.exchange], &t.travels[st.exchange], t.sizes)
					}
				}
			}
		}
	}
}

// Steps are equal steps.
type Steps struct {
	graph.Sizes
	Times float64
}

// Arrange chooses which axes of the mesh go within nodes and which between them, so that the
// collectives of some steps take the least time ([cost.Arrange]).
func (m *Machine) Arrange(list ...Steps) {
	c := m.clock
	if c.nodes.Nodes() == 1 {
		return
	}
	var traffic []cost.Traffic
	for _, z := range list {
		for i, p := range m.split(z.Sizes) {
			c.batch(i, p.Sizes, false).replica = p.replica
		}
		c.each(func(x *exchange, _ *cost.Travel, y graph.Sizes) {
			add := cost.Traffic{Axes: x.axes, Exchange: x.of(y), Times: z.Times / float64(len(c.ranks))}
			for i := range traffic {
				if t := &traffic[i]; t.Axes == add.Axes && t.Exchange == add.Exchange {
					t.Times += add.Times
					return
				}
			}
			traffic = append(traffic, add)
		})
	}
	c.arrange(cost.Arrange(c.nodes, m.d.Profile, traffic))
	m.last.Busy = nil // the next step is not like the last
}

// Nodes is how the ranks lie on nodes.
func (m *Machine) Nodes() cost.Arrangement { return m.clock.nodes }

// Crossing is what the collectives along some axes of the mesh carry over a level of hardware in a
// step.
type Crossing struct {
	Axes    cost.Axes
	Level   cost.Level
	Sent    float64 // bytes by a rank, on average
	Seconds float64 // of a rank, on average; collectives at the same time count each
}

// Crossings lists what the last step carried, by axes and level.
func (m *Machine) Crossings() (list []Crossing) {
	ranks := float64(len(m.clock.ranks) * m.rounds)
	m.clock.each(func(x *exchange, t *cost.Travel, _ graph.Sizes) {
		for level, leg := range t.Legs {
			if leg == (cost.Leg{}) {
				continue
			}
			i := slices.IndexFunc(list, func(c Crossing) bool { return c.Axes == x.axes && c.Level == cost.Level(level) })
			if i < 0 {
				i = len(list)
				list = append(list, Crossing{Axes: x.axes, Level: cost.Level(level)})
			}
			list[i].Sent += leg.Sent / ranks
			list[i].Seconds += (leg.Latency + leg.Moving) / ranks
		}
	})
	slices.SortFunc(list, func(a, b Crossing) int { return cmp.Or(cmp.Compare(a.Axes, b.Axes), cmp.Compare(a.Level, b.Level)) })
	return list
}
