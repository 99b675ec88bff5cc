package graph

import (
	"slices"
	"strings"
)

// What passes ask of a node's rule.

// LayoutsFor returns a function that says how the results of a node would lie over the ranks if its
// operands had the layouts given. It fails where the operation refuses them. It is not for several
// goroutines at the same time.
func LayoutsFor(n *Node) func(operands []Layout, ranks int) ([]Layout, error) {
	m := &Node{Op: n.Op, Attrs: n.Attrs, Args: make([]*Value, len(n.Args))}
	for i, v := range n.Args {
		m.Args[i] = &Value{Name: v.Name, Type: v.Type, Def: v.Def}
	}
	b, in, err := bound(m)
	return m.layouts(b, in, err, func() {})
}

// LayoutsAlong is [LayoutsFor] along TP in a mesh of two axes: layouts are those along TP, and how
// operands lie along CP changes nothing.
func LayoutsAlong(n *Node) func(operands []Layout, ranks int) ([]Layout, error) {
	m := n.project(TP)
	if own, ok := n.Along(); ok && own != TP {
		return func(operands []Layout, _ int) ([]Layout, error) { return slices.Clone(operands), nil }
	}
	b, in, err := bound(m)
	if b != nil {
		b.apart = true
	}
	return m.layouts(b, in, err, func() { m.forget(TP) })
}

// layouts tries layouts of a node's operands, of which a binding was made.
func (m *Node) layouts(b *binding, in []Type, err error, prepare func()) func(operands []Layout, ranks int) ([]Layout, error) {
	return func(operands []Layout, ranks int) ([]Layout, error) {
		if err != nil {
			return nil, err
		}
		for i, l := range operands {
			m.Args[i].Type.Layout = l
			if b != nil {
				in[i].Layout = l
			}
		}
		prepare()
		types, err := inferBound(m, b, in, ranks)
		if err != nil {
			return nil, err
		}
		out := make([]Layout, len(types))
		for i, t := range types {
			out[i] = t.Layout
		}
		return out, nil
	}
}

// Follow finds the axis of every operand and result that is walked together with an axis of result
// 0, or -1. It fails where the axis is not a letter by itself.
func Follow(n *Node, at int) (operands, results []int, ok bool) {
	if n.Op.Rule == nil {
		return nil, nil, false
	}
	r := n.Op.Rule.forRank(len(n.Results[0].Type.Dims))
	letter := r.out[0][at]
	if len(letter.letters) != 1 {
		return nil, nil, false
	}
	find := func(lists [][]axis) []int {
		out := make([]int, len(lists))
		for i, axes := range lists {
			out[i] = -1
			for j, a := range axes {
				if a.letters == letter.letters {
					out[i] = j
				} else if strings.Contains(a.letters, letter.letters) {
					ok = false
				}
			}
		}
		return out
	}
	ok = true
	return find(r.in), find(r.out), ok
}

// ByTokens reports whether the node can be computed some tokens at a time: its results are split by
// tokens where its operands are.
func ByTokens(n *Node) bool {
	if n.Op.Rule == nil {
		return true
	}
	r := n.Op.Rule.forRank(len(n.Results[0].Type.Dims))
	if len(r.out) == 0 || len(r.out[0]) == 0 {
		return false
	}
	return r.out[0][0].fixed == 0 || slices.ContainsFunc(n.Args, ofParts)
}

// Groups reports, for a node whose rule has an index of groups and members, how many units that
// index has for each number of groups: ranks that own units must hold the groups that cover them.
func Groups(n *Node) (groups, units int, ok bool) {
	if n.Op.Rule == nil {
		return 0, 0, false
	}
	b, in, err := bindNode(n)
	if err != nil {
		return 0, 0, false
	}
	for i, axes := range b.rule.in {
		for j, a := range axes {
			if lead := a.lead(); len(lead) > 1 {
				groups, _ = b.product(lead[:1])
				units, _ = b.product(lead)
				if f := in[i].Dims[j].Fields[0]; f.Units() < units { // units may be larger than the rule needs
					units = f.Units()
				}
				return groups, units, true
			}
		}
	}
	return 0, 0, false
}
