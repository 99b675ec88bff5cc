package passes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// limit is what the strategy says of how a value may lie. A value that it does not name
// lies by unit ownership; outputs may be made whole as well, where the strategy lets
// what they are made of be whole.
func (s *Strategy) limit(v *graph.Value, uses []*graph.Node, output bool) (class.Limit, error) {
	for _, r := range s.rules {
		if !r.fits(v, uses) {
			continue
		}
		limit := class.Limit{Only: true}
		for _, text := range r.layouts {
			if text == "units" {
				limit.Only = false
				continue
			}
			l, err := namedLayout(text, v)
			if err != nil {
				return limit, fmt.Errorf("%s: strategy %s: %w", v.Name, s.Name, err)
			}
			if !slices.ContainsFunc(limit.Layouts, l.Equal) {
				limit.Layouts = append(limit.Layouts, l)
			}
		}
		return limit, nil
	}
	if output && len(s.rules) > 0 {
		return class.Limit{Layouts: []graph.Layout{{}}}, nil
	}
	return class.Limit{}, nil
}

// namedLayout is the layout that a placement file calls whole, partial,
// split:AXIS, even, sequence or parts.
func namedLayout(text string, v *graph.Value) (graph.Layout, error) {
	if axis, ok := strings.CutPrefix(text, "split:"); ok {
		a, _ := strconv.Atoi(axis)
		if a < 0 || a >= len(v.Type.Dims) || v.Type.Dims[a].Sym != 0 {
			return graph.Layout{}, fmt.Errorf("axis %d of %s cannot be split", a, v.Type)
		}
		return graph.SplitOn(a, len(v.Type.Dims[a].Fields)), nil
	}
	if place, ok := borders[text]; ok && place != graph.Whole {
		l := graph.SplitRows(place)
		t := v.Type
		if t.Layout = l; t.Valid() != nil {
			return l, fmt.Errorf("%s has no tokens to be split %s", graph.TypeOf(v.Type.DType, v.Type.Dims...), text)
		}
		return l, nil
	}
	if text == "partial" {
		return graph.Layout{Kind: graph.Partial}, nil
	}
	return graph.Layout{}, nil
}

// borders are the placements of tokens in what crosses borders, by their names.
var borders = map[string]graph.PlaceKind{"whole": graph.Whole, "even": graph.Even, "sequence": graph.BySequence, "parts": graph.InParts}

// border is how tokens lie in what crosses borders.
func (o *Options) border() graph.PlaceKind {
	if o.Ranks == 1 {
		return graph.Whole
	}
	return o.Strategy.border
}

// limits works out the limit of every value; on one rank everything is whole.
func (o *Options) limits(g *graph.Graph) (func(*graph.Value) class.Limit, error) {
	if o.Ranks == 1 {
		return func(*graph.Value) class.Limit { return class.Limit{Layouts: []graph.Layout{{}}, Only: true} }, nil
	}
	uses, limits, leaves := usesOf(g), map[*graph.Value]class.Limit{}, map[*graph.Value]bool{}
	for _, o := range g.Outputs {
		leaves[o.Value] = true
	}
	for _, n := range g.Nodes {
		for _, v := range n.Results {
			var err error
			if limits[v], err = o.Strategy.limit(v, uses[v], leaves[v]); err != nil {
				return nil, err
			}
		}
	}
	return func(v *graph.Value) class.Limit { return limits[v] }, nil
}
