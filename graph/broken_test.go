package graph_test

import (
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/graphgen"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/passes/prove"
)

// breakage is a way in which a rule may be wrong: what it says of the results, given
// what these are with whole operands, and what is right.
type breakage struct {
	name string
	says func(args []*graph.Value, whole, right []graph.Type, err error) ([]graph.Type, error)
}

var breakages = []breakage{
	{"forgets that the result is a sum", func(_ []*graph.Value, _, right []graph.Type, err error) ([]graph.Type, error) {
		return relaid(right, graph.Partial, graph.Layout{}), err
	}},
	{"says that ranks have all of which they have a part", func(_ []*graph.Value, _, right []graph.Type, err error) ([]graph.Type, error) {
		return relaid(right, graph.Sharded, graph.Layout{}), err
	}},
	{"takes sums in which it is not linear", func(args []*graph.Value, whole, right []graph.Type, err error) ([]graph.Type, error) {
		if err == nil || !slices.ContainsFunc(args, isPartial) || slices.ContainsFunc(args, isSplit) {
			return right, err
		}
		return relaid(whole, graph.Replicated, graph.Layout{Kind: graph.Partial}), nil
	}},
	{"cuts what it may not", func(args []*graph.Value, whole, right []graph.Type, err error) ([]graph.Type, error) {
		first := args[0].Type
		if err == nil || slices.ContainsFunc(args, isPartial) || !isSplit(args[0]) {
			return right, err
		}
		for _, t := range whole {
			if axis := first.Layout.Axis; axis >= len(t.Dims) || len(t.Dims[axis].Fields) != len(first.Dims[axis].Fields) {
				return right, err
			}
		}
		return relaid(whole, graph.Replicated, first.Layout), nil
	}},
}

func isPartial(v *graph.Value) bool { return v.Type.Layout.Kind == graph.Partial }
func isSplit(v *graph.Value) bool   { return v.Type.Layout.Kind == graph.Sharded }

// relaid gives results of one kind of layout another.
func relaid(types []graph.Type, kind graph.LayoutKind, l graph.Layout) []graph.Type {
	out := slices.Clone(types)
	for i := range out {
		if out[i].Layout.Kind == kind {
			out[i].Layout = l
		}
	}
	return out
}

// TestBrokenRulesAreCaught breaks the rule of each drawn operation in turn, and draws graphs that
// use what it allows then. The proof stands on the rules and accepts them; execution finds that
// they are wrong. (Some are not: a rule may refuse what would be right for some sizes, and a broken
// one allow it.) Each way to break it is drawn until 2 are wrong, with KRAIT_TEST_ALL; otherwise an
// operation is broken in ways, which begin elsewhere for each, until 2 are wrong.
func TestBrokenRulesAreCaught(t *testing.T) {
	const ranks, wanted = 2, 2
	for i, op := range covering.Drawn(t, graph.Ops()) {
		if op.Parts || op.Class != graph.Compute && op.Class != graph.View || op.Name == "quantize" || op.Name == "dequantize" {
			continue
		}
		t.Run(op.Name, func(t *testing.T) {
			caught, right := 0, 0
			for k := range breakages {
				if caught >= wanted && !goldens.All() {
					break
				}
				b := breakages[(i+k)%len(breakages)]
				for seed, n := uint64(0), 0; seed < 30 && n < wanted; seed++ {
					source := graphgen.Source(seed, graphgen.Options{Ops: []string{op.Name}, Nodes: 2})
					g := provedWhenBroken(seed, source, op, ranks, b)
					if g == nil {
						continue
					}
					if _, err := validate.Run(t.Context(), source, g, validate.Options{}); err != nil {
						caught++
						n++
					} else {
						right++
					}
				}
			}
			if t.Logf("%d wrong graphs that are proved and caught, %d that happen to be right", caught, right); caught < wanted {
				t.Errorf("only %d wrong graphs are proved and caught", caught)
			}
		})
	}
}

// provedWhenBroken draws a partition under a broken rule; nil if there is none, if it
// is none that is wrong, or the proof refuses it.
func provedWhenBroken(seed uint64, source *graph.Graph, op *graph.Op, ranks int, b breakage) *graph.Graph {
	mend := graph.Break(op, ranks, b.says)
	g := graphgen.Partition(seed, source, ranks)
	mend()
	if g == nil || graph.Check(g) == nil {
		return nil
	}
	defer graph.Break(op, ranks, b.says)()
	o := prove.Options{} // how few collectives would do is not asked: the search for it takes the longest
	if !goldens.All() {
		o.Memory = 1
	}
	if _, err := prove.Prove(source, g, o); err != nil {
		return nil
	}
	return g
}

// TestBrokenExchangesAreCaught gives collectives and relayouts other layouts than
// they have: a graph that uses them is neither proved nor executed.
func TestBrokenExchangesAreCaught(t *testing.T) {
	const ranks = 2
	for _, op := range graph.Ops() {
		if op.Class != graph.Collective && op.Class != graph.Relayout {
			continue
		}
		source, g := exchanging(t, op, ranks)
		right := *op
		for from := range graph.Partial + 1 {
			for to := range graph.Partial + 1 {
				if from == right.From && to == right.To {
					continue
				}
				op.From, op.To = from, to
				_, proof := prove.Prove(source, g, prove.Options{})
				_, run := validate.Run(t.Context(), source, g, validate.Options{})
				*op = right
				if proof == nil || run == nil {
					t.Errorf("%s from %d to %d: proof %v, execution %v", op.Name, from, to, proof, run)
				}
			}
		}
		if _, err := prove.Prove(source, g, prove.Options{}); err != nil {
			t.Errorf("%s is not mended: %v", op.Name, err)
		}
	}
}

// exchanging draws a graph and a partition of it that is right and uses op.
func exchanging(t *testing.T, op *graph.Op, ranks int) (source, g *graph.Graph) {
	for seed := range uint64(1000) {
		source = graphgen.Source(seed, graphgen.Options{})
		g = graphgen.Partition(seed, source, ranks)
		if g == nil || !slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool { return n.Op == op }) {
			continue
		}
		if _, err := prove.Prove(source, g, prove.Options{}); err == nil {
			return source, g
		}
	}
	t.Fatalf("no graph uses %s", op.Name)
	return nil, nil
}
