package graph

import (
	"errors"
	"fmt"
	"slices"
)

// Stage says how far a graph has come on its way through the passes, and so
// which operations it may hold.
type Stage uint8

// The stages. NoStage is the zero value, and no graph's.
const (
	NoStage          Stage = iota
	ModelStage             // as the model defines it: global, packed
	UnpackedStage          // packed tensors are their fields where that matters
	PartitionedStage       // every value has a layout, collectives are explicit
	FusedStage             // ready to be lowered
)

var stages = [...]struct {
	name    string
	layouts bool // values may lie over ranks
}{{"", false}, {"model", false}, {"unpacked", false}, {"partitioned", true}, {"fused", true}}

// String is the stage's name in graph text.
func (s Stage) String() string { return stages[s].name }

// ParseStage is the inverse of [Stage.String].
func ParseStage(name string) (Stage, bool) {
	for i, s := range stages[1:] {
		if s.name == name {
			return Stage(i + 1), true
		}
	}
	return NoStage, false
}

// MaxRanks bounds the number of ranks of a graph.
const MaxRanks = 1024

// Check reports everything that is wrong with a graph at its stage: a broken order or name, an
// operation that is not legal there, a type that is not what the operation gives, a state that is
// not consumed exactly once, a partial sum that reaches an output.
func Check(g *Graph) error { return new(Checker).Check(g) }

// Checker checks graphs one after another, such as those between passes, and infers once what
// they have in common. It is not for several goroutines at the same time.
type Checker struct {
	inferred memo // its own: what Add remembers may be what Check is to find
}

// mostErrors is how many errors of a graph are listed: a fault in a block is one in each layer.
const mostErrors = 12

// Check is the function [Check].
func (c *Checker) Check(g *Graph) error {
	if g.Ranks < 1 || g.Ranks > MaxRanks {
		return fmt.Errorf("%d ranks; the number must be from 1 to %d", g.Ranks, MaxRanks)
	}
	if err := g.checkMesh(); err != nil {
		return err
	}
	var errs []error
	fail := func(where, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...)))
	}
	defined := make(map[*Value]bool, g.Len())
	uses := map[*Value]int{} // of states, and of what has a row per part
	for _, n := range g.Nodes {
		for i, v := range n.Args {
			if keeps(v) || ofParts(v) {
				uses[v]++
			}
			if !defined[v] {
				fail(n.Name(), "%s: operand %d (%s) is used before it is defined", n.Op.Name, i, v.Name)
			}
		}
		if err := c.node(g, n); err != nil {
			fail(n.Name(), "%s: %w", n.Op.Name, err)
		}
		for _, v := range n.Results {
			defined[v] = true
		}
	}
	checkThen(g, fail)
	checkReplaced(g, uses, fail)
	states := g.Leaves("state")
	checkParts(states, fail)
	for _, n := range states {
		if n.Part != nil && g.Stage == ModelStage {
			fail(n.Name(), "state: is a field of %s at stage model, where nothing is taken apart yet", n.Part.State)
		}
		if times := uses[n.Results[0]]; times != 1 {
			fail(n.Name(), "state is consumed %d times; it must be exactly once", times)
		}
	}
	for _, o := range g.Outputs {
		if !defined[o.Value] {
			fail("output "+o.Name, "%s is not in the graph", o.Value.Name)
		} else if o.Value.Narrow != NarrowNever {
			fail("output "+o.Name, "%s is kept as %s; an output is in the format of its type", o.Value.Name, o.Value.Narrow)
		} else if t := o.Value.Type; t.Layout.Kind != Replicated || t.Context.Kind != Replicated {
			fail("output "+o.Name, "%s is %s; it must be whole on every rank", o.Value.Name, o.Value.Type)
		} else if o.Value.Type.DType.InBlocks() {
			fail("output "+o.Name, "%s is %s; dequantize it first", o.Value.Name, o.Value.Type)
		}
	}
	if more := len(errs) - mostErrors; more > 0 {
		errs = append(errs[:mostErrors], fmt.Errorf("and %d more errors", more))
	}
	return errors.Join(errs...)
}

