package lowering

import (
	"fmt"
	"maps"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// In the graph a recurrence over parts runs twice, around an all_gather of what parts make of
// states. But states pass to later parts only, so ranks can also take turns, in a chain: a rank
// receives the states before its parts, runs the recurrence once, from them, and sends the states
// after its parts to the rank of the next parts. A rank waits for those before it alone, so that
// the ranks follow each other through the layers. At the end of the batch the last one sends the
// new states to all. Recurrences run in place in the slots of their states, as on one rank.

// SendStates and ReceiveStates are a collective of two: the rows of states, operands but the last,
// of sequences that segments list, the last operand, go to another rank of a chain. Rows of
// sequences stay that no part up to the sender's has tokens of. They are steps of schedules, and no
// operations of a graph.
var (
	SendStates    = &graph.Op{Name: "send_states", Doc: "states of sequences go to another rank of a chain", Class: graph.Collective, Variadic: true, Attrs: peerAttrs}
	ReceiveStates = &graph.Op{Name: "receive_states", Doc: "states of sequences come from another rank of a chain", Class: graph.Collective, Variadic: true, Attrs: peerAttrs}

	peerAttrs = []graph.Attr{{Name: peerAttr, Kind: graph.IntAttr}}
)

// peerAttr is the attribute that has the other rank's place in the chain.
const peerAttr = "peer"

// chained reports whether a step passes states along a chain.
func (st *Step) chained() bool { return st.Op == SendStates || st.Op == ReceiveStates }

// Passes reports whether an operation passes tensors from one rank to another: the first of its
// group, and the second.
func Passes(op *graph.Op) bool {
	return op == Send || op == Receive || op == SendStates || op == ReceiveStates
}

// PassedBy returns what reports whether a step of a chain passes the state of a sequence of a
// number of tokens: whether parts up to the sender's have any. It is nil for any other step.
func (s *Schedule) PassedBy(st *Step) func(tokens int) bool {
	if !st.chained() {
		return nil
	}
	ranks, sender := s.turns()
	if st.Op == ReceiveStates {
		sender = st.Attrs.Int(peerAttr)
	}
	return func(tokens int) bool { return graph.PartOf(tokens, len(ranks), sender).End() > 0 }
}

// turns lists the ranks of the rank's chain in their order, and its place there.
func (s *Schedule) turns() (ranks []int, at int) {
	if s.Across() {
		ranks = s.Mesh.Group(s.World(), graph.CP)
	} else {
		for i := range s.Ranks {
			ranks = append(ranks, s.World()-s.Rank+i)
		}
	}
	return ranks, slices.Index(ranks, s.World())
}

// turnGroup is the sender and the receiver of a step of a chain.
func (s *Schedule) turnGroup(st *Step) Group {
	ranks, at := s.turns()
	from, to := ranks[at], ranks[st.Attrs.Int(peerAttr)]
	if st.Op == ReceiveStates {
		from, to = to, from
	}
	return Group{from, to - from, 2}
}

// passingStates is the step that sends states to a rank of the chain, or receives them from one.
func (s *Schedule) passingStates(op *graph.Op, states []Ref, seg Ref, peer int) Step {
	way := "sent_to"
	st := Step{Kind: Collective, Stream: Comm, Op: op, Attrs: graph.Attrs{peerAttr: peer}, Args: append(slices.Clone(states), seg)}
	if op == ReceiveStates {
		st.Results, way = slices.Clone(states), "received_from"
	}
	st.Name = fmt.Sprintf("%s.%s_%d", st.Args[0].Name, way, peer)
	return st
}

// chain is how the ranks of a graph take turns at its recurrences; nil: they do not.
type chain struct {
	state  map[*graph.Node]*graph.Value // by recurrence: the model's state that it runs from
	states []*graph.Value               // all of them, in their order
	seg    *graph.Value                 // of whole sequences
	parts  map[*graph.Node]bool         // the nodes that make segments of parts
	needed map[*graph.Node]bool
}

// newChain finds the recurrences over parts of a graph. It is nil if the graph has none, or has one
// that cannot run in a chain, as its states are used in another way.
func newChain(g *graph.Graph) *chain {
	c := &chain{state: map[*graph.Node]*graph.Value{}, parts: map[*graph.Node]bool{}, needed: map[*graph.Node]bool{}}
	users := map[*graph.Value][]*graph.Node{}
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			users[v] = append(users[v], n)
		}
	}
	for _, o := range g.Outputs {
		users[o.Value] = append(users[o.Value], o.Value.Def)
	}
	for _, n := range g.Nodes {
		if n.Op.Parts && len(n.Op.States) == 1 && !c.take(n, users) {
			return nil
		}
	}
	if len(c.states) == 0 {
		return nil
	}
	for _, o := range g.Outputs {
		c.need(o.Value.Def)
	}
	for _, n := range g.Nodes {
		if c.state[n] != nil || slices.ContainsFunc(n.Op.States, func(p graph.StatePair) bool { return n.Args[p.Operand].Def.Op.Name == "state" && !n.Op.Parts }) {
			c.need(n)
		}
	}
	return c
}

