package passes

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Fuse says which neighbours become one operation.
type Fuse int

const (
	Exactly     Fuse = iota // where every device's kernels give the bits of the operations apart
	ForLaunches             // and where that saves launches: for devices on which these cost
)

// ParseFuse reads exact or launches; empty is exact.
func ParseFuse(text string) (Fuse, error) {
	switch text {
	case "", "exact":
		return Exactly, nil
	case "launches":
		return ForLaunches, nil
	}
	return Exactly, fmt.Errorf("fuse is %q; it must be exact or launches", text)
}

// fuse makes one operation of neighbours if the table has one, as the rows of fused operations say
// which they stand for. It is last: strategies, proofs and drawings speak of the operations apart.
// It writes a fused operation in the place of the last of the nodes that it stands for: there all
// its operands exist, and no node before it needs its results. Products take the norms of what they
// read when all else is fused: a norm of a sum that is by itself goes with that, which is exact and
// saves as much. Nothing is fused over the border of pipeline stages, which a norm of the residual
// stream would need both of its summands to pass.
func fuse(g *graph.Graph, o *Options) (*graph.Graph, error) {
	patterns := patternsBySize(o.Fuse == ForLaunches)
	if o.Scan == Unfused || o.Strategy != nil && slices.Contains(o.Strategy.Passes, "unfuse-scan") {
		for i := range patterns {
			patterns[i] = slices.DeleteFunc(patterns[i], pattern.scans)
		}
	}
	stages, err := o.Pipeline.stages(g)
	if err != nil {
		return nil, err
	}
	out, err := fuseOnce(g, patterns, stages)
	if err == nil && o.Fuse == ForLaunches {
		out, err = fuseOnce(out, [][]pattern{normPatterns()}, stages)
	}
	return out, err
}

func fuseOnce(g *graph.Graph, patterns [][]pattern, stages map[string]int) (*graph.Graph, error) {
	f := findFusions(g, patterns, stages)
	r := rewrite(g, graph.FusedStage, g.Ranks)
	for _, n := range g.Nodes {
		var err error
		switch l := f.last[n]; {
		case l != nil:
			args := make([]*graph.Value, len(l.args))
			for i, v := range l.args {
				args[i] = r.to[v]
			}
			_, err = r.node(n, l.op, l.attrs, names(l.results), l.results, args...)
		case !f.taken[n]:
			err = r.copy(n)
		}
		if err != nil {
			return nil, err
		}
	}
	return r.finish()
}

// fusion is an operation that stands for several.
type fusion struct {
	op      string
	attrs   graph.Attrs
	args    []*graph.Value
	results []*graph.Value // of the nodes, that stay
	inner   []*graph.Node  // the nodes but the last
}

// fusions says which nodes of a graph become one with others.
type fusions struct {
	g     *graph.Graph
	stage map[string]int // by block; nil: there is one
	uses  map[*graph.Value][]*graph.Node
	index map[*graph.Node]int
	last  map[*graph.Node]*fusion // by the last of its nodes
	taken map[*graph.Node]bool
}

// findFusions finds what fused operations stand for: those of more operations first, of
// as many that which ends first. A node is of one fusion only.
func findFusions(g *graph.Graph, bySize [][]pattern, stages map[string]int) *fusions {
	f := &fusions{g, stages, usesOf(g), map[*graph.Node]int{}, map[*graph.Node]*fusion{}, map[*graph.Node]bool{}}
	for i, n := range g.Nodes {
		f.index[n] = i
	}
	for _, patterns := range bySize {
		for _, n := range g.Nodes {
			for i := range patterns {
				if l := f.match(&patterns[i], n); l != nil && !f.crosses(l, n) && f.legal(l) {
					f.last[n] = l
					for _, m := range append(l.inner, n) {
						f.taken[m] = true
					}
					break
				}
			}
		}
	}
	return f
}

// crosses reports whether blocks of several pipeline stages have the nodes of a fusion.
func (f *fusions) crosses(l *fusion, last *graph.Node) bool {
	stage, inBlock := f.stage[last.Block()]
	return inBlock && slices.ContainsFunc(l.inner, func(n *graph.Node) bool {
		other, ok := f.stage[n.Block()]
		return ok && other != stage
	})
}

// pattern is a fused operation and the operations that it stands for.
type pattern struct {
	op *graph.Op
	*graph.Apart
	maker []int // by value: the step that gives it; -1: an operand
}

func patternOf(op *graph.Op, apart *graph.Apart) pattern {
	p := pattern{op, apart, slices.Repeat([]int{-1}, len(apart.Like))}
	for i, s := range p.Steps {
		for _, v := range s.Results {
			p.maker[v] = i
		}
	}
	return p
}

// scans reports whether a selective scan is among the operations, which unfuse-scan needs alone.
func (p pattern) scans() bool {
	return slices.ContainsFunc(p.Steps, func(s graph.ApartStep) bool { return s.Op.Name == "selective_scan" })
}

