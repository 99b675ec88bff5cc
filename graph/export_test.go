package graph

import "slices"

// Break lets inferring an operation give something else, for tests of who should
// notice. F gets what the results are with whole operands, what is right for the
// operands as they lie over ranks, and why they are refused. Restore ends it.
func Break(op *Op, ranks int, f func(args []*Value, whole, right []Type, err error) ([]Type, error)) (restore func()) {
	row := *op
	inferAs := func(n *Node, args []*Value) ([]Type, error) {
		return infer(&Node{Op: &row, Attrs: n.Attrs, Args: args, Results: n.Results}, ranks)
	}
	op.infer = func(n *Node) ([]Type, error) {
		var bare []*Value
		for _, v := range n.Args {
			bare = append(bare, &Value{Name: v.Name, Type: TypeOf(v.Type.DType, v.Type.Dims...), Def: v.Def})
		}
		whole, err := inferAs(n, bare)
		if err != nil {
			return nil, err
		}
		right, err := inferAs(n, n.Args)
		return f(n.Args, whole, right, err)
	}
	return func() { *op = row }
}

// Unregister takes an operation that a test registered from the table again.
func Unregister(op *Op) {
	table = slices.DeleteFunc(table, func(o *Op) bool { return o == op })
	delete(byName, op.Name)
}