// take finds the recurrence that runs from what a *_states operation makes.
func (c *chain) take(n *graph.Node, users map[*graph.Value][]*graph.Node) bool {
	only := func(v *graph.Value) *graph.Node {
		if list := users[v]; len(list) == 1 {
			return list[0]
		}
		return &graph.Node{Op: &graph.Op{}}
	}
	own := n.Op.States[0]
	state, seg := n.Args[own.Operand], n.Args[own.Operand+1]
	cut := only(n.Results[0])
	if cut.Op.Class != graph.Relayout || len(users[n.Results[own.Result]]) > 0 || c.seg != nil && c.seg != seg {
		return false
	}
	of := only(cut.Results[0])
	if len(of.Op.States) != 1 || state.Def.Op.Name != "state" || seg.Def.Op.Name != "input" {
		return false
	}
	p := of.Op.States[0]
	here := of.Args[p.Operand+1].Def
	if of.Args[p.Operand] != cut.Results[0] || len(users[of.Results[p.Result]]) > 0 || here.Op.Name != "parts" || here.Args[1] != seg {
		return false
	}
	c.state[of], c.states, c.seg, c.parts[here] = state, append(c.states, state), seg, true
	return true
}

// need keeps a node, and what it depends on.
func (c *chain) need(n *graph.Node) {
	if c.needed[n] {
		return
	}
	c.needed[n] = true
	for i, v := range n.Args {
		if state := c.state[n]; state != nil && i == n.Op.States[0].Operand {
			v = state
		}
		c.need(v.Def)
	}
}

// has reports whether a node runs.
func (c *chain) has(n *graph.Node) bool { return c == nil || c.needed[n] }

// turn lowers a recurrence of a chain: states come, it runs, and they go on.
func (l *lowerer) turn(n *graph.Node, cost graph.Cost) error {
	ranks, at := l.s.turns()
	state, seg := []Ref{l.ref[l.chain.state[n].ID]}, l.ref[l.chain.seg.ID]
	if at > 0 {
		l.exchanged(l.s.passingStates(ReceiveStates, state, seg, at-1))
	}
	err := l.launch(n, cost)
	if err == nil && at < len(ranks)-1 {
		l.exchanged(l.s.passingStates(SendStates, state, seg, at+1))
	}
	return err
}

// chainArgs are the tensors of a recurrence of a chain: the state of the model, and the segments of
// the rank's parts as if they were of whole sequences.
func (l *lowerer) chainArgs(n *graph.Node) []Ref {
	args, at := l.refs(n.Args), n.Op.States[0].Operand
	args[at] = l.ref[l.chain.state[n].ID]
	here := &args[at+1]
	here.Name, here.Type = here.Name+"_here", l.chain.seg.Type
	return args
}

