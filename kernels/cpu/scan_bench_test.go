package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkScan is 1536 channels of 16 states, by one goroutine.
func BenchmarkScan(b *testing.B) {
	const channels, n = 1536, 16
	for _, tokens := range []int{1, 64} {
		for _, isa := range ISAs() {
			set, err := ForISA(isa)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%d/%s", tokens, isa), func(b *testing.B) {
				c := newScan(rand.New(rand.NewPCG(1, 1)), channels, n, 1, tokens)
				k := set["selective_scan"]
				for b.Loop() {
					k.Run(c.Call, 0, k.Units(c.Call))
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N*tokens*channels), "ns/channel")
			})
		}
	}
}
