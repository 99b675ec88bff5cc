package passes

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// widest bounds the plans of as many launches that are looked at together.
const widest = 256

// travel is a collective that may share a launch.
type travel struct {
	node  *graph.Node
	kind  string // what those of one launch have in common
	needs []int  // the travels whose results it needs
}

// fewest numbers the collectives of a block that may share a launch, from 1 on: those
// of one launch alike. Of a kind all go that can go, since to wait longer spares none:
// what is left to find is which kind is next.
func fewest(nodes []*graph.Node) map[*graph.Node]int {
	all := travels(nodes)
	number := map[*graph.Node]int{}
	for i, k := range shortest(all) {
		number[all[i].node] = k
	}
	return number
}

// travels lists the collectives that may share a launch.
func travels(nodes []*graph.Node) []travel {
	var out []travel
	needs := map[*graph.Value][]int{} // of values that wait for travels: which
	for _, n := range nodes {
		var of []int
		for _, v := range n.Args {
			of = append(of, needs[v]...)
		}
		slices.Sort(of)
		of = slices.Compact(of)
		if n.Op.Class == graph.Collective {
			a, _ := n.Along()
			v := n.Args[0].Type.On(a)
			if j, ok := graph.JointOf(n.Op, v, v.Layout, n.Results[0].Type.On(a).Layout); ok {
				out = append(out, travel{n, fmt.Sprint(j.Rows, j.Place, n.Op.Name, n.Attrs), of})
				of = append(slices.Clone(of), len(out)-1)
			}
		}
		if len(of) > 0 {
			for _, v := range n.Results {
				needs[v] = of
			}
		}
	}
	return out
}

// shortest gives each travel the number of its launch, in a plan of the fewest launches:
// it tries plans of one launch, of two, and so on.
func shortest(all []travel) []int {
	plans := [][]int{make([]int, len(all))} // 0: not gone
	for at := 1; ; at++ {
		var next [][]int
		seen := map[string]bool{}
		for _, plan := range plans {
			if !slices.Contains(plan, 0) {
				return plan
			}
			for _, p := range oneMore(all, plan, at) {
				if key := gone(p); !seen[key] {
					seen[key] = true
					next = append(next, p)
				}
			}
		}
		if len(next) > widest { // go on with those that are farthest
			slices.SortStableFunc(next, func(a, b []int) int { return left(a) - left(b) })
			next = next[:widest]
		}
		plans = next
	}
}

// oneMore lists what one more launch makes of a plan: one of each kind that can go.
func oneMore(all []travel, plan []int, at int) [][]int {
	var out [][]int
	of := map[string]int{}
	for i, t := range all {
		if plan[i] > 0 || slices.ContainsFunc(t.needs, func(j int) bool { return plan[j] == 0 }) {
			continue
		}
		k, ok := of[t.kind]
		if !ok {
			k = len(out)
			of[t.kind] = k
			out = append(out, slices.Clone(plan))
		}
		out[k][i] = at
	}
	return out
}

// gone is the same for plans after which the same travels are left.
func gone(plan []int) string {
	key := make([]byte, len(plan))
	for i, k := range plan {
		if k > 0 {
			key[i] = 1
		}
	}
	return string(key)
}

// left counts the travels that are left.
func left(plan []int) int {
	n := 0
	for _, k := range plan {
		if k == 0 {
			n++
		}
	}
	return n
}
