package validate

import (
	"context"
	"fmt"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Check runs each distinct block of a graph and of its partitioned form, and returns an error if
// they differ or cannot be executed. It fits Sharding.Validate of package passes.
func Check(source, partitioned *graph.Graph) error {
	report, err := Run(context.Background(), source, partitioned, Options{})
	if err != nil {
		return fmt.Errorf("it does not compute what the model does: %w", err)
	}
	for _, p := range report.Parts {
		if p.Skipped != "" {
			return fmt.Errorf("validate: %s is not executed: %s; leave validation out, or use krait prove", strings.Join(p.Blocks, ", "), p.Skipped)
		}
	}
	return nil
}
