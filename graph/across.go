package graph

import (
	"errors"
	"fmt"
)

// Two axes. On a mesh of TP and CP a value has a layout along each: ranks that differ along one
// axis alone hold it as that axis's layout says, each group of them what its members have of it
// along the other. The rules of operations speak of one axis, and hold along each as if the other
// were not there: what a rank has along CP is some rows of a batch, for which a rule is as right as
// for all of them, and a split of units is as right for some rows. Collectives are linear, and so
// change nothing along the axis that they do not run along: a partial sum of both axes may be added
// up along either first. An operation that is not linear in an operand refuses a partial sum of
// either axis.

// On is t as the ranks along one axis see it: its layout is the one along that axis.
func (t Type) On(a MeshAxis) Type {
	if a == CP {
		t.Layout = t.Context
	}
	t.Context = Layout{}
	return t
}

// Lies reports whether ranks hold different things: whether t is not whole on all of them.
func (t Type) Lies() bool { return t.Layout.Kind != Replicated || t.Context.Kind != Replicated }

// partial reports whether ranks have summands of t, along either axis.
func (t Type) partial() bool { return t.Layout.Kind == Partial || t.Context.Kind == Partial }

// wholeOn is t with all of it on each rank along an axis.
func (t Type) wholeOn(a MeshAxis) Type {
	if a == CP {
		t.Context = Layout{}
	} else {
		t.Layout = Layout{}
	}
	return t
}

// validContext checks the layout along CP, and that no axis is split along both.
func (t Type) validContext() error {
	c := t.Context
	if err := c.valid(t.Dims); err != nil {
		return fmt.Errorf("along cp: %w", err)
	}
	switch {
	case c.Kind != Sharded:
	case !c.ByBatch():
		return fmt.Errorf("along cp, %s is split on axis %d; only the rows of a batch may be", TypeOf(t.DType, t.Dims...), c.Axis)
	case t.Layout.Kind == Sharded && t.Layout.Axis == c.Axis:
		return fmt.Errorf("axis %d (%s) is split along tp and along cp; only one of them may split it", c.Axis, t.Dims[c.Axis])
	}
	return nil
}

// over is the mesh by which types are inferred: of one axis, TP, where values lie along one.
func (g *Graph) over() Mesh {
	if g.Mesh != (Mesh{}) {
		return g.Mesh
	}
	return Mesh{TP: g.Ranks}
}

// Infer works out the types of the results that a node would have in the graph.
func (g *Graph) Infer(n *Node) ([]Type, error) { return inferOver(n, g.over()) }

// Local is what a rank holds of a value of type t of the graph.
func (g *Graph) Local(t Type, rank int) Type { return g.over().Local(t, rank) }

// checkMesh checks that the mesh is of the graph's ranks, and of two axes.
func (g *Graph) checkMesh() error {
	m := g.Mesh
	switch {
	case m == (Mesh{}):
		return nil
	case m.Along(TP) == 1 || m.Along(CP) == 1 || m.Along(PP) > 1 || m.Along(DP) > 1:
		return fmt.Errorf("the graph's mesh is %s; values lie along tp and cp: give both, and neither pp nor dp, or leave the mesh out", m)
	case m.Ranks() != g.Ranks:
		return fmt.Errorf("the graph is for %d ranks, and its mesh %s has %d", g.Ranks, m, m.Ranks())
	}
	return nil
}

// Along is the axis that a collective or a relayout runs along in a mesh of two; false for other
// nodes, and where all ranks are along one axis.
func (n *Node) Along() (MeshAxis, bool) {
	a := axisNamed(n.Attrs.Text("along"))
	return MeshAxis(max(a, 0)), a >= 0
}

// exchange reports whether a node is a collective or a relayout, which are along one axis.
func (n *Node) exchange() bool { return n.Op.Class == Collective || n.Op.Class == Relayout }

// alone checks that a node speaks of no second axis.
func (n *Node) alone() error {
	if a, ok := n.Along(); ok {
		return fmt.Errorf("along=%s, and the graph has no mesh of two axes; leave along out", a)
	}
	for i, v := range n.Args {
		if v.Type.Context.Kind != Replicated {
			return fmt.Errorf("operand %d is %s, which lies along cp, and the graph has no mesh of two axes", i, v.Type)
		}
	}
	return nil
}