// checkReplaced checks that nothing else takes a state of parts, which an operation replaces.
func checkReplaced(g *Graph, uses map[*Value]int, fail func(where, format string, args ...any)) {
	for _, n := range g.Nodes {
		for _, p := range n.Op.States {
			if v := n.Args[p.Operand]; ofParts(v) && uses[v] != 1 {
				fail(n.Name(), "%s: operand %d (%s) is a state of parts, which the operation replaces, and it is taken %d times: write zeros, or the conversion, for each", n.Op.Name, p.Operand, v.Name, uses[v])
			}
		}
	}
}

// checkThen checks each all_reduce that says which operation comes then: at stage fused, the sum is
// one value in f32, and that operation alone takes it, as one operand.
func checkThen(g *Graph, fail func(where, format string, args ...any)) {
	for _, n := range g.Nodes {
		then := n.Attrs.Text("then")
		if then == "" {
			continue
		}
		if g.Stage != FusedStage {
			fail(n.Name(), "%s: then=%s is legal at stage fused only, and the graph is %s", n.Op.Name, then, g.Stage)
		} else if next, why := g.sole(n); why != "" {
			fail(n.Name(), "%s: then=%s, but %s; leave then out", n.Op.Name, then, why)
		} else if next.Op.Name != then {
			fail(n.Name(), "%s: then=%s, but %s takes the sum; leave then out", n.Op.Name, then, next.Op.Name)
		}
	}
}

// Sole is the node that alone takes the one result of a node in f32, and takes it once; nil if
// there is none.
func (g *Graph) Sole(n *Node) *Node {
	next, _ := g.sole(n)
	return next
}

func (g *Graph) sole(n *Node) (next *Node, why string) {
	if len(n.Results) != 1 || n.Results[0].Type.DType != F32 {
		return nil, "it gives several values, or one that is not f32"
	}
	v := n.Results[0]
	for _, o := range g.Outputs {
		if o.Value == v {
			return nil, "the sum is an output"
		}
	}
	for _, m := range g.Nodes {
		for _, a := range m.Args {
			if a == v && next != nil {
				return nil, "the sum is taken more than once"
			}
			if a == v {
				next = m
			}
		}
	}
	if next == nil {
		return nil, "nothing takes the sum"
	}
	return next, ""
}

func (c *Checker) node(g *Graph, n *Node) error {
	if class := n.Op.Class; (class == Collective || class == Relayout) && !stages[g.Stage].layouts {
		return fmt.Errorf("not legal at stage %s, where values do not lie over ranks yet", g.Stage)
	}
	for _, v := range n.Results {
		if err := v.Type.Valid(); err != nil {
			return err
		}
		if (v.Type.Layout.Kind != Replicated || v.Type.Context.Kind != Replicated) && !stages[g.Stage].layouts {
			return fmt.Errorf("%s has a layout at stage %s", v.Name, g.Stage)
		}
	}
	if n.Op.Class == Leaf {
		return checkLeaf(n)
	}
	if err := errors.Join(checkStates(n), checkNarrow(g, n)); err != nil {
		return err
	}
	for i, v := range n.Args {
		if n.Op.Class == Collective && g.Ranks == 1 && v.Type.DType.InBlocks() {
			return fmt.Errorf("operand %d (%s) is %s, and the graph has one rank, which sends nothing; leave out quantize, or give more ranks", i, v.Name, v.Type)
		}
		if v.Def.Op.Name == "quantize" && n.Op.Class != Collective && n.Op.Name != "dequantize" {
			return fmt.Errorf("operand %d (%s) is quantized, which only a collective may take", i, v.Name)
		}
	}
	types, err := c.inferred.infer(n, g.over())
	if err != nil {
		return err
	}
	if len(types) != len(n.Results) {
		return fmt.Errorf("%d results named, the operation gives %d", len(n.Results), len(types))
	}
	for i, v := range n.Results {
		if !v.Type.Equal(types[i]) {
			return fmt.Errorf("%s is written as %s; the operation gives %s%s", v.Name, v.Type, types[i], remedy(v.Type.Layout, types[i].Layout))
		}
	}
	return nil
}

