// Package class is the class of placements over which a minimum is taken: which
// layouts a value may have, and in which ways a node can be computed. Partition
// and the proof each search it in their own way; neither adds to it.
package class

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Text states the class.
const Text = `Unit ownership. A unit (channel, head, hidden unit, vocabulary row) has one owner. ` +
	`Every weight, state and activation with a unit axis is split along one, or covered where it holds groups that units share; ` +
	`with one group a cover is whole. Axes without units are whole. A partial sum has no owner yet; a term may join one. A copy that a collective makes may be whole. ` +
	`A section is a run of nodes of one block, or of none; what crosses its border is whole, and so are graph outputs. A parameter has one placement for all its uses. ` +
	`Each launch of a collective counts one; all_reduces in a section of which none needs another's result are one launch. ` +
	`Least, in this order: collectives; bytes sent per rank, for one token, one sequence, one row ` +
	`(ring: (p-1)/p of the whole value to add it up, and as much to bring it to all ranks); weight bytes, of each parameter the largest share; values that travel. ` +
	`The minimum is over all layouts of all values under the rules of the operations, without algebraic rewrites.`

// RowsText states what more the class has where borders split the rows of the batch.
const RowsText = ` Values that have tokens and no units may be split along their tokens, %s, and cross borders so; ` +
	`an add of them is not whole, and they are no terms. ` +
	`All_gathers of them are joined like all_reduces, and so are reduce_scatters that give them, in the order in which all are the fewest launches.`

// PartsText states the class where borders split tokens in parts.
const PartsText = `Context parallelism. Ranks have the tokens of each sequence in parts, and the segments and states of these parts. ` +
	`Whatever has tokens and can be computed by them is split so, and crosses borders so; weights, states and all else are whole. ` +
	`A section is a run of nodes of one block, or of none; graph outputs are whole. ` +
	`Each launch of a collective counts one; those in a section that share rows of the batch and of which none needs another's result are one launch. ` +
	`Least, in this order: collectives; bytes sent per rank, for one token, one sequence, one row; values that travel. ` +
	`The minimum is over all layouts of all values under the rules of the operations, without algebraic rewrites but those of recurrences over parts, ` +
	`in which every token's contribution enters the state of each later token once.`

// AtBorder is how a value crosses a border: whole, or where borders split tokens and
// it has tokens and no units, split along them.
func AtBorder(border graph.PlaceKind, t graph.Type) graph.Layout {
	if border == graph.InParts && len(t.Dims) > 0 && t.Dims[0].Sym == graph.Tokens {
		return graph.SplitRows(border)
	}
	if border == graph.Whole || border == graph.InParts || !t.DType.Float() || len(t.Dims) == 0 || t.Dims[0].Sym != graph.Tokens || slices.ContainsFunc(t.Dims, HasUnits) {
		return graph.Layout{}
	}
	return graph.SplitRows(border)
}

// InRows reports whether t is split along its tokens, as the class splits it.
func InRows(border graph.PlaceKind, t graph.Type) bool {
	return t.Layout.ByBatch() && t.Layout.Equal(AtBorder(border, t))
}

// Spread reports whether the class has a node's results as they lie, where borders split tokens: an
// add, which is of the residual stream mostly, is not done by all ranks. In parts nothing is that
// can be done by tokens.
func Spread(border graph.PlaceKind, n *graph.Node, v *graph.Value, l graph.Layout) bool {
	if border == graph.InParts {
		return l.Kind != graph.Replicated || v.Type.Dims[0].Sym != graph.Tokens || !graph.ByTokens(n)
	}
	return n.Op.Name != "add" || l.Kind != graph.Replicated || AtBorder(border, v.Type).Kind == graph.Replicated
}

// IsTerm reports whether a whole value may be a term of a partial sum.
func IsTerm(border graph.PlaceKind, t graph.Type) bool {
	return border != graph.InParts && t.DType.Float() && AtBorder(border, t).Kind == graph.Replicated
}

// HasUnits reports whether an axis has units that ranks may own.
func HasUnits(d graph.Dim) bool {
	return slices.ContainsFunc(d.Fields, func(f graph.Field) bool { return f.Unit > 0 })
}

