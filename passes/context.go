package passes

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// inContext writes each recurrence over the parts of sequences that ranks have. A recurrence from
// zero states gives what a part adds; an operation of [passings] makes of these the state before
// each part, from which the recurrence runs again, and the state after all. See graph/parts.go.
func inContext(g *graph.Graph, o *Options) (*graph.Graph, error) {
	if o.Ranks == 1 {
		return g, nil
	}
	parts := o.Ranks
	if o.across() {
		parts = o.Mesh.Along(graph.CP)
	}
	r := &parter{rewriter: rewrite(g, g.Stage, g.Ranks), parts: parts, segments: map[string]*graph.Value{}}
	for _, n := range g.Nodes {
		pass, ok := passings[n.Op.Name]
		if !ok || n.Args[pass.state].Type.Dims[0].Times > 0 { // or is over parts already
			if err := r.copy(n); err != nil {
				return nil, err
			}
			continue
		}
		if err := r.recurrence(n, pass); err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name(), err)
		}
	}
	return r.finish()
}

// passing says how the states of a recurrence pass from part to part.
type passing struct {
	op    string // composes
	state int    // the operand that is the state; the segments come after it
	decay int    // the operand whose sums say what is left of a state; 0: none
	rate  int    // the operand that these are multiplied with
	whole bool   // what is left is a matrix per head, which the recurrence gives of ones
}

// passings are those of the recurrences that a graph has before it is fused.
var passings = map[string]passing{
	"conv1d":         {op: "conv_states", state: 2},
	"selective_scan": {op: "selective_states", state: 5, decay: 1, rate: 2},
	"ssd_scan":       {op: "ssd_states", state: 5, decay: 1, rate: 2},
	"delta_scan":     {op: "delta_states", state: 5, whole: true},
}

// parter rewrites recurrences.
type parter struct {
	*rewriter
	parts    int
	segments map[string]*graph.Value // of parts, by block
}

// recurrence writes n: from zero, what passes, and from what came before.
func (r *parter) recurrence(n *graph.Node, p passing) error {
	args := r.args(n)
	state, seg := args[p.state], args[p.state+1]
	here, err := r.here(n, args[0], seg)
	if err != nil {
		return err
	}
	zero, err := r.zeros(n, "zero", here, state.Type.Dims[1:], false)
	if err != nil {
		return err
	}
	made, err := r.over(n, []string{n.Name() + "_zero_y", n.Name() + "_made"}, args, p, zero, here)
	if err != nil {
		return err
	}
	pass := []*graph.Value{made.Results[1], state, seg}
	switch {
	case p.decay > 0:
		sums, err := r.add(n, "segment_sums", nil, "sums", args[p.decay], here)
		if err != nil {
			return err
		}
		pass = []*graph.Value{sums, made.Results[1], args[p.rate], state, seg}
	case p.whole:
		left, err := r.left(n, args, p, here)
		if err != nil {
			return err
		}
		pass = []*graph.Value{left, made.Results[1], state, seg}
	}
	passed, err := r.out.Add(p.op, nil, []string{n.Name() + "_before", n.Results[1].Name}, pass...)
	if err != nil {
		return err
	}
	r.to[n.Results[1]] = passed.Results[1]
	last, err := r.over(n, []string{n.Results[0].Name, n.Name() + "_after"}, args, p, passed.Results[0], here)
	if err != nil {
		return err
	}
	last.Note = n.Note
	r.to[n.Results[0]] = last.Results[0]
	return nil
}

// here is the segments of the parts, once for a block.
func (r *parter) here(n *graph.Node, x, seg *graph.Value) (*graph.Value, error) {
	if v := r.segments[n.Block()]; v != nil {
		return v, nil
	}
	v, err := r.add(n, "parts", graph.Attrs{"parts": r.parts}, "parts", x, seg)
	r.segments[n.Block()] = v
	return v, err
}

// zeros writes states of parts.
func (r *parter) zeros(n *graph.Node, name string, like *graph.Value, dims []graph.Dim, ones bool) (*graph.Value, error) {
	a := graph.Attrs{"dims": graph.DimText(dims)}
	if ones {
		a["diagonal"] = 1
	}
	return r.add(n, "zeros", a, name, like)
}

// over writes the recurrence over parts, from their states.
func (r *parter) over(n *graph.Node, names []string, args []*graph.Value, p passing, from, here *graph.Value) (*graph.Node, error) {
	with := append([]*graph.Value{}, args...)
	with[p.state], with[p.state+1] = from, here
	return r.out.Add(n.Op.Name, n.Attrs, names, with...)
}

// left is what a part leaves of a state, a matrix per head: what the delta rule makes of ones, with
// values that are zero.
func (r *parter) left(n *graph.Node, args []*graph.Value, p passing, here *graph.Value) (*graph.Value, error) {
	heads, keys, beta := args[p.state].Type.Dims[1], args[p.state].Type.Dims[2], args[4].Type.Dims[1]
	ones, err := r.zeros(n, "ones", here, []graph.Dim{heads, keys, keys}, true)
	if err != nil {
		return nil, err
	}
	none, err := r.zeros(n, "none", args[0], []graph.Dim{graph.Units(beta.Len()*keys.Len(), keys.Len())}, false)
	if err != nil {
		return nil, err
	}
	with := append([]*graph.Value{}, args...)
	with[2] = none
	m, err := r.over(n, []string{n.Name() + "_left_y", n.Name() + "_left"}, with, p, ones, here)
	if err != nil {
		return nil, err
	}
	return m.Results[1], nil
}

// add writes a node of one result, named after n.
func (r *parter) add(n *graph.Node, op string, a graph.Attrs, suffix string, args ...*graph.Value) (*graph.Value, error) {
	m, err := r.out.Add(op, a, []string{n.Name() + "_" + suffix}, args...)
	if err != nil {
		return nil, err
	}
	return m.Results[0], nil
}
