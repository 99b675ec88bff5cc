package explain

import "github.com/krait-ml/krait/graph"

// Common is common for lists of numbers.
func Common(a, b []int) [][2]int {
	g := graph.NewGraph("g", graph.ModelStage, 1)
	nodes := map[int]*graph.Node{}
	list := func(numbers []int) (out []*graph.Node) {
		for _, n := range numbers {
			if nodes[n] == nil {
				v, err := g.AddLeaf("input", "v"+string(rune('a'+n)), graph.TypeOf(graph.F32, graph.Size(1)), nil)
				if err != nil {
					panic(err)
				}
				nodes[n] = v.Def
			}
			out = append(out, nodes[n])
		}
		return out
	}
	return common(list(a), list(b))
}