// takesNorm: it is another operation, on what is normed first.
func takesNorm(op *graph.Op) bool {
	return op.Launches && op.Apart() != nil && len(op.Apart().Steps) == 2 && op.Apart().Steps[0].Op.Name == "rmsnorm"
}

// normPatterns lists those that take norms, as a norm and another operation, which may be fused.
func normPatterns() (list []pattern) {
	for _, op := range graph.Ops() {
		if takesNorm(op) {
			list = append(list, patternOf(op, op.Apart()))
		}
	}
	return list
}

// patternsBySize lists the other fused operations, those that stand for most operations first.
func patternsBySize(launches bool) [][]pattern {
	var list []pattern
	for _, op := range graph.Ops() {
		if op.Apart() == nil || op.Launches && !launches || takesNorm(op) {
			continue
		}
		list = append(list, patternOf(op, op.Apart().Whole()))
	}
	slices.SortStableFunc(list, func(a, b pattern) int { return len(b.Steps) - len(a.Steps) })
	var out [][]pattern
	for i, p := range list {
		if i == 0 || len(p.Steps) != len(list[i-1].Steps) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], p)
	}
	return out
}

// matching is a pattern laid over nodes, as far as it has come.
type matching struct {
	f      *fusions
	p      *pattern
	values []*graph.Value
	nodes  []*graph.Node // by step
}

// match finds the nodes that a fused operation stands for, of which the last is given and
// the others lead to it: of operations beside each other, which others stand for, none are found.
func (f *fusions) match(p *pattern, last *graph.Node) *fusion {
	m := &matching{f, p, make([]*graph.Value, len(p.Like)), make([]*graph.Node, len(p.Steps))}
	if !m.step(len(p.Steps)-1, last) || slices.Contains(m.nodes, nil) || !m.closed(last) {
		return nil
	}
	l := &fusion{op: p.op.Name, attrs: graph.Attrs{}, args: m.values[:p.Operands], results: m.values[p.Operands:][:p.Results]}
	for i, n := range m.nodes {
		for name, v := range n.Attrs {
			if had, ok := l.attrs[name]; ok && had != v {
				return nil // one attribute cannot say both
			}
			l.attrs[name] = v
		}
		if i < len(m.nodes)-1 {
			l.inner = append(l.inner, n)
		}
	}
	return l
}

// step lays a step over a node, and those before it over the nodes that make its operands.
func (m *matching) step(i int, n *graph.Node) bool {
	s := m.p.Steps[i]
	if n.Op != s.Op || m.f.taken[n] || m.nodes[i] != nil && m.nodes[i] != n {
		return false
	}
	values, nodes := slices.Clone(m.values), slices.Clone(m.nodes)
	for k, v := range s.Results {
		m.values[v] = n.Results[k]
	}
	m.nodes[i] = n
	if m.operands(s.Args, n.Args) || s.Op.Commutes && m.operands(s.Args, []*graph.Value{n.Args[1], n.Args[0]}) {
		return true
	}
	m.values, m.nodes = values, nodes
	return false
}

// operands lays the operands of a step over those of its node; all stays as it is where
// one does not fit.
func (m *matching) operands(args []int, of []*graph.Value) bool {
	values, nodes := slices.Clone(m.values), slices.Clone(m.nodes)
	for k, a := range args {
		fits := m.values[a] == nil || m.values[a] == of[k]
		if by := m.p.maker[a]; fits && by >= 0 {
			fits = m.step(by, of[k].Def) && m.values[a] == of[k]
		}
		if !fits {
			m.values, m.nodes = values, nodes
			return false
		}
		m.values[a] = of[k]
	}
	return true
}

// closed: operands come from elsewhere, and no other node uses the values between the nodes.
// The values that stay are
// there after the last node only: their users come later.
func (m *matching) closed(last *graph.Node) bool {
	for v, x := range m.values {
		if v < m.p.Operands {
			if slices.Contains(m.nodes, x.Def) {
				return false
			}
			continue
		}
		stays := v < m.p.Operands+m.p.Results
		if m.f.isOutput(x) && !stays {
			return false
		}
		for _, n := range m.f.uses[x] {
			if !slices.Contains(m.nodes, n) && (!stays || m.f.index[n] < m.f.index[last]) {
				return false
			}
		}
	}
	return true
}

func (f *fusions) isOutput(v *graph.Value) bool {
	return slices.ContainsFunc(f.g.Outputs, func(o graph.Output) bool { return o.Value == v })
}

// legal: the fused operation takes operands that lie over the ranks as they do,
// and its results lie as those that they stand for.
func (f *fusions) legal(l *fusion) bool {
	op, _ := graph.Lookup(l.op)
	got, err := f.g.Infer(&graph.Node{Op: op, Attrs: l.attrs, Args: l.args})
	return err == nil && slices.EqualFunc(got, l.results, func(t graph.Type, v *graph.Value) bool {
		return t.Layout.Equal(v.Type.Layout) && t.Context.Equal(v.Type.Context)
	})
}
