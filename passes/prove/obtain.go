package prove

import (
	"slices"

	"github.com/krait-ml/krait/passes/class"
)

// way is a state in which an operand lies as it should, and how deep below
// all_reduces that copy of it is.
type way struct {
	*state
	depth int
}

// find is the depth of the copy of v that lies so, -1 if there is none.
func (st *state) find(v, layout int) int {
	for _, h := range st.held[v] {
		if h.layout == layout {
			return h.depth
		}
	}
	return -1
}

func (st *state) clone() *state {
	to := *st
	to.held = slices.Clone(st.held)
	return &to
}

// with is st with another copy of v.
func (st *state) with(v int, h held) *state {
	to := st.clone()
	to.held[v] = append(slices.Clone(st.held[v]), h)
	slices.SortFunc(to.held[v], func(a, b held) int { return a.layout - b.layout })
	return to
}

// obtain lists the ways to have v in a layout. Copies that collectives make are
// kept for later uses; shard and term cost nothing and are made when needed.
func (x *space) obtain(st *state, v, layout int) []way {
	if x.Stays(v) && st.held[v] == nil {
		return x.place(st, v, layout)
	}
	if d := st.find(v, layout); d >= 0 {
		return []way{{st, d}}
	}
	if layout == class.Whole {
		return x.toWhole(st, v)
	}
	cut := slices.Contains(x.Cuts[v], layout)
	if layout != class.Partial && !cut {
		return nil
	}
	var out []way
	if d := st.find(v, class.Whole); d >= 0 {
		out = append(out, way{st, d})
	} else {
		out = x.toWhole(st, v)
	}
	if d := st.find(v, class.Partial); d >= 0 && cut {
		out = x.launch(out, st, v, "reduce_scatter", held{layout, d})
	}
	return out
}

// place puts a parameter or a state where it stays.
func (x *space) place(st *state, v, layout int) []way {
	at := layout
	if layout == class.Partial {
		at = class.Whole // and a term of it
	}
	if !slices.ContainsFunc(x.Start[v], x.Layouts[at].Equal) {
		return nil
	}
	to := st.with(v, held{at, 0})
	to.cost.weight += x.weight(v, at)
	return []way{{to, 0}}
}

// weight is what a parameter takes; what is placed for several sections counts
// outside of them.
func (x *space) weight(v, layout int) int64 {
	p := x.Values[v]
	if p.Def.Op.Name != "param" || x.fixed[p] {
		return 0
	}
	return class.WeightBytes(p.Type, x.Layouts[layout], x.Ranks)
}

// toWhole lists the collectives that make v whole.
func (x *space) toWhole(st *state, v int) []way {
	if x.Stays(v) {
		return nil
	}
	var out []way
	for _, h := range st.held[v] {
		if h.layout == class.Partial {
			out = x.launch(out, st, v, "all_reduce", held{class.Whole, h.depth + 1})
		} else {
			out = x.launch(out, st, v, "all_gather", held{class.Whole, h.depth})
		}
	}
	return out
}

// launch adds to ways what a collective that makes a copy of v leads to, unless
// it is one too many.
func (x *space) launch(ways []way, st *state, v int, kind string, made held) []way {
	launches, others := st.launches, st.cost.others
	if kind == "all_reduce" {
		launches = max(launches, made.depth)
	} else {
		others++
	}
	if launches+others > x.limit {
		x.over = true
		return ways
	}
	to := st.with(v, made)
	to.launches, to.cost.others = launches, others
	to.cost.sent += turns(kind) * x.ring[v]
	to.cost.moved++
	to.moves = &move{kind, v, made.depth, st.moves}
	return append(ways, way{to, made.depth})
}
