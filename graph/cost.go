package graph

// Cost is what a node takes for one batch, over all ranks together: it does not
// depend on the layout.
type Cost struct {
	FLOPs Poly // floating-point operations
	Read  Poly // bytes read from memory, each operand once
	Write Poly // bytes written
}

// Plus adds costs.
func (c Cost) Plus(d Cost) Cost {
	return Cost{c.FLOPs.Plus(d.FLOPs), c.Read.Plus(d.Read), c.Write.Plus(d.Write)}
}

// Cost is the node's cost. Leaves, views and layout changes cost nothing here:
// what collectives move is counted where they are lowered.
func (n *Node) Cost() Cost {
	if n.Op.Class != Compute {
		return Cost{}
	}
	var b *binding
	if n.Op.Rule != nil {
		var err error
		if b, _, err = bindNode(n); err != nil {
			panic("BUG: cost of a node that does not check: " + err.Error())
		}
	}
	if n.Op.cost != nil {
		return n.Op.cost(n, b)
	}
	var c Cost
	for _, v := range n.Args {
		c.Read = c.Read.Plus(v.Type.Bytes())
	}
	for _, v := range n.Results {
		c.Write = c.Write.Plus(v.Type.Bytes())
	}
	for _, w := range n.Op.Work {
		p := b.cost(w)
		if b.rule.any {
			p = p.Times(n.Results[0].Type.Elems())
		}
		c.FLOPs = c.FLOPs.Plus(p)
	}
	return c
}

// Cost is the sum over the nodes.
func (g *Graph) Cost() Cost {
	var c Cost
	for _, n := range g.Nodes {
		c = c.Plus(n.Cost())
	}
	return c
}
