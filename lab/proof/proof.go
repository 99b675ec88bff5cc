// Package proof compiles a graph for ranks and proves the result, by rules and by execution.
package proof

import (
	"context"
	"fmt"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
)

// Of compiles a model's graph for the ranks of a sharding, and proves the partitioned graph in two
// ways: by the rules, with the fewest collectives (package prove), and by running it beside the
// model (package validate), whose report is the certificate's Execution. It returns the partitioned
// graph, too, for drawings.
func Of(ctx context.Context, g *graph.Graph, s passes.Sharding, o validate.Options) (*prove.Certificate, *graph.Graph, error) {
	p, err := s.Options()
	if err != nil {
		return nil, nil, err
	}
	p.Stop = graph.UnpackedStage
	source, err := passes.Compile(g, p)
	if err != nil {
		return nil, nil, err
	}
	p.Stop = graph.PartitionedStage
	sharded, err := passes.Compile(source, p)
	if err != nil {
		return nil, nil, err
	}
	c, err := prove.Prove(source, sharded, prove.Options{})
	if err != nil {
		return nil, nil, err
	}
	model, err := passes.Compile(g, passes.Options{Stop: graph.ModelStage})
	if err != nil {
		return nil, nil, err
	}
	if c.Execution, err = validate.Run(ctx, model, sharded, o); err != nil {
		return nil, nil, fmt.Errorf("the graph passes the rules but does not compute what the model does: %w", err)
	}
	return c, sharded, nil
}
