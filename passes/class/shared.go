package class

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Shared lists the parameters and states that several sections use, and how each
// may lie: each has one placement for all of them.
func Shared(g *graph.Graph, o Options) (leaves []*graph.Value, choices [][]graph.Layout) {
	user := map[*graph.Value]int{}
	at, block := -1, ""
	for _, n := range g.Nodes {
		if n.Op.Class == graph.Leaf {
			continue
		}
		if at < 0 || n.Block() != block {
			at, block = at+1, n.Block()
		}
		for _, v := range n.Args {
			if first, used := user[v]; isPlaced(v) && used && first != at && !slices.Contains(leaves, v) {
				leaves = append(leaves, v)
			} else if !used {
				user[v] = at
			}
		}
	}
	shares := Sharing(g.Nodes)
	for _, v := range leaves {
		var limit Limit
		if o.Limit != nil {
			limit = o.Limit(v)
		}
		choices = append(choices, limit.placements(o.Border, v.Type, shares))
	}
	return leaves, choices
}

// EachPlacement calls visit with every way to place the leaves; false if there
// are more than most ways.
func EachPlacement(leaves []*graph.Value, choices [][]graph.Layout, most int, visit func(map[*graph.Value]graph.Layout)) bool {
	ways := 1
	for _, c := range choices {
		if ways *= len(c); ways > most {
			return false
		}
	}
	placed := map[*graph.Value]graph.Layout{}
	var rest func(i int)
	rest = func(i int) {
		if i == len(leaves) {
			visit(placed)
			return
		}
		for _, l := range choices[i] {
			placed[leaves[i]] = l
			rest(i + 1)
		}
	}
	rest(0)
	return true
}
