package prove

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// Minimum is the least that the class allows.
type Minimum struct {
	Collectives int      `json:"collectives"`
	SentBytes   int64    `json:"sent_bytes_one_token"` // per rank, rounded up
	WeightBytes int64    `json:"weight_bytes"`         // of each parameter the largest share
	Launches    []string `json:"plan,omitempty"`       // one launch each
	None        string   `json:"none,omitempty"`       // why the class has no placement
	Unknown     string   `json:"unknown,omitempty"`    // why the minimum is not established

	parts int64 // bytes sent, times the ranks
}

// maxShared bounds the ways to place the parameters that several sections use.
const maxShared = 1 << 12

// minimum searches every section of the source; equal ones once. Parameters
// that several sections use are placed for all of them together; their weights
// count outside of blocks. The sections of a block are added up.
func minimum(g *graph.Graph, in class.Options, o Options) map[string]Minimum {
	ranks := in.Ranks
	if ranks == 1 {
		return alone(g)
	}
	b := newBudget(o)
	found := map[string]Minimum{}
	var best map[string]Minimum
	shared, choices := class.Shared(g, in)
	fixed := map[*graph.Value]bool{}
	for _, v := range shared {
		fixed[v] = true
	}
	all := class.EachPlacement(shared, choices, maxShared, func(placed map[*graph.Value]graph.Layout) {
		m := empty(g)
		in.Placed = placed
		for _, s := range class.Sections(g, in) {
			key := s.Key()
			if _, ok := found[key]; !ok {
				found[key] = newSpace(s, fixed, b).search()
			}
			m[s.Block] = m[s.Block].plus(found[key])
		}
		for v, l := range placed {
			if v.Def.Op.Name == "param" {
				m[""] = m[""].plus(Minimum{WeightBytes: class.WeightBytes(v.Type, l, ranks)})
			}
		}
		if best == nil || less(total(m), total(best)) {
			best = m
		}
	})
	if !all {
		return unknown(g)
	}
	return best
}

// empty has nothing in every block, and outside.
func empty(g *graph.Graph) map[string]Minimum {
	m := map[string]Minimum{"": {}}
	for _, b := range g.Blocks() {
		m[b] = Minimum{}
	}
	return m
}

// alone: one rank owns everything and needs no collective.
func alone(g *graph.Graph) map[string]Minimum {
	out := map[string]Minimum{"": {}}
	for _, n := range g.Nodes {
		m := out[n.Block()]
		if n.Op.Name == "param" {
			m.WeightBytes += class.WeightBytes(n.Results[0].Type, graph.Layout{}, 1)
		}
		out[n.Block()] = m
	}
	return out
}

// unknown gives up on every section.
func unknown(g *graph.Graph) map[string]Minimum {
	m := empty(g)
	for b := range m {
		m[b] = Minimum{Unknown: fmt.Sprintf("the parameters that several blocks use have more than %d placements", maxShared)}
	}
	return m
}

// total adds up the blocks.
func total(m map[string]Minimum) Minimum {
	var t Minimum
	for _, block := range slices.Sorted(maps.Keys(m)) {
		t = t.plus(m[block])
	}
	t.Launches = nil
	return t
}

// plus adds up what is found apart: without one there is none.
func (m Minimum) plus(o Minimum) Minimum {
	return Minimum{
		Collectives: m.Collectives + o.Collectives, SentBytes: m.SentBytes + o.SentBytes, WeightBytes: m.WeightBytes + o.WeightBytes,
		Launches: slices.Concat(m.Launches, o.Launches), None: cmp.Or(m.None, o.None), Unknown: cmp.Or(m.Unknown, o.Unknown), parts: m.parts + o.parts,
	}
}

// less orders by the objective; what is known, and there, comes first.
func less(a, b Minimum) bool {
	sure := func(m Minimum) int {
		if m.None == "" && m.Unknown == "" {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(sure(a), sure(b)), cmp.Compare(a.Collectives, b.Collectives), cmp.Compare(a.parts, b.parts), cmp.Compare(a.WeightBytes, b.WeightBytes)) < 0
}