// attrs are the attributes of a node: in a chain the segments of parts name slots.
func (l *lowerer) attrs(n *graph.Node) graph.Attrs {
	if l.chain == nil || !l.chain.parts[n] {
		return n.Attrs
	}
	a := maps.Clone(n.Attrs)
	a["slots"] = 1
	return a
}

// lastTurn appends the steps by which all ranks get the states that the last one has.
func (l *lowerer) lastTurn() {
	if l.chain == nil {
		return
	}
	var states []Ref
	for _, v := range l.chain.states {
		if r := l.ref[v.ID]; r.Name != "" { // of this stage
			states = append(states, r)
		}
	}
	ranks, at := l.s.turns()
	last := len(ranks) - 1
	switch seg := l.ref[l.chain.seg.ID]; {
	case len(states) == 0:
	case at < last:
		l.exchanged(l.s.passingStates(ReceiveStates, states, seg, last))
	default:
		for peer := range last {
			l.exchanged(l.s.passingStates(SendStates, states, seg, peer))
		}
	}
}

// checkTurn checks a step of a chain by itself.
func (s *Schedule) checkTurn(st *Step) error {
	ranks, at := s.turns()
	peer, n := st.Attrs.Int(peerAttr), len(st.Args)-1
	switch {
	case st.Kind != Collective || st.Stream != Comm || st.Loop != 0:
		return fmt.Errorf("%s is on the %s stream; it must be on %s, in no loop", st, st.Stream, Comm)
	case n < 1 || st.Op == SendStates && len(st.Results) > 0 || st.Op == ReceiveStates && names(st.Results) != names(st.Args[:n]):
		return fmt.Errorf("%s: the operands must be states and segments, and the results of %s the states", st, ReceiveStates.Name)
	case s.Buffers[st.Args[n].Buffer].Space != Input:
		return fmt.Errorf("%s: the last operand must be the segments, an input", st)
	case peer < 0 || peer >= len(ranks) || peer == at:
		return fmt.Errorf("%s: the peer of rank %d must be another of the chain's %d", st, at, len(ranks))
	}
	for _, r := range st.Args[:n] {
		if s.Buffers[r.Buffer].Space != State {
			return fmt.Errorf("%s: %s is in the region %s; it must be a state", st, r.Name, s.Buffers[r.Buffer].Space)
		}
	}
	return nil
}

// checkChain: each state that passes along a chain comes from the rank before, is used once, and
// goes to the rank after; then the last rank sends it to all.
func (s *Schedule) checkChain() (errs []error) {
	ranks, at := s.turns()
	last := len(ranks) - 1
	var want []string
	if at > 0 {
		want = append(want, fmt.Sprint("receive from ", at-1))
	}
	if want = append(want, "run"); at < last {
		want = append(want, fmt.Sprint("send to ", at+1), fmt.Sprint("receive from ", last))
	} else {
		for peer := range last {
			want = append(want, fmt.Sprint("send to ", peer))
		}
	}
	found := make([][]string, len(s.Buffers))
	passes := make([]bool, len(s.Buffers))
	for i := range s.Steps {
		st := &s.Steps[i]
		what, refs := "run", st.Results
		switch st.Op {
		case SendStates:
			what, refs = fmt.Sprint("send to ", st.Attrs.Int(peerAttr)), st.Args[:len(st.Args)-1]
		case ReceiveStates:
			what = fmt.Sprint("receive from ", st.Attrs.Int(peerAttr))
		}
		for _, r := range refs {
			if s.Buffers[r.Buffer].Space == State {
				found[r.Buffer] = append(found[r.Buffer], what)
				passes[r.Buffer] = passes[r.Buffer] || st.chained()
			}
		}
	}
	for i, list := range found {
		if passes[i] && !slices.Equal(list, want) {
			errs = append(errs, fmt.Errorf("state %s of a chain: steps are %q, and must be %q", s.Buffers[i].Name, list, want))
		}
	}
	return errs
}
