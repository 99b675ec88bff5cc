package prefix_test

import (
	"bytes"
	"testing"

	"github.com/krait-ml/krait/lab/workload"
	"github.com/krait-ml/krait/session/prefix"
)

// BenchmarkReplay reads and replays 10,000 requests with more than 50 million tokens, as
// runs and one by one: documents that come back among prompts that do not.
func BenchmarkReplay(b *testing.B) {
	m := prefix.Model{FLOPsPerToken: 14e9, FLOPsPerTokenSquared: 65536, CacheBytes: 64 << 10, StateBytes: 50 << 20}
	for name, vocab := range map[string]int{"runs": 0, "literal": 100_000} {
		trace, err := workload.Make(workload.Options{Kind: "docs", Sessions: 10_000, Seed: 1, Vocab: vocab})
		if err != nil {
			b.Fatal(err)
		}
		var text bytes.Buffer
		if err := prefix.WriteTrace(&text, trace); err != nil {
			b.Fatal(err)
		}
		for _, policy := range []string{"blocks32", "lru", "tuned", "reuse"} {
			b.Run(name+"/"+policy, func(b *testing.B) {
				for b.Loop() {
					trace, err := prefix.ReadTrace(bytes.NewReader(text.Bytes()))
					if err != nil {
						b.Fatal(err)
					}
					r, err := prefix.Replay(policy, m, 32<<30, trace)
					if err != nil || r.Evictions == 0 {
						b.Fatal(r, err)
					}
					b.ReportMetric(float64(r.InputTokens)/1e6, "Mtokens")
				}
			})
		}
	}
}
