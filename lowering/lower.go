package lowering

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Lower makes the schedules of a graph, one per rank. A graph that does not
// check is an error, and so is a value that cannot be laid out in memory.
func Lower(g *graph.Graph) ([]*Schedule, error) { return LowerFor(g, PieceTokens) }

// LowerFor is Lower with pieces of at most a number of tokens; 0: pieces have no bound on them.
func LowerFor(g *graph.Graph, pieceTokens int) ([]*Schedule, error) {
	return LowerStages(g, pieceTokens, Stages{})
}

// LowerStages is LowerFor for pipeline stages and replicas: the schedules are those of all ranks of
// the mesh, in their order.
func LowerStages(g *graph.Graph, pieceTokens int, stages Stages) ([]*Schedule, error) {
	if err := graph.Check(g); err != nil {
		return nil, err
	}
	sections, err := stages.sections(g)
	if err != nil {
		return nil, err
	}
	var c *chain
	if stages.Chain {
		c = newChain(g)
	}
	var out []*Schedule
	for replica := range max(1, stages.Replicas) {
		for stage := range sections {
			p := newPlacing(g, pieceTokens, &sections[stage], c)
			for rank := range g.Ranks {
				l := &lowerer{
					s:       &Schedule{Name: g.Name, Rank: rank, Ranks: g.Ranks, Mesh: g.Mesh},
					ref:     make([]Ref, g.Len()),
					placing: p,
				}
				if !stages.one() {
					l.s.Mesh, l.s.Stage, l.s.Replica = stages.mesh(g), stage, replica
				}
				if err := l.lower(g, pieceTokens); err != nil {
					return nil, err
				}
				out = append(out, l.s)
			}
		}
	}
	return out, nil
}

// lower makes the schedule.
func (l *lowerer) lower(g *graph.Graph, pieceTokens int) error {
	if l.loops > 0 {
		l.s.PieceTokens = pieceTokens
	}
	if err := l.receive(l.section.received); err != nil {
		return err
	}
	for i, n := range l.nodes {
		if l.at = i; l.loop[i] > 0 && l.first[i] == i {
			l.wait(l.issued) // ranks come to collectives in one order
		}
		if err := l.node(n, l.costs[i]); err != nil {
			return fmt.Errorf("%s: %s: %w", n.Name(), n.Op.Name, err)
		}
		l.release()
	}
	l.send(l.section.sent)
	l.lastTurn()
	l.finish(g)
	return nil
}

// placing is what all ranks have in common: the order of the nodes, and how long values are needed.
type placing struct {
	section *section
	chain   *chain // nil: none
	nodes   []*graph.Node
	costs   []graph.Cost         // by node
	loops   int                  // how many there are
	loop    []int                // by node: the loop that it is in, counted from 1
	first   []int                // by node: the first of its loop, or itself
	last    []int                // by value id: the last node that uses it
	inside  []bool               // by value id: only its loop sees it
	kept    map[*graph.Node]bool // fields that are copied
	inUnits bool                 // ranks have even shares of the tokens: all rows are multiples of these
}

func newPlacing(g *graph.Graph, pieceTokens int, c *section, turns *chain) *placing {
	l := newLooper(g)
	if pieceTokens > 0 && g.Ranks > 1 && g.Mesh == (graph.Mesh{}) {
		l.find()
	}
	if !l.apart(c) {
		return newPlacing(g, 0, c, turns)
	}
	p := &placing{section: c, chain: turns, last: make([]int, g.Len()), inside: make([]bool, g.Len()), kept: l.kept}
	for _, n := range l.order() {
		if c.has(n) && turns.has(n) {
			p.nodes, p.costs = append(p.nodes, n), append(p.costs, n.Cost())
		}
	}
	before := 0
	for i, n := range p.nodes {
		p.loop, p.first = append(p.loop, 0), append(p.first, i)
		if k := l.loop[n]; k > 0 && k == before {
			p.loop[i], p.first[i] = p.loops, p.first[i-1]
		} else if before = k; k > 0 {
			p.loops++
			p.loop[i] = p.loops
		}
		for _, v := range n.Results {
			p.inside[v.ID] = l.inside(v)
			_, space, err := sizeOf(g.Local(v.Type, 0))
			p.inUnits = p.inUnits || err == nil && space == PerTokenShare
		}
	}
	p.lastUses(g)
	return p
}

// lastUses finds for every value the last node that uses it; an output is used
// at the end. A loop needs values from outside until its end.
func (p *placing) lastUses(g *graph.Graph) {
	end := len(p.nodes) - 1 // of the loop
	for i, n := range slices.Backward(p.nodes) {
		if i == len(p.nodes)-1 || p.loop[i] == 0 || p.loop[i] != p.loop[i+1] {
			end = i
		}
		for _, v := range slices.Concat(n.Args, n.Results) {
			use := end
			if p.inside[v.ID] {
				use = i
			}
			p.last[v.ID] = max(p.last[v.ID], use)
		}
	}
	for _, o := range g.Outputs {
		p.last[o.Value.ID] = len(p.nodes)
	}
	for _, v := range p.section.sent {
		p.last[v.ID] = len(p.nodes)
	}
}

// lowerer makes the schedule of one rank.
type lowerer struct {
	s   *Schedule
	ref []Ref // by value id
	at  int   // the node that is lowered
	*placing
	memory
	streams
}

