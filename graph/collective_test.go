package graph

import "testing"

// exchangeCases say of each collective and relayout what its row must: the layouts before and
// after, whether launches can be joined, and what four ranks send in a ring of 24·t bytes.
var exchangeCases = []struct {
	name     string
	class    Class
	from, to LayoutKind
	variadic bool
	sent     string
}{
	{"all_reduce", Collective, Partial, Replicated, true, "144·t"},
	{"all_gather", Collective, Sharded, Replicated, true, "72·t"},
	{"reduce_scatter", Collective, Partial, Sharded, true, "72·t"},
	{"shard", Relayout, Replicated, Sharded, false, "0"},
	{"term", Relayout, Replicated, Partial, false, "0"},
}

// TestExchanges: no other row has layouts, each is found by its own, and what
// exchanges data sends something.
func TestExchanges(t *testing.T) {
	typ := TypeOf(BF16, Symbol(Tokens), Units(12, 2))
	rest := map[string]bool{}
	for _, op := range Ops() {
		if rest[op.Name] = true; op.Class != Collective && op.Class != Relayout && (op.From != 0 || op.To != 0 || op.Variadic) {
			t.Errorf("%s is no exchange and has layouts", op.Name)
		}
	}
	collectives := 0
	for _, c := range exchangeCases {
		op, _ := Lookup(c.name)
		if op.Class != c.class || op.From != c.from || op.To != c.to || op.Variadic != c.variadic {
			t.Errorf("%s: class %d from %d to %d, variadic %v", c.name, op.Class, op.From, op.To, op.Variadic)
		}
		if found, ok := Between(c.from, c.to); !ok || found != op {
			t.Errorf("%s is not what is between its layouts", c.name)
		}
		if got := Sent(op, typ, 4).String(); got != c.sent {
			t.Errorf("%s sends %s bytes, want %s", c.name, got, c.sent)
		}
		if got := Sent(op, typ, 1).String(); got != "0" {
			t.Errorf("%s sends %s bytes on one rank", c.name, got)
		}
		if c.class == Collective {
			collectives++
		}
	}
	if len(exchanges) != len(exchangeCases) || len(Collectives()) != collectives {
		t.Errorf("%d exchanges and %d collectives, want %d and %d", len(exchanges), len(Collectives()), len(exchangeCases), collectives)
	}
	if add, _ := Lookup("add"); Sent(add, typ, 4).String() != "0" {
		t.Error("add sends something")
	}
	if _, ok := Between(Sharded, Partial); ok {
		t.Error("something makes summands of parts")
	}
}

// TestTwoExchanges: a second row between the same layouts is a bug.
func TestTwoExchanges(t *testing.T) {
	defer func() {
		if r := recover(); r != "BUG: all_gather and gather_again go between the same layouts" {
			t.Errorf("panic %v", r)
		}
	}()
	addExchange(&Op{Name: "gather_again", Class: Collective, From: Sharded, To: Replicated})
}

// TestBrokenExchanges gives the row of each exchange every other pair of layouts:
// its cases of layout rules see it.
func TestBrokenExchanges(t *testing.T) {
	for _, op := range exchanges {
		right := *op
		for from := range Partial + 1 {
			for to := range Partial + 1 {
				if from == right.From && to == right.To {
					continue
				}
				op.From, op.To = from, to
				if !anyDiffers(t, op) {
					t.Errorf("%s may go from %d to %d", op.Name, from, to)
				}
				*op = right
			}
		}
		if anyDiffers(t, op) {
			t.Errorf("%s is not mended", op.Name)
		}
	}
}

// anyDiffers reports whether a case of layout rules about op gives something else.
func anyDiffers(t *testing.T, op *Op) bool {
	for _, c := range deriveCases {
		g, node := deriveGraph(t, c.leaves, c.node)
		if node.Op != op {
			continue
		}
		types, err := infer(node, g.Ranks)
		if err != nil && c.want != "error: "+err.Error() || err == nil && types[0].String() != c.want {
			return true
		}
	}
	return false
}

func TestPayload(t *testing.T) {
	elems, bytes := Payload(TypeOf(BF16, Symbol(Tokens), Units(6, 2)), TypeOf(F32, Symbol(Tokens)))
	if elems.String() != "7·t" || bytes.String() != "16·t" {
		t.Errorf("a payload of %s elements, %s bytes", elems, bytes)
	}
}
