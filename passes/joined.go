package passes

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// The launches that merge joins are in an order in which they can be. What travels joins
// the first of its kind after those that it waits for, or gets a new one before that:
// where in between cannot be known yet, so each place is tried. The next of its
// kind spares a launch; a new one may be earlier, for what is to come.

// joinOrAdd visits the states in which a value travels in a launch of kind j after the first so
// many, with the number of that launch, counted from 1.
func (st *state) joinOrAdd(j graph.Joint, after int, visit func(st *state, at int)) {
	end := len(st.launches)
	if i := slices.Index(st.launches[after:], j); i >= 0 {
		end = after + i - 1 // a new one right before it would be no earlier
		visit(st.clone(), after+i+1)
	}
	for at := after; at <= end; at++ {
		visit(st.insert(j, at), at+1)
	}
}

// insert adds a launch at a position; later launches move back.
func (st *state) insert(j graph.Joint, at int) *state {
	to := st.clone()
	to.launches = slices.Insert(slices.Clone(st.launches), at, j)
	to.cost.launches = len(to.launches)
	for v, list := range st.copies {
		if !slices.ContainsFunc(list, func(c there) bool { return c.after > at }) {
			continue
		}
		later := slices.Clone(list)
		for i := range later {
			if later[i].after > at {
				later[i].after++
			}
		}
		to.copies[v] = later
	}
	return to
}

// embedding says of launches which they are in a longer list; nil: the same.
type embedding []int

// within finds a list of launches in another, in its order, each as early as can be.
func within(list, in []graph.Joint) (embedding, bool) {
	if slices.Equal(list, in) {
		return nil, true
	}
	at := embedding{0}
	for _, j := range list {
		last := at[len(at)-1]
		i := slices.Index(in[last:], j)
		if i < 0 {
			return nil, false
		}
		at = append(at, last+i+1)
	}
	return at, true
}

// of maps a number of first launches to the longer list.
func (e embedding) of(after int) int {
	if e == nil {
		return after
	}
	return e[after]
}
