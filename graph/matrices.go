package graph

import "strings"

// Matrices lists the parameters that are only multiplied with, so that kernels can multiply with
// blocks of them, too. What chooses between experts is none: a choice jumps. Lookups lists what is
// also looked up in, such as an embedding.
func Matrices(g *Graph, lookups bool) (list []*Value) {
	users := make([][]*Node, g.Len())
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			users[v.ID] = append(users[v.ID], n)
		}
	}
	for _, p := range g.Leaves("param") {
		if v := p.Results[0]; multiplies(v, users, lookups) {
			list = append(list, v)
		}
	}
	return list
}

// Vocabulary lists the parameters with a row per token of the vocabulary: the embedding and the
// head.
func Vocabulary(g *Graph) (list []*Value) {
	for _, n := range g.Nodes {
		dims := n.Results[0].Type.Dims
		if n.Op.Name != "embedding" && (n.Op.Name != "matmul" || len(dims) == 0 || dims[0].Sym != Rows) {
			continue
		}
		for _, v := range n.Args {
			if v.Def.Storage != nil {
				list = append(list, v)
			}
		}
	}
	return list
}

// multiplies reports whether a parameter, or all fields of it, are only multiplied with,
// or looked up in as well, and decide nothing.
func multiplies(v *Value, users [][]*Node, lookups bool) bool {
	ok := false
	for _, n := range users[v.ID] {
		switch n.Op.Name {
		case "embedding":
			ok = ok || lookups
		case "matmul", "experts", "ungated_experts", "head_down", "head_up":
			ok = true
		case "field":
			if n.Attrs.Int("axis") == len(v.Type.Dims)-1 || !multiplies(n.Results[0], users, lookups) {
				return false
			}
			ok = true
			continue
		default:
			return false
		}
		for _, after := range users[n.Results[0].ID] {
			if strings.HasSuffix(after.Op.Name, "router") {
				return false
			}
		}
	}
	return ok
}
