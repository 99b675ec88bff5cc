package cuda

import (
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// BenchmarkProgram is the host's work for a batch of sizes that were not seen before,
// per launch.
func BenchmarkProgram(b *testing.B) {
	c, err := checkpoint.Open("../../testdata/golden/mamba-b")
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	g, err := passes.Compile(c.Graph, passes.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := lowering.Lower(g)
	if err != nil {
		b.Fatal(err)
	}
	m, err := (&Device{Driver: sim.New(sim.Options{})}).Open(s, comm.Local(1), exec.Setup{Tensor: c.Tensor, Slots: 8})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	on := m.(*machine).gpus[0]
	launches := 0
	for n := int64(0); b.Loop(); n++ {
		key := programKey{z: graph.Sizes{Tokens: 100 + n%100, Seqs: 1, Rows: 1 + n/100%100}}
		err := on.do(func() error {
			list, err := on.programs(key)
			if err == nil {
				launches += len(list[0].actions)
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(launches), "ns/launch")
}
