// Package prove checks partitioned graphs. It knows nothing of how a graph was partitioned: it
// derives every layout again from the rules of the operations, holds the graph against its source,
// follows every partial sum to where it is reduced, and searches by itself for the fewest
// collectives that the class of placements allows. With the compiler it shares the rules and the
// class; package validate shares neither, and runs both graphs.
package prove

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// Prove checks that the partitioned graph computes the source, that its layouts follow from the
// rules, that every partial sum is reduced exactly once, and that recurrences over parts of
// sequences pass every state on. The certificate says so collective by collective, and compares
// their number with the minimum. A graph outside of the class of the minimum, or with more
// collectives, is no error: the certificate says that as well; so it does where the options leave
// no time to find the minimum.
func Prove(source, partitioned *graph.Graph, o Options) (*Certificate, error) {
	if err := stages(source, partitioned); err != nil {
		return nil, err
	}
	if err := graph.Check(source); err != nil {
		return nil, fmt.Errorf("the source is not valid:\n%w", err)
	}
	if err := recurrences(source); err != nil {
		return nil, fmt.Errorf("the source is not valid:\n%w", err)
	}
	if partitioned.Mesh != (graph.Mesh{}) {
		return across(source, partitioned, o)
	}
	return alongOne(source, partitioned, o)
}

// alongOne proves a graph whose values lie along one axis, of a source that is valid.
func alongOne(source, partitioned *graph.Graph, o Options) (*Certificate, error) {
	if err := graph.Check(partitioned); err != nil {
		return nil, err
	}
	match, err := compare(source, partitioned)
	if err = errors.Join(err, checkLeaves(partitioned)); err != nil {
		return nil, err
	}
	sums, err := trace(partitioned, match)
	if err != nil {
		return nil, err
	}
	sums.border = borderOf(partitioned)
	minima := minimum(source, class.Options{Ranks: ranksOf(partitioned), Across: partitioned.Mesh != (graph.Mesh{}), Border: sums.border}, o)
	stray := strays(source, partitioned, sums)
	for block := range stray {
		minima[block] = Minimum{Unknown: notOfClass}
	}
	c := certify(partitioned, sums, minima, stray)
	shared, _ := class.Shared(source, class.Options{})
	return c, c.consistent(len(shared) > 0)
}

func stages(source, partitioned *graph.Graph) error {
	if source.Stage >= graph.PartitionedStage {
		return fmt.Errorf("the source is at stage %s: give the graph as it was before partition", source.Stage)
	}
	if partitioned.Stage < graph.PartitionedStage {
		return fmt.Errorf("the graph is at stage %s: there is nothing to prove before partition", partitioned.Stage)
	}
	return nil
}

// checkLeaves checks what the rules of single operations do not see: that inputs are
// whole, that a parameter has one placement, and that a state stays where it is.
func checkLeaves(g *graph.Graph) error {
	var errs []error
	for _, n := range g.Nodes {
		if v := n.Results[0]; n.Op.Name == "input" && v.Type.Layout.Kind != graph.Replicated {
			errs = append(errs, fmt.Errorf("%s: input is %s; every rank is given the whole batch", v.Name, v.Type))
		}
		for _, v := range n.Args {
			if v.Def.Op.Name == "param" && (n.Op.To == graph.Sharded || n.Op.Class == graph.Collective) {
				errs = append(errs, fmt.Errorf("%s: %s gives %s a second placement; a parameter has one for all its uses: declare it as it is used", n.Name(), n.Op.Name, v.Name))
			}
		}
		for _, p := range n.Op.States {
			old, next := n.Args[p.Operand].Type, n.Results[p.Result].Type
			if !old.Equal(next) {
				errs = append(errs, fmt.Errorf("%s: %s: the state lies as %s and its successor as %s; it must stay where it is", n.Name(), n.Op.Name, old, next))
			}
		}
	}
	return errors.Join(errs...)
}

// borderOf is how tokens lie in what passes from one block of a graph to another: as in
// the first of it in which they are split.
func borderOf(g *graph.Graph) graph.PlaceKind {
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			if v.Def.Block() != n.Block() && v.Type.Layout.ByBatch() {
				return v.Type.Layout.Place[0].Kind
			}
		}
	}
	return graph.Whole
}

// transparent reports whether a node passes its operands on as they are, but
// for where they lie and how they travel.
func transparent(n *graph.Node) bool {
	return n.Op.Class == graph.Collective || n.Op.Class == graph.Relayout || rounds(n)
}

// rounds reports whether a node changes the number format for transport.
func rounds(n *graph.Node) bool { return n.Op.Name == "quantize" || n.Op.Name == "dequantize" }

// reduces reports whether a node adds up partial sums.
func reduces(n *graph.Node) bool { return n.Op.Class == graph.Collective && n.Op.From == graph.Partial }
