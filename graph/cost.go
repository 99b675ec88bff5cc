package graph

import "errors"

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
	c, err := n.cost()
	if err != nil {
		panic("BUG: cost of a node that does not check: " + err.Error())
	}
	return c
}

// CostOf is the cost of an operation on operands and results that are known by
// their types only. Operands whose shapes do not fit it are an error.
func CostOf(op *Op, a Attrs, args, results []Type) (Cost, error) {
	n := &Node{Op: op, Attrs: a}
	for _, t := range args {
		n.Args = append(n.Args, &Value{Type: t})
	}
	for _, t := range results {
		n.Results = append(n.Results, &Value{Type: t})
	}
	if len(results) == 0 {
		return Cost{}, errors.New("no result is given")
	}
	return n.cost()
}

func (n *Node) cost() (Cost, error) {
	var c Cost
	if n.Op.Class != Compute {
		return c, nil
	}
	var b *binding
	if n.Op.Rule != nil {
		var err error
		if b, _, err = bindNode(n); err != nil {
			return c, err
		}
	}
	if n.Op.cost != nil {
		return n.Op.cost(n, b), nil
	}
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
	return c, nil
}

// Cost is the sum over the nodes.
func (g *Graph) Cost() Cost {
	var c Cost
	for _, n := range g.Nodes {
		c = c.Plus(n.Cost())
	}
	return c
}
