package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// What rows of the table need beyond their rule.

// segColumns are the columns of the segment table: first token, tokens, slot.
const segColumns = 3

func checkSegments(operand int) func(*Node, *binding) error {
	return func(n *Node, _ *binding) error {
		if d := n.Args[operand].Type.Dims; d[1].Len() != segColumns || d[0].Sym != Seqs {
			return fmt.Errorf("operand %d must be the segments i32[s 3], found %s", operand, n.Args[operand].Type)
		}
		return nil
	}
}

// checkConv1D checks filter and state, and the segments, which are operand seg.
func checkConv1D(seg int) func(*Node, *binding) error {
	return func(n *Node, b *binding) error {
		if b.size('m') != b.size('w')-1 {
			return fmt.Errorf("a filter of width %d needs a state of width %d, found %d", b.size('w'), b.size('w')-1, b.size('m'))
		}
		return checkSegments(seg)(n, b)
	}
}

// checkDelta: a head has one decay, or one for each row of its state.
func checkDelta(n *Node, b *binding) error {
	if r := b.size('r'); r != 1 && r != b.size('n') {
		return fmt.Errorf("operand 3 has %d decays for each head of operand 2; it must be 1, or %d, the width of a head of keys", r, b.size('n'))
	}
	return checkSegments(6)(n, b)
}

// checkHeadNorm: heads are the units of what is normed.
func checkHeadNorm(n *Node, b *binding) error { return checkHeads(n, b, 0) }

// costEmbedding: only the rows that are looked up are read.
func costEmbedding(n *Node, _ *binding) Cost {
	out := n.Results[0].Type
	table := n.Args[1].Type
	table.Dims = append([]Dim{Size(1)}, table.Dims[1:]...)
	table.Layout = Layout{}
	rows := table.Bytes().Times(out.Dims[0].Poly())
	return Cost{Read: rows.Plus(n.Args[0].Type.Bytes()), Write: out.Bytes()}
}

func costSelect(n *Node, _ *binding) Cost {
	out := n.Results[0].Type.Bytes()
	return Cost{Read: out.Plus(n.Args[1].Type.Bytes()), Write: out}
}

func checkRotary(n *Node, b *binding) error {
	if err := checkHeads(n, b, 0); err != nil {
		return err
	}
	return checkPositions(n, 1)
}

// checkPositions checks operands that are the segments and the past.
func checkPositions(n *Node, seg int) error {
	if past := n.Args[seg+1].Type.Dims[0]; past.Sym != Seqs {
		return fmt.Errorf("operand %d must be the past i32[s], found %s", seg+1, n.Args[seg+1].Type)
	}
	return checkSegments(seg)(n, nil)
}

// checkHeads: where heads are units, all operands must have heads of one size,
// which nothing else says.
func checkHeads(n *Node, b *binding, operands ...int) error {
	for _, i := range operands {
		d := n.Args[i].Type.Dims
		if f := d[len(d)-1].Fields; len(f) != 1 || f[0].Unit != b.size('p') {
			return fmt.Errorf("operand %d has heads %s; its units must be heads of %d, as in operand 0", i, d[len(d)-1], b.size('p'))
		}
	}
	return nil
}

func checkAttention(n *Node, b *binding) error {
	if err := checkHeads(n, b, 0, 1, 2, 3, 4); err != nil {
		return err
	}
	for _, i := range []int{1, 2} {
		if q, d := n.Args[0].Type.Dims[0], n.Args[i].Type.Dims[0]; !d.same(q) {
			return fmt.Errorf("operand %d is of %s, and the queries are of %s; they must be of the same tokens", i, d, q)
		}
	}
	for _, i := range []int{3, 4} {
		if d := n.Args[i].Type.Dims; d[0].Sym != Seqs || d[1].Sym != Cached {
			return fmt.Errorf("operand %d must be a cache, %s[s c …], found %s", i, n.Args[i].Type.DType, n.Args[i].Type)
		}
	}
	if k, v := n.Args[3].Type.DType, n.Args[4].Type.DType; k != v {
		return fmt.Errorf("operands 3 and 4 are %s and %s; keys and values are kept in one format", k, v)
	}
	return checkPositions(n, 5)
}

// costAttention: every pair of a new token and one that it sees costs a product
// with the key and one with the value; caches are read once. Of even shares of the queries each
// is taken to have as many pairs.
func costAttention(n *Node, b *binding) Cost {
	q, k, keys := n.Args[0].Type, n.Args[1].Type, n.Args[3].Type
	pairs := Dim{Sym: Pairs, Over: q.Dims[0].Over}.Poly()
	cache := keys.Bytes().Plus(n.Args[4].Type.Bytes())
	return Cost{
		FLOPs: b.cost("4 g q p").Times(pairs),
		Read:  q.Bytes().Plus(k.Bytes().Times(Const(2))).Plus(cache),
		Write: q.Bytes().Plus(k.Elems().Times(Const(2 * int64(keys.DType.Bytes())))),
	}
}

// costExperts: a token uses the top experts only, which are read; n tokens read n times as many, if
// they choose different ones, and all at most. All matrices but the last read x.
func costExperts(n *Node, b *binding) Cost {
	c := Cost{FLOPs: b.cost("2 t i k").Times(Const(int64(strings.Count(n.Op.Operands, "w") - 1))).Plus(b.cost("2 t n i")).Times(Const(int64(n.Attrs.Int("top")))), Write: n.Results[0].Type.Bytes()}
	rows, top := n.Args[0].Type.Dims[0].Sym, n.Attrs.Int("top")
	for i, v := range n.Args {
		bytes := v.Type.Bytes()
		if n.Op.Operands[i] == 'w' { // a matrix per expert
			all := (v.Type.Dims[0].Len() + top - 1) / top // tokens may choose all
			bytes = AtMost(rows, all).Times(Const(bytes.At(Sizes{}) / int64(all)))
		}
		c.Read = c.Read.Plus(bytes)
	}
	return c
}

