// Package graph holds what Krait compiles: a flat dataflow graph of tensor
// values whose types say how a value lies over the ranks.
//
// A [Value] is the result of a [Node]: an operation ([Op]), its operands and its attributes. A
// [Type] is a dtype, a shape and a [Layout]. A dimension is a list of named fields, so that a
// packed tensor (in_proj's x|z) stays packed as in the checkpoint while the graph knows what is in
// it. Sizes that depend on the batch are symbols ([Sym]).
//
// Every operation is one row of a table (ops.go) around an einsum-like [Rule].
// From the rule come arity, shapes, layouts and cost; an operation whose result
// the rule cannot say has its own infer function.
//
// Sizes are elements, costs operations and bytes as polynomials of the batch's sizes ([Poly]). An
// operation on shapes or layouts that it does not take is an error that names the operand;
// the table can be extended ([RegisterOp]).
//
// Graphs are built by a [Builder], printed by [Print], read by [Parse], and
// checked against their [Stage] by [Check].
package graph
