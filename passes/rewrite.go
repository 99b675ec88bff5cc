package passes

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// rewriter builds a graph out of another, value by value.
type rewriter struct {
	from *graph.Graph
	out  *graph.Graph
	to   map[*graph.Value]*graph.Value
}

func rewrite(g *graph.Graph, stage graph.Stage, ranks int) *rewriter {
	return &rewriter{g, g.Successor(stage, ranks), make(map[*graph.Value]*graph.Value, g.Len())}
}

// args are the new values of a node's operands.
func (r *rewriter) args(n *graph.Node) []*graph.Value {
	out := make([]*graph.Value, len(n.Args))
	for i, v := range n.Args {
		if out[i] = r.to[v]; out[i] == nil {
			panic(fmt.Sprintf("%s is used by %s and was not rewritten", v.Name, n.Name()))
		}
	}
	return out
}

// copy takes a node over as it is, on the new values of its operands.
func (r *rewriter) copy(n *graph.Node) error {
	if n.Op.Class == graph.Leaf {
		v := n.Results[0]
		return r.leaf(n, v.Name, v.Type, n.Storage, v)
	}
	_, err := r.node(n, n.Op.Name, n.Attrs, names(n.Results), n.Results, r.args(n)...)
	return err
}

// leaf adds a leaf in the place of an old value.
func (r *rewriter) leaf(n *graph.Node, name string, t graph.Type, s *graph.Storage, old *graph.Value) error {
	v, err := r.out.AddLeaf(n.Op.Name, name, t, s)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	v.Def.Part = n.Part
	if old != nil {
		r.to[old] = v
	}
	return nil
}

// node adds a node whose results stand for old values. Where it is the same
// operation as n, it keeps the note.
func (r *rewriter) node(n *graph.Node, op string, attrs graph.Attrs, names []string, old []*graph.Value, args ...*graph.Value) (*graph.Node, error) {
	m, err := r.out.Add(op, attrs, names, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", names[0], op, err)
	}
	if op == n.Op.Name {
		m.Note = n.Note
		for i, v := range n.Results {
			m.Results[i].Narrow = v.Narrow
		}
	}
	for i, v := range old {
		r.to[v] = m.Results[i]
	}
	return m, nil
}

// finish takes the outputs over.
func (r *rewriter) finish() (*graph.Graph, error) {
	for _, o := range r.from.Outputs {
		if err := r.out.AddOutput(o.Name, r.to[o.Value]); err != nil {
			return nil, err
		}
	}
	return r.out, nil
}

func names(values []*graph.Value) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = v.Name
	}
	return out
}

// usesOf lists the nodes that take each value.
func usesOf(g *graph.Graph) map[*graph.Value][]*graph.Node {
	uses := make(map[*graph.Value][]*graph.Node, g.Len())
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			uses[v] = append(uses[v], n)
		}
	}
	return uses
}