// inferOver is infer on a mesh, of TP or of TP and CP.
func inferOver(n *Node, over Mesh) ([]Type, error) {
	if over.Along(CP) > 1 {
		return inferAcross(n, over)
	}
	return infer(n, over.Along(TP))
}

// inferAcross infers along each axis by itself, and puts the layouts together.
func inferAcross(n *Node, over Mesh) ([]Type, error) {
	own, ok := n.Along()
	if err := checkAttrs(n, nil); n.exchange() && err != nil {
		return nil, err
	}
	if n.exchange() && !ok {
		return nil, fmt.Errorf("the mesh is %s, and it runs along no axis; write along=tp or along=cp", over)
	}
	var lies [numMeshAxes][]Type
	for _, a := range []MeshAxis{TP, CP} {
		types, err := n.project(a).inferAlong(a, over.Along(a))
		if err != nil {
			return nil, fmt.Errorf("along %s: %w", a, err)
		}
		lies[a] = types
	}
	out := make([]Type, len(lies[own]))
	for i, t := range lies[own] {
		t.Layout, t.Context = lies[TP][i].Layout, lies[CP][i].Layout
		if err := t.Valid(); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
		out[i] = t
	}
	return out, nil
}

// project is a copy of n whose operands are as the ranks along one axis see them. Results that have
// rows as the first operand has lie as these along CP, and along TP as if it were whole.
func (n *Node) project(a MeshAxis) *Node {
	m := &Node{Op: n.Op, Attrs: n.Attrs, Args: make([]*Value, len(n.Args))}
	for i, v := range n.Args {
		m.Args[i] = &Value{Name: v.Name, Type: v.Type.On(a), Def: v.Def}
	}
	m.forget(a)
	return m
}

// forget makes the first operand whole along TP where only its rows matter.
func (n *Node) forget(a MeshAxis) {
	if a == TP && n.Op.Parts && n.Op.Rule == nil {
		n.Args[0].Type.Layout = Layout{}
	}
}

// inferAlong infers a projected node's results: collectives and relayouts along the other axis
// change nothing.
func (n *Node) inferAlong(a MeshAxis, ranks int) ([]Type, error) {
	if own, ok := n.Along(); ok && own != a {
		return n.same()
	}
	b, in, err := bound(n)
	if err != nil {
		return nil, err
	}
	if b != nil {
		b.apart = a == TP
	}
	return inferBound(n, b, in, ranks)
}

// same are the types of operands.
func (n *Node) same() ([]Type, error) {
	if len(n.Args) == 0 {
		return nil, errors.New("no operand is given")
	}
	types := make([]Type, len(n.Args))
	for i, v := range n.Args {
		types[i] = v.Type
	}
	return types, nil
}

// Share is t as those ranks see it that differ from a rank along one axis of the mesh alone: its
// layout is the one along that axis, and it is cut down to what all of them have of it along the
// other. Ranks is how many they are, and at is the rank's place. A mesh of TP alone has no other
// axis: there it is t, for either. Extents, pieces and offsets follow as for one axis.
func (m Mesh) Share(t Type, a MeshAxis, rank int) (share Type, ranks, at int) {
	if m.Along(CP) == 1 {
		return t, m.Along(TP), rank
	}
	other := CP - a
	share = t.On(other).Local(m.Along(other), m.At(rank, other))
	share.Layout = t.On(a).Layout
	return share, m.Along(a), m.At(rank, a)
}

// Local is what a rank of the mesh holds of t, as [Type.Local] on one axis.
func (m Mesh) Local(t Type, rank int) Type {
	share, ranks, at := m.Share(t, TP, rank)
	return share.Local(ranks, at)
}

// RowsAlong is the axis along which ranks have some of t's rows, as the batch says; false if all
// have all rows.
func (t Type) RowsAlong() (MeshAxis, bool) {
	if t.Context.ByBatch() {
		return CP, true
	}
	return TP, t.Layout.ByBatch()
}
