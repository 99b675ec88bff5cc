package prove

import (
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// affine says how a recurrence passes states from part to part: what its *_states operation takes.
type affine struct {
	of    string // the recurrence
	state int    // its operand that is the state, before that of the segments
	decay int    // the operand whose sums are operand 0; -1: none
	rate  int    // the operand that is operand 2 then
	left  bool   // operand 0 is what the recurrence leaves of ones, with values (operand 2) that are zero
}

var affines = map[string]affine{
	"conv_states":      {of: "conv1d", state: 2, decay: -1},
	"selective_states": {of: "selective_scan", state: 5, decay: 1, rate: 2},
	"ssd_states":       {of: "ssd_scan", state: 5, decay: 1, rate: 2},
	"delta_states":     {of: "delta_scan", state: 5, decay: -1, left: true},
}

// recurrences checks that every token's contribution enters the state of each later token once. A
// recurrence over parts must run from zero for what the parts add, and from what the *_states
// operation makes of that, over the same operands and segments; what is left of a state must be of
// the same operands, too. Parts have every token once, in order, by [graph.PartOf].
func recurrences(g *graph.Graph) error {
	r := &recurring{users: map[*graph.Value][]*graph.Node{}, seen: map[*graph.Node]bool{}}
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			r.users[v] = append(r.users[v], n)
		}
	}
	var errs []error
	for _, n := range g.Nodes {
		if a, ok := affines[n.Op.Name]; ok {
			if err := r.passing(n, a); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", n.Name(), n.Op.Name, err))
			}
		}
	}
	for _, n := range g.Nodes {
		for _, p := range n.Op.States {
			if d := n.Args[p.Operand].Type.Dims; d[0].Times > 0 && !r.seen[n] {
				errs = append(errs, fmt.Errorf("%s: %s runs over parts from a state that no *_states operation made", n.Name(), n.Op.Name))
			}
		}
	}
	return errors.Join(errs...)
}

type recurring struct {
	users map[*graph.Value][]*graph.Node
	seen  map[*graph.Node]bool // recurrences that are accounted for
}

// passing checks the recurrences around one *_states operation.
func (r *recurring) passing(n *graph.Node, a affine) error {
	seg := n.Args[len(n.Args)-1]
	at := 0
	if a.decay >= 0 || a.left {
		at = 1
	}
	made, err := r.from(n.Args[at], a, seg, 0)
	if err != nil {
		return fmt.Errorf("operand %d: %w", at, err)
	}
	here := made.Args[a.state+1]
	switch {
	case a.decay >= 0:
		sums := n.Args[0].Def
		if sums.Op.Name != "segment_sums" || sums.Args[0] != made.Args[a.decay] || sums.Args[1] != here {
			return fmt.Errorf("operand 0 (%s) is not the segment_sums of %s over %s", n.Args[0].Name, made.Args[a.decay].Name, here.Name)
		}
		if n.Args[2] != made.Args[a.rate] {
			return fmt.Errorf("operand 2 is %s; %s has %s", n.Args[2].Name, made.Name(), made.Args[a.rate].Name)
		}
	case a.left:
		left, err := r.from(n.Args[0], a, seg, 1)
		if err != nil {
			return fmt.Errorf("operand 0: %w", err)
		}
		if err := alike(made, left, a.state, 2); err != nil {
			return err
		}
		if v := left.Args[2].Def; v.Op.Name != "zeros" || v.Attrs.Int("diagonal") != 0 {
			return fmt.Errorf("%s: operand 2 (%s) must be zeros, since what is left of ones has no values", left.Name(), left.Args[2].Name)
		}
	}
	last := r.users[n.Results[0]]
	if len(last) != 1 || last[0].Op.Name != a.of || last[0].Args[a.state] != n.Results[0] {
		return fmt.Errorf("%s must be the state of one %s, and of nothing else", n.Results[0].Name, a.of)
	}
	r.seen[last[0]] = true
	return alike(made, last[0], a.state)
}

// from finds the recurrence that makes v of zeros, or of ones, over the parts of segments.
func (r *recurring) from(v *graph.Value, a affine, seg *graph.Value, diagonal int) (*graph.Node, error) {
	n := v.Def
	if n.Op.Name != a.of || v != n.Results[1] {
		return nil, fmt.Errorf("%s is not the state after a %s", v.Name, a.of)
	}
	if zero := n.Args[a.state].Def; zero.Op.Name != "zeros" || zero.Attrs.Int("diagonal") != diagonal {
		return nil, fmt.Errorf("%s begins with %s, and not with %s", n.Name(), n.Args[a.state].Name, []string{"zeros", "ones"}[diagonal])
	}
	here := n.Args[a.state+1].Def
	if here.Op.Name != "parts" || here.Args[1] != seg {
		return nil, fmt.Errorf("%s has the segments %s, and not the parts of %s", n.Name(), n.Args[a.state+1].Name, seg.Name)
	}
	r.seen[n] = true
	return n, nil
}

// alike checks that two recurrences have the same operands but for the state and some others.
func alike(n, m *graph.Node, state int, but ...int) error {
	for i, v := range n.Args {
		if i != state && !slices.Contains(but, i) && m.Args[i] != v {
			return fmt.Errorf("%s and %s must have the same operands but for the state; operand %d is %s and %s", n.Name(), m.Name(), i, v.Name, m.Args[i].Name)
		}
	}
	if fmt.Sprint(n.Attrs) != fmt.Sprint(m.Attrs) {
		return fmt.Errorf("%s and %s must have the same attributes", n.Name(), m.Name())
	}
	return nil
}
