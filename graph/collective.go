package graph

import (
	"errors"
	"fmt"
	"slices"
)

// exchanges are the collectives and relayouts, in the order of the table.
var exchanges []*Op

// addExchange lists a row. A second one between the same layouts would leave open
// which of them passes should put in.
func addExchange(op *Op) {
	if other, ok := Between(op.From, op.To); ok {
		panic("BUG: " + other.Name + " and " + op.Name + " go between the same layouts")
	}
	exchanges = append(exchanges, op)
}

// Between is the collective or the relayout that takes a value from one kind of
// layout to another, if one row alone does.
func Between(from, to LayoutKind) (*Op, bool) {
	for _, op := range exchanges {
		if op.From == from && op.To == to {
			return op, true
		}
	}
	return nil, false
}

// Collectives lists the rows by which ranks exchange data.
func Collectives() []*Op {
	return slices.DeleteFunc(slices.Clone(exchanges), func(op *Op) bool { return op.Class != Collective })
}

// Payload is what a collective moves, in elements and bytes: each operand whole
// and once, whatever the ranks hold of it.
func Payload(operands ...Type) (elems, bytes Poly) {
	for _, t := range operands {
		elems, bytes = elems.Plus(t.Elems()), bytes.Plus(t.Bytes())
	}
	return elems, bytes
}

// Sent is the bytes that all ranks together send in a ring when an operand of type
// t goes through a collective: in each phase ranks-1 of them pass every byte on.
func Sent(op *Op, t Type, ranks int) Poly {
	_, bytes := Payload(t)
	return bytes.Times(Const(int64(op.phases() * (ranks - 1))))
}

// phases counts those of a ring: a reduce-scatter of summands, an all-gather of
// what is to be whole.
func (op *Op) phases() int {
	n := 0
	if op.Class != Collective {
		return n
	}
	if op.From == Partial {
		n++
	}
	if op.To == Replicated {
		n++
	}
	return n
}

// Joint is what values have in common that may travel in one launch of a collective: its
// row, and of values that are split before or after it, whose rows of the batch.
type Joint struct {
	Op    *Op
	Rows  Sym
	Place PlaceKind
}

// JointOf is that of a value which a collective takes from one layout to another; false
// where the value travels alone, as what is split along units does.
func JointOf(op *Op, t Type, from, to Layout) (Joint, bool) {
	j := Joint{Op: op}
	for _, l := range []Layout{from, to} {
		if l.ByBatch() {
			j.Rows, j.Place = t.Dims[0].Sym, l.Place[0].Kind
		}
	}
	return j, op.Variadic && (j.Rows != 0 || op.From != Sharded && op.To != Sharded)
}

// jointly checks that all operands of a launch may travel in it.
func (n *Node) jointly(results []Type) error {
	first, _ := JointOf(n.Op, results[0], n.Args[0].Type.Layout, results[0].Layout)
	for i, t := range results[1:] {
		v := n.Args[i+1]
		j, ok := JointOf(n.Op, t, v.Type.Layout, t.Layout)
		if !ok || j != first {
			return fmt.Errorf("operand %d, %s, cannot share a launch with operand 0, %s: operands of one launch must be split in the same rows of the batch; use one collective each", i+1, v.Type, n.Args[0].Type)
		}
	}
	return nil
}

// inferExchange gives the operands the layout after a collective or a relayout.
func inferExchange(n *Node) ([]Type, error) {
	if len(n.Args) == 0 {
		return nil, errors.New("no operand is given")
	}
	if !n.Op.Variadic && len(n.Args) != 1 {
		return nil, fmt.Errorf("%d operands given, 1 required", len(n.Args))
	}
	var out []Type
	for i, v := range n.Args {
		if v.Type.Layout.Kind != n.Op.From {
			return nil, fmt.Errorf("operand %d is %w", i, n.Op.refuses(v.Type.Layout.Kind))
		}
		l := Layout{Kind: n.Op.To}
		if l.Kind == Sharded {
			var err error
			if l, err = cutOf(n.Attrs, v.Type); err != nil {
				return nil, err
			}
		}
		switch {
		case v.Type.DType.Quantized():
			return nil, fmt.Errorf("%s is %s; blocks stay where they are loaded", v.Name, v.Type)
		case v.Type.DType.InBlocks() && n.Op.From == Partial:
			if n.Op.To != Sharded || !l.ByBatch() {
				return nil, fmt.Errorf("%s is %s; sums are not made of codes: reduce_scatter gives each rank the rows that it decodes and adds", v.Name, v.Type)
			}
			if n.Attrs.Text("acc") != "f32" {
				return nil, fmt.Errorf("%s is %s; codes are decoded and added in f32: write acc=f32", v.Name, v.Type)
			}
			out = append(out, Type{DType: F32, Dims: v.Type.Dims, Layout: l})
			continue
		case v.Type.DType.InBlocks():
		case !v.Type.DType.Float() && n.Op.Class == Collective && (n.Op.From == Sharded || n.Op.To == Sharded):
			return nil, fmt.Errorf("operand %d is %s; it must be of a float format", i, v.Type.DType)
		}
		out = append(out, Type{DType: v.Type.DType, Dims: v.Type.Dims, Layout: l})
	}
	return out, n.jointly(out)
}

// cutOf is the layout that the attributes of a reduce_scatter or a shard say.
func cutOf(a Attrs, t Type) (Layout, error) {
	axis, place := a.Int("axis"), a.Text("place")
	if axis < 0 || axis >= len(t.Dims) {
		return Layout{}, fmt.Errorf("axis %d of %s cannot be split", axis, t)
	}
	d := t.Dims[axis]
	kind, known := rowPlaces[place]
	switch {
	case place != "" && !known:
		return Layout{}, fmt.Errorf("place is %q; the rows of a batch lie even, by sequence or in parts", place)
	case d.Sym == 0 && place != "":
		return Layout{}, fmt.Errorf("axis %d of %s is not the rows of a batch, and only those can be %s; leave the place out", axis, t, place)
	case d.Sym == 0:
		return SplitOn(axis, len(d.Fields)), nil
	case place == "":
		return Layout{}, fmt.Errorf("axis %d of %s cannot be split without a place for its rows: even, sequence or parts", axis, t)
	}
	l := Layout{Kind: Sharded, Axis: axis, Place: []Placement{{Kind: kind}}}
	return l, l.valid(t.Dims)
}

// CutAttrs are the attributes with which reduce_scatter and shard give a layout.
func CutAttrs(l Layout) Attrs {
	a := Attrs{"axis": l.Axis}
	if l.ByBatch() {
		a["place"] = l.Place[0].String()
	}
	return a
}

// refuses says why an operand of a kind of layout is not what the row takes.
func (op *Op) refuses(kind LayoutKind) error {
	switch {
	case op.From == Replicated:
		return errors.New("not whole on every rank")
	case op.From == Sharded:
		return errors.New("not sharded: there is nothing to gather")
	case kind == Replicated:
		return errors.New("not a partial sum: every rank would add what it already has whole")
	}
	return errors.New("split, not a partial sum; all_gather makes it whole")
}
