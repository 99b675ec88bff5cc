package graph

import (
	"errors"
	"fmt"
	"slices"
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

func checkConv1D(n *Node, b *binding) error {
	if b.size['m'] != b.size['w']-1 {
		return fmt.Errorf("a filter of width %d needs a state of width %d, found %d", b.size['w'], b.size['w']-1, b.size['m'])
	}
	return checkSegments(3)(n, b)
}

// costEmbedding: only the rows that are looked up are read.
func costEmbedding(n *Node, _ *binding) Cost {
	out := n.Results[0].Type
	row := out.Elems().Times(Const(int64(n.Args[1].Type.DType.Bytes())))
	return Cost{Read: row.Plus(n.Args[0].Type.Bytes()), Write: out.Bytes()}
}

func costSelect(n *Node, _ *binding) Cost {
	out := n.Results[0].Type.Bytes()
	return Cost{Read: out.Plus(n.Args[1].Type.Bytes()), Write: out}
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
// linear, but a rounded summand still is a summand: the layout stays.
func inferConvert(n *Node) ([]Type, error) {
	t := n.Args[0].Type
	d, ok := ParseDType(n.Attrs.Text("to"))
	if !ok || !d.Float() || d == F64 {
		return nil, fmt.Errorf("attribute to is %q; it must be f32, f16 or bf16", n.Attrs.Text("to"))
	}
	t.DType = d
	return []Type{t}, nil
}

func inferAllReduce(n *Node) ([]Type, error) {
	if len(n.Args) == 0 {
		return nil, errors.New("nothing to reduce")
	}
	if acc := n.Attrs.Text("acc"); acc != "" && acc != "f32" {
		return nil, fmt.Errorf("attribute acc is %q; it may be f32", acc)
	}
	var out []Type
	for i, v := range n.Args {
		switch v.Type.Layout.Kind {
		case Replicated:
			return nil, fmt.Errorf("operand %d is not a partial sum: every rank would add what it already has whole", i)
		case Sharded:
			return nil, fmt.Errorf("operand %d is split, not a partial sum; all_gather makes it whole", i)
		}
		out = append(out, TypeOf(v.Type.DType, v.Type.Dims...))
	}
	return out, nil
}

func inferAllGather(n *Node) ([]Type, error) {
	t := n.Args[0].Type
	if t.Layout.Kind != Sharded {
		return nil, errors.New("operand 0 is not sharded: there is nothing to gather")
	}
	return []Type{TypeOf(t.DType, t.Dims...)}, nil
}

func inferReduceScatter(n *Node) ([]Type, error) {
	t := n.Args[0].Type
	if t.Layout.Kind != Partial {
		return nil, errors.New("operand 0 is not a partial sum")
	}
	return splitAxis(t, n.Attrs.Int("axis"))
}

func inferShard(n *Node) ([]Type, error) {
	t := n.Args[0].Type
	if t.Layout.Kind != Replicated {
		return nil, errors.New("operand 0 is not whole on every rank")
	}
	return splitAxis(t, n.Attrs.Int("axis"))
}

func splitAxis(t Type, axis int) ([]Type, error) {
	if axis < 0 || axis >= len(t.Dims) || t.Dims[axis].Sym != 0 {
		return nil, fmt.Errorf("axis %d of %s cannot be split", axis, t)
	}
	return []Type{{t.DType, t.Dims, SplitOn(axis, len(t.Dims[axis].Fields))}}, nil
}

func inferTerm(n *Node) ([]Type, error) {
	t := n.Args[0].Type
	if t.Layout.Kind != Replicated {
		return nil, errors.New("operand 0 is not whole on every rank")
	}
	return []Type{{t.DType, t.Dims, Layout{Kind: Partial}}}, nil
}
