package prove

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Minimum is the least that the class allows.
type Minimum struct {
	Collectives int      `json:"collectives"`
	SentBytes   int64    `json:"sent_bytes_one_token"` // per rank, rounded up
	WeightBytes int64    `json:"weight_bytes"`         // of the rank that owns most
	Plan        []string `json:"plan,omitempty"`       // one launch each
	None        string   `json:"none,omitempty"`       // why the class has no placement

	parts int64 // bytes sent, times the ranks
}

// maxShared bounds the ways to place the parameters that several blocks use.
const maxShared = 1 << 12

// minimum searches every section of the source; equal ones once. Parameters
// that several sections use are placed for all of them together. Weights of
// these count outside of blocks.
func minimum(g *graph.Graph, ranks int) map[string]Minimum {
	if ranks == 1 {
		return alone(g)
	}
	params, choices, ok := sharedParams(g)
	if !ok {
		return unknown(g)
	}
	found := map[string]Minimum{}
	var best map[string]Minimum
	visit := func(placed map[*graph.Value]graph.Layout) {
		m := map[string]Minimum{}
		for _, s := range sections(g, ranks, placed) {
			key := s.key()
			if _, ok := found[key]; !ok {
				found[key] = search(s)
			}
			m[s.block] = found[key]
		}
		outside := m[""]
		for p, l := range placed {
			outside.WeightBytes += weight(p.Type, l, ranks)
		}
		m[""] = outside
		if best == nil || less(total(m), total(best)) {
			best = m
		}
	}
	placeAll(params, choices, map[*graph.Value]graph.Layout{}, visit)
	return best
}

// alone: one rank owns everything and needs no collective.
func alone(g *graph.Graph) map[string]Minimum {
	out := map[string]Minimum{"": {}}
	for _, n := range g.Nodes {
		m := out[n.Block()]
		if n.Op.Name == "param" {
			m.WeightBytes += weight(n.Results[0].Type, graph.Layout{}, 1)
		}
		out[n.Block()] = m
	}
	return out
}

// unknown gives up on every section.
func unknown(g *graph.Graph) map[string]Minimum {
	out := map[string]Minimum{}
	for _, b := range append(g.Blocks(), "") {
		out[b] = Minimum{None: fmt.Sprintf("the parameters that several blocks use have more than %d placements", maxShared)}
	}
	return out
}

// sharedParams lists the parameters that are used in another section than they
// are declared in, and how the class lets each lie; not ok if in too many ways.
func sharedParams(g *graph.Graph) (params []*graph.Value, choices [][]graph.Layout, ok bool) {
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			if v.Def.Op.Name == "param" && v.Def.Block() != n.Block() && !slices.Contains(params, v) {
				params = append(params, v)
			}
		}
	}
	shares := sharing(g.Nodes)
	ways := 1
	for _, p := range params {
		c := placements(p.Type, shares)
		if ways *= len(c); ways > maxShared {
			return nil, nil, false
		}
		choices = append(choices, c)
	}
	return params, choices, true
}

// placeAll calls visit with every placement of the parameters.
func placeAll(params []*graph.Value, choices [][]graph.Layout, placed map[*graph.Value]graph.Layout, visit func(map[*graph.Value]graph.Layout)) {
	if len(params) == 0 {
		visit(placed)
		return
	}
	for _, l := range choices[0] {
		placed[params[0]] = l
		placeAll(params[1:], choices[1:], placed, visit)
	}
}

// total adds up the sections; with one that has no placement there is none.
func total(m map[string]Minimum) Minimum {
	var t Minimum
	for _, block := range slices.Sorted(maps.Keys(m)) {
		s := m[block]
		if s.None != "" {
			t.None = s.None
		}
		t.Collectives += s.Collectives
		t.parts += s.parts
		t.WeightBytes += s.WeightBytes
	}
	return t
}

func less(a, b Minimum) bool {
	if (a.None == "") != (b.None == "") {
		return a.None == ""
	}
	return cmp.Or(cmp.Compare(a.Collectives, b.Collectives), cmp.Compare(a.parts, b.parts), cmp.Compare(a.WeightBytes, b.WeightBytes)) < 0
}
