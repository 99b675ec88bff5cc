package exec_test

import (
	"context"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// stepper is an engine with the results of its last step.
type stepper struct {
	*exec.Engine
	exec.Results
}

// newStepper is exec.New for a test.
func newStepper(t interface{ Fatal(...any) }, s []*lowering.Schedule, tensor func(string) (graph.Array, error), o exec.Options) *stepper {
	e, err := exec.New(s, tensor, o)
	if err != nil {
		t.Fatal(err)
	}
	return &stepper{Engine: e}
}

func (s *stepper) Step(ctx context.Context, b *exec.Batch) (err error) {
	s.Results, err = s.Engine.Step(ctx, b)
	return err
}