// remedy names the collective that makes a value whole where the text says it is, if that is all
// that differs.
func remedy(written, given Layout) string {
	switch {
	case written.Kind != Replicated:
	case given.Kind == Partial:
		return "; each rank has a summand: all_reduce the partial value before an operation that needs it whole"
	case given.Kind == Sharded:
		return "; each rank has a part: all_gather the split value before an operation that needs it whole"
	}
	return ""
}

func checkLeaf(n *Node) error {
	t := n.Results[0].Type
	symbolic := slices.ContainsFunc(t.Dims, func(d Dim) bool { return d.Sym != 0 })
	switch {
	case len(n.Args) != 0 || len(n.Results) != 1:
		return errors.New("takes no operands and gives one value")
	case n.Op.Name != "param" && n.Storage != nil:
		return errors.New("only a parameter has a place in the checkpoint")
	case n.Op.Name != "state" && n.Part != nil:
		return errors.New("only a state is a field of the model's")
	case t.Layout.Kind == Partial:
		return errors.New("cannot be a partial sum")
	case t.Context.Kind != Replicated:
		return fmt.Errorf("is %s; what exists before the batch is whole along cp", t)
	case t.Layout.ByBatch():
		return fmt.Errorf("is %s; which rank has which rows depends on the batch, so a value that exists before the batch cannot lie so", t)
	case n.Op.Name != "param" && t.DType.Quantized():
		return fmt.Errorf("is %s; only a parameter may be in blocks", t)
	case t.DType.InBlocks():
		return fmt.Errorf("is %s; only quantize encodes into a codec", t)
	case n.Op.Name == "param" && symbolic:
		return fmt.Errorf("%s: the shape of a parameter has no symbols", t)
	case n.Op.Name == "state" && (len(t.Dims) == 0 || t.Dims[0].Sym != Seqs || t.Dims[0].Times > 0):
		return fmt.Errorf("%s: the first axis of a state is s, the sequences", t)
	}
	if n.Part != nil {
		return n.Part.Valid(t)
	}
	return n.Storage.valid()
}

// checkStates: a state goes where the operation replaces it, and nothing else does.
func checkStates(n *Node) error {
	for i, v := range n.Args {
		takes := slices.ContainsFunc(n.Op.States, func(p StatePair) bool { return p.Operand == i })
		if is := keeps(v); is != takes && !(takes && ofParts(v)) {
			if is {
				return fmt.Errorf("operand %d (%s) is state, which this operation does not update", i, v.Name)
			}
			return fmt.Errorf("operand %d (%s) must be state", i, v.Name)
		}
	}
	return nil
}

// keeps reports whether v is what a sequence keeps between steps.
func keeps(v *Value) bool { return v.Def.Op.Name == "state" }

// ofParts reports whether v has a row per part of each sequence, as the states of parts have.
func ofParts(v *Value) bool { return len(v.Type.Dims) > 0 && v.Type.Dims[0].Times > 0 }

// Equal reports whether two graphs are the same: nodes, names, types, storage
// and outputs, in order.
func Equal(g, h *Graph) bool {
	return g.Name == h.Name && g.Stage == h.Stage && g.Ranks == h.Ranks && g.Mesh == h.Mesh &&
		slices.EqualFunc(g.Nodes, h.Nodes, equalNode) &&
		slices.EqualFunc(g.Outputs, h.Outputs, func(a, b Output) bool {
			return a.Name == b.Name && a.Value.Name == b.Value.Name
		})
}

func equalNode(m, n *Node) bool {
	sameName := func(a, b *Value) bool { return a.Name == b.Name }
	sameValue := func(a, b *Value) bool { return a.Name == b.Name && a.Type.Equal(b.Type) && a.Narrow == b.Narrow }
	if len(m.Attrs) != len(n.Attrs) {
		return false
	}
	for k, v := range m.Attrs {
		if !sameAttr(n.Attrs[k], v) {
			return false
		}
	}
	return m.Op == n.Op && m.Storage.equal(n.Storage) && m.Part.Equal(n.Part) &&
		slices.EqualFunc(m.Args, n.Args, sameName) && slices.EqualFunc(m.Results, n.Results, sameValue)
}

// sameAttr compares attribute values; a NaN equals itself.
func sameAttr(a, b any) bool { return a == b || a != a && b != b }
