package graph

import "maps"

// Project is a partitioned graph as the ranks along one axis of its mesh see it: what runs along
// the other axis is left out, with the formats in which it travels there, and values are whole
// along it. Along CP it is a graph of one axis; along TP it keeps the mesh, since recurrences are
// over the parts that ranks along CP have.
func (g *Graph) Project(a MeshAxis) (*Graph, error) {
	out := NewGraph(g.Name, g.Stage, g.Mesh.Along(a))
	if a == TP {
		out.Ranks, out.Mesh = g.Ranks, g.Mesh
	}
	p := projection{out: out, axis: a, to: make(map[*Value]*Value, g.Len()), omits: g.elsewhere(a)}
	for _, n := range g.Nodes {
		if err := p.node(n); err != nil {
			return nil, err
		}
	}
	for _, o := range g.Outputs {
		if err := out.AddOutput(o.Name, p.to[o.Value]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// elsewhere lists what runs along the other axis than a: collectives and relayouts, and the
// conversions around them alone.
func (g *Graph) elsewhere(a MeshAxis) map[*Node]bool {
	out, users := map[*Node]bool{}, map[*Node]int{} // users along a of what is rounded
	for _, n := range g.Nodes {
		own, ok := n.Along()
		out[n] = ok && own != a
		for _, v := range n.Args {
			if v.Def.Op.Name == "quantize" && !out[n] {
				users[v.Def]++
			}
			if n.Op.Name == "dequantize" && out[v.Def] {
				out[n] = true
			}
		}
	}
	for _, n := range g.Nodes {
		if n.Op.Name == "quantize" && users[n] == 0 {
			out[n] = true
		}
	}
	return out
}

// projection makes a graph of one axis.
type projection struct {
	out   *Graph
	axis  MeshAxis
	to    map[*Value]*Value
	omits map[*Node]bool
}

func (p *projection) node(n *Node) error {
	args := make([]*Value, len(n.Args))
	for i, v := range n.Args {
		args[i] = p.to[v]
	}
	if p.omits[n] {
		for i, v := range n.Results {
			p.to[v] = args[i]
		}
		return nil
	}
	m := &Node{Op: n.Op, Args: args, Attrs: n.Attrs, Storage: n.Storage, Part: n.Part, Note: n.Note}
	if n.exchange() && p.axis != TP {
		m.Attrs = maps.Clone(n.Attrs)
		m.Attrs["along"] = ""
	}
	names, types := make([]string, len(n.Results)), make([]Type, len(n.Results))
	for i, v := range n.Results {
		names[i], types[i] = v.Name, v.Type.On(p.axis)
	}
	if err := p.out.append(m, names, types); err != nil {
		return err
	}
	for i, v := range n.Results {
		p.to[v] = m.Results[i]
	}
	return nil
}
