package passes

import (
	"fmt"
	"maps"

	"github.com/krait-ml/krait/graph"
)

// A mesh of two axes is partitioned one axis after another. Along CP, tokens lie in parts, as the
// strategy context has them; the collectives of that axis are part of the graph that the strategy
// of the options then partitions along TP, to which they are functions that change nothing.

// across reports whether values are to lie along two axes.
func (o *Options) across() bool { return o.Mesh.Along(graph.TP) > 1 && o.Mesh.Along(graph.CP) > 1 }

// along is the options for one axis by itself.
func (o *Options) along(a graph.MeshAxis) *Options {
	one := *o
	one.Ranks, one.Mesh = o.Mesh.Along(a), graph.Mesh{}
	if a == graph.CP {
		one.Strategy = &Strategy{Name: contextStrategy, Passes: o.Strategy.Passes, border: graph.InParts}
	}
	return &one
}

// contextStrategy is the one by which tokens lie along CP.
const contextStrategy = "context"

// partitionAcross partitions a graph, whose recurrences are over parts, along CP and then along TP.
func partitionAcross(g *graph.Graph, o *Options) (*graph.Graph, error) {
	if o.Strategy.border != graph.Whole {
		return nil, fmt.Errorf("strategy %s splits the tokens of a batch, which ranks along cp have in parts already; give one that splits units, such as channel", o.Strategy.Name)
	}
	parts, err := partition(g, o.along(graph.CP))
	if err != nil {
		return nil, err
	}
	g, err = lift(parts, g.Stage, o)
	if err != nil {
		return nil, err
	}
	one := o.along(graph.TP)
	one.Mesh = o.Mesh
	if err := one.Strategy.unmatched(g, usesOf(g)); err != nil {
		return nil, err
	}
	return partition(g, one)
}

// lift takes the layouts of a graph for those along CP: along TP, all is whole.
func lift(g *graph.Graph, stage graph.Stage, o *Options) (*graph.Graph, error) {
	r := rewrite(g, stage, o.Mesh.Ranks())
	r.out.Mesh = o.Mesh
	for _, n := range g.Nodes {
		if n.Op.Class == graph.Collective || n.Op.Class == graph.Relayout {
			attrs := maps.Clone(n.Attrs)
			attrs["along"] = graph.CP.String()
			if _, err := r.node(n, n.Op.Name, attrs, names(n.Results), n.Results, r.args(n)...); err != nil {
				return nil, err
			}
		} else if err := r.copy(n); err != nil {
			return nil, err
		}
	}
	return r.finish()
}
