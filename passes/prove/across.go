package prove

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// across proves a graph on a mesh of two axes along each: what runs along the other axis is linear,
// and changes no value of the source, so that a graph which is right along each axis is right along
// both. That no axis of a value is split along both, the rules have checked.
func across(source, partitioned *graph.Graph, o Options) (*Certificate, error) {
	if err := graph.Check(partitioned); err != nil {
		return nil, err
	}
	all := &Certificate{
		Model: partitioned.Name, Ranks: partitioned.Ranks, Mesh: partitioned.Mesh.String(), Nodes: len(partitioned.Nodes),
		Parts: []Part{}, Exact: true, Outside: []string{}, Sent: Volume{ranks: 1},
	}
	for _, a := range []graph.MeshAxis{graph.TP, graph.CP} {
		g, err := partitioned.Project(a)
		if err != nil {
			return nil, err
		}
		c, err := alongOne(source, g, o)
		if err != nil {
			return nil, fmt.Errorf("along %s: %w", a, err)
		}
		c.Axis, c.Ranks = a.String(), partitioned.Mesh.Along(a)
		all.axis(c)
	}
	return all, nil
}

// axis adds what was proved along an axis. Weights are split along the first alone.
func (c *Certificate) axis(one *Certificate) {
	if len(c.Axes) == 0 {
		c.WeightBytes, c.Minimum.WeightBytes = one.WeightBytes, one.Minimum.WeightBytes
	} else {
		c.Class += " "
		one.WeightBytes, one.Minimum.WeightBytes = c.WeightBytes, c.Minimum.WeightBytes
	}
	c.Class += "Along " + one.Axis + ": " + one.Class
	c.Axes = append(c.Axes, one)
	c.Collectives += one.Collectives
	c.SentOne += one.SentOne
	c.Exact = c.Exact && one.Exact
	for _, block := range one.Outside {
		c.Outside = append(c.Outside, block+" along "+one.Axis)
	}
	m := &c.Minimum
	m.Collectives, m.SentBytes = m.Collectives+one.Minimum.Collectives, m.SentBytes+one.Minimum.SentBytes
	if m.None == "" {
		m.None = one.Minimum.None
	}
	if m.Unknown == "" {
		m.Unknown = one.Minimum.Unknown
	}
}

// ranksOf is the number of ranks over which values lie: of a mesh, those along TP.
func ranksOf(g *graph.Graph) int {
	if g.Mesh != (graph.Mesh{}) {
		return g.Mesh.Along(graph.TP)
	}
	return g.Ranks
}
