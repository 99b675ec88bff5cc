package exec

import (
	"context"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Choice is how a token is chosen from a row of logits: Temperature 0 takes the
// most probable; TopK 0 and TopP 0 or 1 keep all. Uniform is a random number of
// [0, 1).
type Choice struct {
	Temperature, TopP, Uniform float64
	TopK                       int
}

// Chooser is a machine that chooses tokens where the logits are, so that these
// need not travel.
type Chooser interface {
	// Choose runs a batch like Step and chooses a token for each row of output i,
	// which is not copied to the host.
	Choose(ctx context.Context, w *Work, output int, choices []Choice) ([]int32, error)
}

// withoutChoice leaves out what only serves the output of chosen tokens, until a batch
// can say which outputs it wants.
func withoutChoice(schedules []*lowering.Schedule) ([]*lowering.Schedule, error) {
	var out []*lowering.Schedule
	for _, s := range schedules {
		var names []string
		for _, o := range s.Outputs {
			if o.Name != graph.ChosenOutput {
				names = append(names, o.Name)
			}
		}
		if len(names) == 0 { // a graph of choose alone
			names = []string{graph.ChosenOutput}
		}
		only, err := s.Only(names...)
		if err != nil {
			return nil, err
		}
		out = append(out, only)
	}
	return out, nil
}

// Chooses reports whether the engine's device can choose tokens: [Batch.Choose].
func (e *Engine) Chooses() bool {
	_, ok := e.machine.(Chooser)
	return ok && e.verify == nil
}

// run runs a batch that was admitted, and lets who wants to look at its results.
func (e *Engine) run(ctx context.Context, b *Batch) (Results, error) {
	out := Results{outputs: e.schedules[0].Outputs} // all ranks have the same
	var err error
	if b.Choose != nil {
		out.Tokens, err = e.machine.(Chooser).Choose(ctx, &e.work, e.logits(), b.Choose)
		return out, err
	}
	if out.tensors, err = e.machine.Step(ctx, &e.work); err == nil && e.intact != nil {
		err = e.intact()
	}
	if err == nil && e.verify != nil {
		err = e.verify(out)
	}
	return out, err
}

// logits is the output that tokens are chosen from, -1 where there is none.
func (e *Engine) logits() int {
	return slices.IndexFunc(e.schedules[0].Outputs, func(o lowering.Output) bool { return o.Name == "logits" })
}

// admitChoices checks that there is a choice per row, and a device that chooses.
func (e *Engine) admitChoices(b *Batch, rows int64) error {
	switch {
	case b.Choose == nil:
		return nil
	case !e.Chooses():
		return fmt.Errorf("this device does not choose tokens, or its results are verified; take the logits of the results")
	case e.logits() < 0:
		return fmt.Errorf("the graph has no output logits to choose from")
	case int64(len(b.Choose)) != rows:
		return fmt.Errorf("%d choices for %d wanted rows", len(b.Choose), rows)
	}
	return nil
}