// Lies reports whether the class has a value that lies as t does: by units, or along its rows. In
// parts all else is whole, and segments of parts are on the rank that has these.
func Lies(border graph.PlaceKind, t graph.Type, made bool) bool {
	if border == graph.InParts {
		parts := len(t.Dims) > 0 && t.Dims[0].Times > 0
		return InRows(border, t) || parts && t.Layout.Equal(graph.SplitRows(graph.Even)) ||
			t.Layout.Kind == graph.Replicated && !(parts && t.DType == graph.I32)
	}
	return Owned(t, made) || InRows(border, t)
}

// Owned reports whether the class has a value that lies as t does: what has units lies along them,
// what has none is not cut. Copies that collectives and relayouts make may be whole.
func Owned(t graph.Type, made bool) bool {
	switch l := t.Layout; l.Kind {
	case graph.Partial:
		return true
	case graph.Replicated:
		return made || groups(t) <= 1
	default:
		if l.ByBatch() {
			return false
		}
		d := t.Dims[l.Axis]
		for i, f := range d.Fields {
			if whole := l.Place[i].Kind == graph.Whole; f.Unit == 0 && !whole || f.Unit > 0 && f.Units() > 1 && whole {
				return false
			}
		}
		return HasUnits(d)
	}
}

// OfNothing reports whether a node's results are of no operand but for its rows, so that every rank
// may have them whole and keep a part: zeros, and the segments of parts.
func OfNothing(n *graph.Node) bool { return n.Op.Parts && n.Op.Rule == nil }

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

// Share says that an operation has units which share groups.
type Share struct{ Groups, Units int }

// Sharing lists what the operations of the nodes share, in order.
func Sharing(nodes []*graph.Node) []Share {
	var out []Share
	for _, n := range nodes {
		if groups, units, ok := graph.Groups(n); ok && !slices.Contains(out, Share{groups, units}) {
			out = append(out, Share{groups, units})
		}
	}
	return out
}

// Placements lists how the class lets a parameter or a state lie. Groups may be
// covered for units that share them.
func Placements(border graph.PlaceKind, t graph.Type, shares []Share) []graph.Layout {
	if border == graph.InParts {
		return []graph.Layout{{}}
	}
	var out []graph.Layout
	add := func(l graph.Layout) {
		if !slices.ContainsFunc(l.Place, func(p graph.Placement) bool { return p.Kind != graph.Whole }) {
			l = graph.Layout{}
		}
		if Owned(graph.Type{DType: t.DType, Dims: t.Dims, Layout: l}, false) && !slices.ContainsFunc(out, l.Equal) {
			out = append(out, l)
		}
	}
	for axis, d := range t.Dims {
		if HasUnits(d) {
			placeFields(d.Fields, shares, func(place []graph.Placement) {
				add(graph.Layout{Kind: graph.Sharded, Axis: axis, Place: slices.Clone(place)})
			})
		}
	}
	add(graph.Layout{})
	return out
}

// placeFields calls visit with every placement of the fields.
func placeFields(fields []graph.Field, shares []Share, visit func([]graph.Placement)) {
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

func fieldPlacements(f graph.Field, shares []Share) []graph.Placement {
	switch {
	case f.Unit == 0:
		return []graph.Placement{{}}
	case f.Units() <= 1:
		return []graph.Placement{{Kind: graph.Split}, {}}
	}
	out := []graph.Placement{{Kind: graph.Split}}
	for _, s := range shares {
		if s.Groups == f.Units() && s.Units > s.Groups {
			out = append(out, graph.Placement{Kind: graph.Cover, Of: s.Units})
		}
	}
	return out
}

// oneToken is the batch for which bytes are compared.
var oneToken = graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1}

// WeightBytes is the largest share of a parameter that lies so.
func WeightBytes(t graph.Type, l graph.Layout, ranks int) int64 {
	t.Layout = l
	var most int64
	for r := range ranks {
		most = max(most, t.Local(ranks, r).Bytes().At(oneToken))
	}
	return most
}
