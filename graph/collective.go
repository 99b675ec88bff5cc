package graph

// Payload is what a collective moves, in elements and bytes: each operand whole
// and once, whatever the ranks hold of it.
func Payload(operands ...Type) (elems, bytes Poly) {
	for _, t := range operands {
		elems, bytes = elems.Plus(t.Elems()), bytes.Plus(t.Bytes())
	}
	return elems, bytes
}

// Sent is the bytes that all ranks together send in a ring when an operand of type
// t goes through a collective: in each turn ranks-1 of them pass every byte on.
func Sent(op *Op, t Type, ranks int) Poly {
	_, bytes := Payload(t)
	return bytes.Times(Const(int64(op.Turns * (ranks - 1))))
}