func costCopy(n *Node, _ *binding) Cost {
	b := n.Results[0].Type.Bytes()
	return Cost{Read: b, Write: b}
}

// costSegments counts the segments that are read and written.
func costSegments(n *Node, _ *binding) Cost {
	return Cost{Read: n.Args[1].Type.Bytes(), Write: n.Results[0].Type.Bytes()}
}

// costZeros counts what is written.
func costZeros(n *Node, _ *binding) Cost { return Cost{Write: n.Results[0].Type.Bytes()} }

// inferConcat joins the last axes of its operands.
func inferConcat(n *Node) ([]Type, error) {
	names := strings.Split(n.Attrs.Text("names"), "|")
	if len(n.Args) < 2 || len(names) != len(n.Args) {
		return nil, fmt.Errorf("%d names for %d values, of which there must be at least 2", len(names), len(n.Args))
	}
	first := n.Args[0].Type
	last := len(first.Dims) - 1
	var joined Dim
	for i, v := range n.Args {
		if err := joins(i, v.Type, first); err != nil {
			return nil, err
		}
		f := v.Type.Dims[last].Fields[0]
		f.Name = names[i]
		joined.Fields = append(joined.Fields, f)
	}
	layout, err := joinedLayout(n.Args, last)
	if err != nil {
		return nil, err
	}
	return []Type{{DType: first.DType, Dims: append(slices.Clone(first.Dims[:last]), joined), Layout: layout}}, nil
}

// joins checks that operand i of a concat is one field, and otherwise as the first.
func joins(i int, t, first Type) error {
	last := len(first.Dims) - 1
	switch {
	case !t.DType.Float() || t.DType != first.DType:
		return fmt.Errorf("operand %d is %s; all must have one float format", i, t.DType)
	case len(t.Dims) != len(first.Dims) || last < 1 || !slices.EqualFunc(t.Dims[:last], first.Dims[:last], Dim.same):
		return fmt.Errorf("operand %d is %s; all but the last axis must be as in %s", i, t, first)
	case len(t.Dims[last].Fields) != 1:
		return fmt.Errorf("operand %d is %s; its last axis must be one field", i, t)
	}
	return nil
}

// joinedLayout is how values side by side lie. A whole value is a whole field beside
// split ones; partial sums are partial together.
func joinedLayout(args []*Value, last int) (Layout, error) {
	if l := args[0].Type.Layout; l.Kind == Sharded && l.Axis != last && sameLayout(args) {
		return l, nil
	}
	split, partial := Layout{Kind: Sharded, Axis: last, Place: make([]Placement, len(args))}, 0
	whole := true
	for i, v := range args {
		switch l := v.Type.Layout; {
		case l.Kind == Partial:
			partial++
		case l.Kind == Sharded && l.Axis != last:
			return Layout{}, fmt.Errorf("operand %d is split on axis %d; all must be in the same way, or be split on the last", i, l.Axis)
		case l.Kind == Sharded:
			split.Place[i], whole = l.Place[0], false
		}
	}
	switch {
	case partial == len(args):
		return Layout{Kind: Partial}, nil
	case partial > 0:
		return Layout{}, errors.New("some operands are partial sums and others are not; all_reduce them first")
	case whole:
		return Layout{}, nil
	}
	return split, nil
}

// sameLayout reports whether all values lie alike.
func sameLayout(args []*Value) bool {
	return !slices.ContainsFunc(args, func(v *Value) bool { return !v.Type.Layout.Equal(args[0].Type.Layout) })
}

func inferField(n *Node) ([]Type, error) {
	t, axis, name := n.Args[0].Type, n.Attrs.Int("axis"), n.Attrs.Text("name")
	if axis < 0 || axis >= len(t.Dims) {
		return nil, fmt.Errorf("axis %d of a value with %d axes", axis, len(t.Dims))
	}
	first, count, _, ok := t.Dims[axis].Run(name)
	if !ok {
		return nil, fmt.Errorf("no field %q in %s", name, t.Dims[axis])
	}
	out := Type{DType: t.DType, Dims: slices.Clone(t.Dims), Layout: t.Layout}
	fields := slices.Clone(t.Dims[axis].Fields[first : first+count])
	if count == 1 {
		fields[0].Name = ""
	}
	out.Dims[axis] = Dim{Fields: fields}
	if l := t.Layout; l.Kind == Sharded && l.Axis == axis {
		place := l.Place[first : first+count]
		if out.Layout = (Layout{}); slices.ContainsFunc(place, func(p Placement) bool { return p.Kind != Whole }) {
			out.Layout = Layout{Kind: Sharded, Axis: axis, Place: place}
		}
	}
	return []Type{out}, nil
}

// inferConvert gives the operand's type with another dtype. Rounding is not
// linear, but a rounded summand still is a summand: the layout stays. Kernels encode f32 into a
// codec, and decode it into f32, only.
func inferConvert(n *Node) ([]Type, error) {
	t := n.Args[0].Type
	from := t.DType
	t.DType, _ = ParseDType(n.Attrs.Text("to"))
	switch {
	case t.DType.InBlocks() && from != F32:
		return nil, fmt.Errorf("operand 0 is %s; %s encodes f32: dequantize operand 0 to f32 first", from, t.DType)
	case from.InBlocks() && t.DType != F32:
		return nil, fmt.Errorf("attribute to is %s; %s decodes to f32 only", t.DType, from)
	}
	return []Type{t}, nil
}
