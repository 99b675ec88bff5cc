package traffic

import (
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/workload"
)

// quick is a clock on which a server is busy for about a tenth of a day.
type quick struct{ round }

func (quick) Step(z graph.Sizes) (float64, error) { return 0.005 + 0.00001*float64(z.Tokens), nil }

// BenchmarkDay is a day of 10,000 requests of chats, on a server with a prefix cache.
func BenchmarkDay(b *testing.B) {
	trace, err := workload.Make(workload.Options{Kind: "chat", Sessions: 2050, Seed: 1, Rate: 0.024, Pause: -1})
	if err != nil {
		b.Fatal(err)
	}
	x := one(16, 527)
	x.Clock = quick{}
	hybrid(&x)
	x.Model.Grain, x.Capacity = 64, 5000
	b.ReportMetric(float64(len(trace)), "requests")
	for b.Loop() {
		if _, err := Run(b.Context(), Options{Trace: trace, Decode: x}); err != nil {
			b.Fatal(err)
		}
	}
}
