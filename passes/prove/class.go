package prove

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Class states over which placements the minimum is taken.
const Class = `Unit ownership. A unit (channel, head, hidden unit, vocabulary row) has one owner. ` +
	`Every weight, state and activation with a unit axis is split along it, or covered where it holds groups that units share; ` +
	`with one group a cover is whole. Axes without units are whole. A partial sum belongs to nobody yet; a term may join one. A copy that a collective makes may be whole. ` +
	`A block's input and output are whole; so are graph outputs. A parameter has one placement for all its uses. ` +
	`Each launch of all_reduce, reduce_scatter and all_gather counts one; all_reduces in a block of which none needs another's result are one launch. ` +
	`Least, in this order: collectives; bytes sent per rank, for one token, one sequence, one row ` +
	`(ring: all_reduce 2(p-1)/p of its payload, all_gather and reduce_scatter (p-1)/p of the whole value); weight bytes of the rank that owns most. ` +
	`The minimum is over all layouts of all values under the rules of the operations, without algebraic rewrites.`

// hasUnits reports whether an axis has units that ranks may own.
func hasUnits(d graph.Dim) bool {
	return slices.ContainsFunc(d.Fields, func(f graph.Field) bool { return f.Unit > 0 })
}

// groups is the largest number of units of a field of t.
func groups(t graph.Type) int {
	n := 0
	for _, d := range t.Dims {
		for _, f := range d.Fields {
			if f.Unit > 0 {
				n = max(n, f.Units())
			}
		}
	}
	return n
}

// owned reports whether the class has a value that lies as t does: what has
// units lies along them, what has none is not cut. Copies that collectives make
// may be whole.
func owned(t graph.Type, made bool) bool {
	switch l := t.Layout; l.Kind {
	case graph.Partial:
		return true
	case graph.Replicated:
		return made || groups(t) <= 1
	default:
		d := t.Dims[l.Axis]
		for i, f := range d.Fields {
			if whole := l.Place[i].Kind == graph.Whole; f.Unit == 0 && !whole || f.Unit > 0 && f.Units() > 1 && whole {
				return false
			}
		}
		return hasUnits(d)
	}
}

// share says that an operation has units which share groups.
type share struct{ groups, units int }

// sharing lists what the operations of the nodes share, in order.
func sharing(nodes []*graph.Node) []share {
	var out []share
	for _, n := range nodes {
		if groups, units, ok := graph.Groups(n); ok && !slices.Contains(out, share{groups, units}) {
			out = append(out, share{groups, units})
		}
	}
	return out
}

// placements lists how the class lets a parameter or a state lie. Groups may be
// covered for units that share them.
func placements(t graph.Type, shares []share) []graph.Layout {
	var out []graph.Layout
	add := func(l graph.Layout) {
		if !slices.ContainsFunc(l.Place, func(p graph.Placement) bool { return p.Kind != graph.Whole }) {
			l = graph.Layout{}
		}
		if owned(graph.Type{DType: t.DType, Dims: t.Dims, Layout: l}, false) && !slices.ContainsFunc(out, l.Equal) {
			out = append(out, l)
		}
	}
	for axis, d := range t.Dims {
		if hasUnits(d) {
			choose(d.Fields, shares, func(place []graph.Placement) {
				add(graph.Layout{Kind: graph.Sharded, Axis: axis, Place: slices.Clone(place)})
			})
		}
	}
	add(graph.Layout{})
	return out
}

// choose calls visit with every placement of the fields.
func choose(fields []graph.Field, shares []share, visit func([]graph.Placement)) {
	place := make([]graph.Placement, len(fields))
	var rest func(i int)
	rest = func(i int) {
		if i == len(fields) {
			visit(place)
			return
		}
		for _, p := range fieldPlacements(fields[i], shares) {
			place[i] = p
			rest(i + 1)
		}
	}
	rest(0)
}

func fieldPlacements(f graph.Field, shares []share) []graph.Placement {
	switch {
	case f.Unit == 0:
		return []graph.Placement{{}}
	case f.Units() <= 1:
		return []graph.Placement{{Kind: graph.Split}, {}}
	}
	out := []graph.Placement{{Kind: graph.Split}}
	for _, s := range shares {
		if s.groups == f.Units() && s.units > s.groups {
			out = append(out, graph.Placement{Kind: graph.Cover, Of: s.units})
		}
	}
	return out
}
