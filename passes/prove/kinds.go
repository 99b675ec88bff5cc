package prove

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Collectives are one launch if they are of one kind and do not need each other's results.
// A walk takes the kinds of its launches as given, in their order; where none is given, it
// lets all kinds be one, which costs no more. As long as the cheapest way then has
// a launch of several kinds, each kind is given to that launch in turn.

// best is the cheapest way whose launches are of the kinds given, if it is cheaper than
// one that is known; or the node that no way gets past.
func (x *space) best(kinds []graph.Joint, known *state) (best *state, stuck *graph.Node) {
	x.kinds = kinds
	st, stuck := x.walk()
	if st == nil || known != nil && st.compare(known) >= 0 {
		return known, stuck
	}
	at := st.mixed()
	if at == 0 {
		return st, nil
	}
	best = known
	for _, j := range x.joints {
		given := slices.Clone(kinds)
		given[at-1] = j
		best, _ = x.best(given, best)
	}
	return best, nil
}

// mixed is the first launch that has values of several kinds, counted from 1; 0 if none has.
func (st *state) mixed() int {
	found := 0
	kind := map[int]graph.Joint{}
	for mv := st.moves; mv != nil; mv = mv.next {
		j, ok := kind[mv.depth]
		if kind[mv.depth] = mv.joint; ok && mv.depth > 0 && j != mv.joint && (found == 0 || mv.depth < found) {
			found = mv.depth
		}
	}
	return found
}

// next is the first launch from depth on in which values of a kind can travel; 0 if none is left.
func (x *space) next(j graph.Joint, depth int) int {
	for i, k := range x.kinds[depth:] {
		if k == j || k == (graph.Joint{}) {
			return depth + i + 1
		}
	}
	return 0
}

// kindsOf lists the kinds of launches that the section's values may travel in.
func (x *space) kindsOf() []graph.Joint {
	var out []graph.Joint
	for v, value := range x.Values {
		may := x.May(v)
		for _, from := range may {
			for _, to := range may {
				op, ok := graph.Between(x.Layouts[from].Kind, x.Layouts[to].Kind)
				if !ok || op.Class != graph.Collective {
					continue
				}
				if j, joins := graph.JointOf(op, value.Type, x.Layouts[from], x.Layouts[to]); joins && !slices.Contains(out, j) {
					out = append(out, j)
				}
			}
		}
	}
	return out
}
