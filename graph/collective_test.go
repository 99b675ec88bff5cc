package graph

import "testing"

// TestSent: only collectives send, and a sum for all is the two halves of it.
func TestSent(t *testing.T) {
	typ := TypeOf(BF16, Symbol(Tokens), Units(6, 2))
	want := map[string]string{"all_reduce": "72·t", "all_gather": "36·t", "reduce_scatter": "36·t"}
	for _, op := range Ops() {
		if (op.Turns > 0) != (op.Class == Collective) {
			t.Errorf("%s has %d turns", op.Name, op.Turns)
		}
		w, ok := want[op.Name]
		if !ok {
			w = "0"
		}
		if got := Sent(op, typ, 4).String(); got != w {
			t.Errorf("%s sends %s bytes, want %s", op.Name, got, w)
		}
		if got := Sent(op, typ, 1).String(); got != "0" {
			t.Errorf("%s sends %s bytes on one rank", op.Name, got)
		}
	}
	elems, bytes := Payload(typ, TypeOf(F32, Symbol(Tokens)))
	if elems.String() != "7·t" || bytes.String() != "16·t" {
		t.Errorf("a payload of %s elements, %s bytes", elems, bytes)
	}
}
