package gorgonia

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// axis is the columns of all values that are walked together. Sets of them are joined as the graph
// is read: parent leads to the one that stands for the set.
type axis struct {
	parent *axis
	n      int
	cuts   map[int]bool // where fields begin, but for the first; set once all sets are joined
	group  *group
}

// group is axes whose columns have owners alike: an axis, and its slices.
type group struct {
	parent *group
	whole  bool // an input or an output, without units
	unit   int  // columns of a unit; 0: not said
}

func newAxis(n int) *axis { return &axis{n: n, cuts: map[int]bool{}, group: &group{}} }

func (a *axis) find() *axis {
	for a.parent != nil {
		a = a.parent
	}
	return a
}

func (g *group) find() *group {
	for g.parent != nil {
		g = g.parent
	}
	return g
}

// join makes two axes one.
func (a *axis) join(b *axis) {
	if a, b = a.find(), b.find(); a == b {
		return
	}
	a.group.join(b.group)
	b.parent = a
}

func (g *group) join(h *group) {
	if g, h = g.find(), h.find(); g == h {
		return
	}
	g.whole, g.unit = g.whole || h.whole, max(g.unit, h.unit)
	h.parent = g
}

// units returns the columns of a unit; 0: the axis is whole. Units of an input win over an output
// that has its columns.
func (g *group) units() int {
	switch g = g.find(); {
	case g.unit > 0:
		return g.unit
	case g.whole:
		return 0
	}
	return 1
}

// dim returns the axis as graphs have it.
func (a *axis) dim() graph.Dim {
	a = a.find()
	unit := a.group.units()
	if len(a.cuts) == 0 {
		return graph.Units(a.n, unit)
	}
	var fields []graph.Field
	start := 0
	for _, end := range append(slices.Sorted(maps.Keys(a.cuts)), a.n) {
		fields = append(fields, graph.Field{Name: fmt.Sprint("c", start), Size: end - start, Unit: unit})
		start = end
	}
	return graph.Pack(fields...)
}

// slice is columns of an axis, from one on, which are an axis of their own.
type slice struct {
	of, is *axis
	from   int
}

// settle spreads the cuts of axes to their slices, and those of slices to what they are of, until
// none is new.
func (r *reader) settle() {
	cut := func(a *axis, at int) bool {
		if a = a.find(); at <= 0 || at >= a.n || a.cuts[at] {
			return false
		}
		a.cuts[at] = true
		return true
	}
	for again := true; again; {
		again = false
		for _, s := range r.slices {
			for _, at := range append(slices.Collect(maps.Keys(s.is.find().cuts)), 0, s.is.n) {
				again = cut(s.of, s.from+at) || again
			}
			for _, at := range slices.Collect(maps.Keys(s.of.find().cuts)) {
				again = cut(s.is, at-s.from) || again
			}
		}
	}
}

// fieldsFrom names the fields of the columns from one on, n of them.
func fieldsFrom(d graph.Dim, from, n int) string {
	var names []string
	at := 0
	for _, f := range d.Fields {
		if at >= from && at < from+n {
			names = append(names, f.Name)
		}
		at += f.Size
	}
	return strings.Join(names, "|")
}