func (l *lowerer) node(n *graph.Node, cost graph.Cost) error {
	switch n.Op.Class {
	case graph.Leaf:
		return l.leaf(n)
	case graph.View:
		return l.field(n)
	case graph.Compute:
		if l.chain != nil && l.chain.state[n] != nil {
			return l.turn(n, cost)
		}
		return l.launch(n, cost)
	}
	if l.s.Ranks == 1 { // every layout is the same bytes
		for i, v := range n.Results {
			l.alias(v, l.ref[n.Args[i].ID])
		}
		return nil
	}
	if n.Op.Class == graph.Collective {
		return l.collective(n)
	}
	return l.relayout(n)
}

func (l *lowerer) leaf(n *graph.Node) error {
	v := n.Results[0]
	space := map[string]Space{"param": Param, "state": State, "input": Input}[n.Op.Name]
	local := l.s.Local(v.Type)
	first := 1
	if space == State && v.Type.Ragged() {
		space, first = Cache, 2
	}
	for _, d := range local.Dims[min(first, len(local.Dims)):] {
		if d.Sym != 0 {
			return fmt.Errorf("%s: only the first axis may be a symbol, and c the second of a state", v.Type)
		}
	}
	bytes := int64(graph.RowElems(local.Dims) * v.Type.DType.Bytes())
	if len(local.Dims) > 0 && local.Dims[0].Sym == 0 {
		bytes *= int64(local.Dims[0].Len())
	}
	if v.Type.DType.Quantized() {
		bytes = l.s.inBlocks(v.Type)
	}
	at := l.s.Bytes[space]
	if space == State {
		at = l.nextState(n.Part)
	}
	l.buffer(v, space, at, bytes)
	b := &l.s.Buffers[len(l.s.Buffers)-1]
	b.Storage, b.Part = n.Storage, n.Part
	end := at + bytes
	if space.aligned() {
		end = roundUp(end)
	}
	l.s.Bytes[space] = end
	return nil
}

// nextState is where the next state begins: a field where the one before it ends, if that
// is of the same state, so that ranks that have the same of it have it in one piece.
func (l *lowerer) nextState(part *graph.Part) int64 {
	for i := len(l.s.Buffers) - 1; i >= 0; i-- {
		if b := &l.s.Buffers[i]; b.Space == State {
			return afterState(b.Offset+b.Bytes, b.Part, part)
		}
	}
	return 0
}

// afterState is where a state begins after another that ends at a byte.
func afterState(end int64, last, next *graph.Part) int64 {
	if last != nil && next != nil && last.State == next.State {
		return end
	}
	return roundUp(end)
}

// field makes no step: kernels read strides.
func (l *lowerer) field(n *graph.Node) error {
	if l.kept[n] {
		return l.copied(n)
	}
	of, axis := n.Args[0], n.Attrs.Int("axis")
	_, _, start, _ := l.s.Local(of.Type).Dims[axis].Run(n.Attrs.Text("name"))
	r, ok := l.part(l.ref[of.ID], axis, start)
	if !ok {
		return fmt.Errorf("a field of axis %d of %s: only the first axis, or the second of two or of a parameter, can be viewed", axis, of.Type)
	}
	l.alias(n.Results[0], r)
	return nil
}

// part is r from entry start of an axis on; a stride expresses it for the first
// axis and the second. Kernels mind it in activations with two axes, and in weights.
func (l *lowerer) part(r Ref, axis, start int) (Ref, bool) {
	switch {
	case axis == 0:
		r.Offset += start * r.Stride
	case axis == 1 && (len(r.Type.Dims) == 2 || l.s.Buffers[r.Buffer].Space == Param):
		r.Offset += start * graph.RowElems(l.s.Local(r.Type).Dims[1:])
	default:
		return r, false
	}
	return r, true
}

// alias lets v be the memory of r.
func (l *lowerer) alias(v *graph.Value, r Ref) {
	r.Name, r.Type = v.Name, v.Type
	l.ref[v.ID] = r
	l.keep(r.Buffer, l.last[v.ID])
}

func (l *lowerer) launch(n *graph.Node, cost graph.Cost) error {
	st := Step{Kind: Launch, Name: n.Name(), Op: n.Op, Attrs: l.attrs(n), Cost: cost, Args: l.refs(n.Args), Loop: l.loop[l.at]}
	if l.chain != nil && l.chain.state[n] != nil {
		st.Args = l.chainArgs(n)
	}
	for _, p := range n.Op.States {
		l.alias(n.Results[p.Result], st.Args[p.Operand]) // in place
		l.ref[n.Results[p.Result].ID].Type = st.Args[p.Operand].Type
	}
	constant := l.constant(st.Args)
	if !constant {
		l.await(st.Args)
	}
	for _, v := range n.Results {
		if l.ref[v.ID].Name != "" {
			continue
		}
		if r, ok := l.inPlace(n, v); ok {
			l.alias(v, r)
		} else if err := l.result(v, constant); err != nil {
			return err
		}
	}
	st.Results = l.refs(n.Results)
	l.compute(st)
	return nil
}

// refs are the tensors of values.
func (l *lowerer) refs(values []*graph.Value) []Ref {
	out := make([]Ref, len(values))
	for i, v := range values {
		out[i] = l.ref[v.ID]
	}
	return out
}

// constant reports whether what depends on args only can be computed once.
func (l *lowerer) constant(args []Ref) bool {
	for _, r := range args {
		if s := l.s.Buffers[r.Buffer].Space; s != Param && s != Constant {
			return false
		}
	}
	return len(args) > 0
}

// finish joins the streams and lists the outputs.
func (l *lowerer) finish(g *graph.Graph) {
	l.join()
	if l.section.outputs {
		for _, o := range g.Outputs {
			l.s.Outputs = append(l.s.Outputs, Output{o.Name, l.ref[o.Value.ID]})
		}
	}
	l.assign()
	l.s.findUsers()
}
