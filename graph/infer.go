package graph

import "fmt"

// infer works out the types of a node's results from its operands, where all ranks are along one
// axis.
func infer(n *Node, ranks int) ([]Type, error) {
	b, in, err := bound(n)
	if err == nil {
		err = n.alone()
	}
	if err != nil {
		return nil, err
	}
	return inferBound(n, b, in, ranks)
}

// bound checks what does not depend on layouts, and binds the rule where it says
// what the results are.
func bound(n *Node) (*binding, []Type, error) {
	if err := checkOperands(n); err != nil {
		return nil, nil, err
	}
	if n.Op.infer != nil {
		return nil, nil, checkAttrs(n, nil)
	}
	b, in, err := bindNode(n)
	if err == nil {
		err = checkAttrs(n, b.size)
	}
	if err == nil && n.Op.check != nil {
		err = n.Op.check(n, b)
	}
	return b, in, err
}

// inferBound is infer after bound.
func inferBound(n *Node, b *binding, in []Type, ranks int) ([]Type, error) {
	if n.Op.infer != nil {
		out, err := n.Op.infer(n)
		for i := range out {
			if err := out[i].Valid(); err != nil {
				return nil, fmt.Errorf("result %d: %w", i, err)
			}
		}
		return out, err
	}
	layouts, err := b.derive(in, n.Op, ranks)
	if err != nil {
		return nil, err
	}
	out := make([]Type, len(b.rule.out))
	for i, axes := range b.rule.out {
		out[i] = b.resultType(axes)
		out[i].DType, out[i].Layout = n.resultDType(i), layouts[i]
		if err := out[i].Valid(); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
	}
	return out, nil
}

// bindNode binds the letters of the node's rule.
func bindNode(n *Node) (*binding, []Type, error) {
	in := make([]Type, len(n.Args))
	for i, v := range n.Args {
		in[i] = v.Type
	}
	given := map[byte]int{}
	for c, name := range n.Op.Sizes {
		if given[c] = n.Attrs.Int(name); given[c] < 1 {
			return nil, nil, fmt.Errorf("attribute %s is %d; it must be at least 1", name, given[c])
		}
	}
	b, err := n.Op.Rule.bind(in, given)
	return b, in, err
}

// checkOperands checks number and dtypes of the operands against the row.
func checkOperands(n *Node) error {
	kinds := n.Op.Operands
	if kinds == "" {
		return nil
	}
	if len(n.Args) != len(kinds) {
		return fmt.Errorf("%d operands given, %d required", len(n.Args), len(kinds))
	}
	act := n.activation()
	for i, v := range n.Args {
		d, want := v.Type.DType, ""
		switch kinds[i] {
		case 'a':
			inBlocks := n.Op.Class == View && d.Quantized() || n.Op.Name == "dequantize" && d.InBlocks()
			if !d.Float() && !inBlocks || d != act {
				want = "the float format of the other activations"
			}
		case 'w':
			if !d.Quantized() && (!d.Float() || d == F64 || d == F8) {
				want = "f32, bf16, f16, q8 or another block format"
			}
		case 'f':
			if d != F32 {
				want = "f32"
			}
		case 'i':
			if d != I32 {
				want = "i32"
			}
		case 's':
			if err := n.Op.state(i).Takes(d); err != nil {
				return fmt.Errorf("operand %d is %w", i, err)
			}
		}
		if want != "" {
			return fmt.Errorf("operand %d is %s; it must be %s", i, d, want)
		}
	}
	return nil
}

// activation is the number format of the node's activations, f32 without any.
func (n *Node) activation() DType {
	for i, k := range n.Op.Operands {
		if k == 'a' {
			return n.Args[i].Type.DType
		}
	}
	return F32
}

// resultDType: a new state is as the old one, everything else as the row says.
func (n *Node) resultDType(i int) DType {
	for _, p := range n.Op.States {
		if p.Result == i {
			return n.Args[p.Operand].Type.DType
		}
	}
	if n.Op.Gives != NoDType {
		return n.Op.Gives
	}
	return n.activation()
}
