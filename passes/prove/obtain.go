package prove

import (
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// way is a state in which an operand lies as it should, and the depth of that copy of it.
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
		return x.collect(nil, st, v, layout)
	}
	cut := slices.Contains(x.Cuts[v], layout)
	if !cut && !(layout == class.Partial && class.IsTerm(x.Border, x.Values[v].Type)) {
		return nil
	}
	var out []way
	if d := st.find(v, class.Whole); d >= 0 {
		out = append(out, way{st, d})
	} else {
		out = x.collect(out, st, v, class.Whole)
	}
	if cut {
		out = x.collect(out, st, v, layout)
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

// weight is what a parameter takes; what is placed for several sections counts outside of them.
func (x *space) weight(v, layout int) int64 {
	p := x.Values[v]
	if p.Def.Op.Name != "param" || x.fixed[p] {
		return 0
	}
	return class.WeightBytes(p.Type, x.Layouts[layout], x.Ranks)
}

// collect adds to ways those in which a collective gives v a layout.
func (x *space) collect(ways []way, st *state, v, layout int) []way {
	if x.Stays(v) {
		return ways
	}
	for _, h := range st.held[v] {
		op, ok := graph.Between(x.Layouts[h.layout].Kind, x.Layouts[layout].Kind)
		if !ok || op.Class != graph.Collective {
			continue
		}
		j, joins := graph.JointOf(op, x.Values[v].Type, x.Layouts[h.layout], x.Layouts[layout])
		if !joins {
			ways = x.launch(ways, st, held{layout, h.depth}, move{op: op, value: v})
		} else if d := x.next(j, h.depth); d > 0 {
			ways = x.launch(ways, st, held{layout, d}, move{op: op, value: v, joint: j, depth: d})
		} else {
			x.over = true
		}
	}
	return ways
}

// launch adds to ways what a collective that makes a copy of v leads to, unless it is one too many.
func (x *space) launch(ways []way, st *state, made held, mv move) []way {
	launches, others := max(st.launches, mv.depth), st.cost.others
	if mv.depth == 0 {
		others++
	}
	if launches+others > x.limit {
		x.over = true
		return ways
	}
	to := st.with(mv.value, made)
	to.launches, to.cost.others = launches, others
	to.cost.sent += phases(mv.op) * x.phase[mv.value]
	to.cost.moved++
	mv.next = st.moves
	to.moves = &mv
	return append(ways, way{to, made.depth})
}
