package prove

import (
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// origin is what made a value partial: a node that contracted a split axis, or
// that made a term of a whole value. Fields of a partial sum are sums apart.
type origin struct {
	node  *graph.Node
	field string
}

// sums follows partial sums through a graph.
type sums struct {
	pending map[*graph.Value][]origin      // of a partial value: what it is a sum of
	by      map[*graph.Value]*graph.Node   // of a source value: what reduces it
	users   map[*graph.Value][]*graph.Node // of a value: who takes it
	origin  matching
	errs    []error
	border  graph.PlaceKind // of the class
}

// trace follows every partial sum to where it is reduced. [graph.Check] has made
// sure that nothing nonlinear takes it before; here is refused what reduces a value
// a second time, or what needs no reducing. A sum may be reduced and, beside that,
// be a summand of another: that is right, and counts.
func trace(g *graph.Graph, m matching) (*sums, error) {
	s := &sums{pending: map[*graph.Value][]origin{}, by: map[*graph.Value]*graph.Node{}, users: map[*graph.Value][]*graph.Node{}, origin: m}
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			if !slices.Contains(s.users[v], n) {
				s.users[v] = append(s.users[v], n)
			}
		}
		switch {
		case reduces(n):
			s.reduce(n)
		case n.Op.Name == "term":
			s.pending[n.Results[0]] = []origin{{n, ""}}
		case n.Op.Class == graph.Compute || n.Op.Class == graph.View:
			s.compute(n)
		}
	}
	return s, errors.Join(s.errs...)
}

func (s *sums) fail(n *graph.Node, format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf("%s: %s: %w", n.Name(), n.Op.Name, fmt.Errorf(format, args...)))
}

// reduce records that a collective adds up its operands.
func (s *sums) reduce(n *graph.Node) {
	for i, v := range n.Args {
		switch other := s.by[s.origin[v]]; {
		case slices.Contains(n.Args[:i], v):
			s.fail(n, "%s is reduced twice by the same launch; name it once", v.Name)
		case other != nil && other != n:
			s.fail(n, "%s is reduced already, by %s; use its result", v.Name, other.Name())
		case s.termsOnly(v):
			s.fail(n, "%s is a sum of terms only, which every rank has whole: reduce nothing and use them", v.Name)
		}
		s.by[s.origin[v]] = n
	}
}

// termsOnly reports whether a partial sum is made of whole values alone.
func (s *sums) termsOnly(v *graph.Value) bool {
	return v.Type.Layout.Kind == graph.Partial &&
		!slices.ContainsFunc(s.pending[v], func(o origin) bool { return o.node.Op.Name != "term" })
}

// inTransit reports whether a value is only on its way from a sum to all ranks, rounded
// before it or not: an all_reduce in two.
func (s *sums) inTransit(v *graph.Value) bool {
	made := v.Def
	if made.Op.Name == "quantize" {
		made = made.Args[0].Def
	}
	return reduces(made) && !slices.ContainsFunc(s.users[v], func(n *graph.Node) bool {
		return n.Op.Name != "quantize" && (n.Op.Class != graph.Collective || n.Op.To != graph.Replicated)
	})
}

// compute follows sums through a view or a kernel.
func (s *sums) compute(n *graph.Node) {
	for _, group := range n.Op.Linear {
		for _, i := range group {
			for _, v := range n.Results {
				if v.Type.Layout.Kind == graph.Partial {
					s.pending[v] = union(s.pending[v], fieldOf(n, s.pending[n.Args[i]]))
				}
			}
		}
	}
	for _, v := range n.Results {
		if v.Type.Layout.Kind == graph.Partial && s.pending[v] == nil {
			s.pending[v] = []origin{{n, ""}}
		}
	}
}

// fieldOf names the sums that one field of a packed sum consists of.
func fieldOf(n *graph.Node, from []origin) []origin {
	if n.Op.Name != "field" {
		return from
	}
	out := slices.Clone(from)
	for i := range out {
		out[i].field += "." + n.Attrs.Text("name")
	}
	return out
}

// union appends what is new, in order.
func union(a, b []origin) []origin {
	for _, o := range b {
		if !slices.Contains(a, o) {
			a = append(a, o)
		}
	}
	return a
}
