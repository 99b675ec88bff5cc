package simulate

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
)

// Auto returns a [passes.Sharding.Choose]: it takes the strategy by which the workload, prompts and
// output together, takes least time on the hardware: a name of [cost.Names], local, or a file. The
// zero workload is a prompt of 512 tokens and 64 of output. Progress gets the number of strategies
// simulated; it may be nil.
func Auto(hardware string, w Workload, progress func(done, all int)) func(*graph.Graph, passes.Options, string) (string, error) {
	if w == (Workload{}) {
		w = usual
	}
	return func(g *graph.Graph, o passes.Options, phase string) (string, error) {
		if hardware == "" {
			return "", fmt.Errorf("strategy %s needs a hardware profile (--hw): %s, or %s after krait calibrate", passes.Auto, strings.Join(cost.Names(), ", "), cost.Local)
		}
		p, err := cost.Find(hardware)
		if err != nil || o.Ranks <= 1 {
			return "", err
		}
		c, err := Choose(g, o, &virtual.Device{Profile: p}, w, progress)
		if err != nil {
			return "", err
		}
		return c.Of(phase), nil
	}
}

// Comparison is the plan and the times of one strategy for a model.
type Comparison struct {
	Strategy *passes.Strategy
	Model    *Model // nil: the strategy does not apply
	Err      error  // why it does not
}

// Compare plans a graph by every strategy of package passes, with the ranks and payloads of s. The
// best one depends on the batch and the hardware. Progress gets the number of strategies planned;
// it may be nil.
func Compare(g *graph.Graph, s passes.Sharding, d *virtual.Device, progress func(done, all int)) []Comparison {
	var out []Comparison
	for i, strategy := range passes.Strategies {
		if progress != nil {
			progress(i, len(passes.Strategies))
		}
		s.Strategy, s.Place = strategy.Name, ""
		c := Comparison{Strategy: strategy}
		o, err := s.Options()
		if c.Err = err; err == nil {
			c.Model, c.Err = Compile(g, o, d)
		}
		out = append(out, c)
	}
	return out
}
