package workload_test

import (
	"fmt"
	"log"

	"github.com/krait-ml/krait/lab/workload"
	"github.com/krait-ml/krait/session/prefix"
)

// A trace of conversations, and how many of its tokens a prefix cache would have.
func Example() {
	trace, err := workload.Make(workload.Options{Kind: "chat", Sessions: 20, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	model := prefix.Model{FLOPsPerToken: 1e9, CacheBytes: 1000, StateBytes: 1 << 20}
	r, err := prefix.Replay("lru", model, 1<<30, trace)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d requests, %.0f %% of their tokens found\n", len(trace), 100*float64(r.HitTokens)/float64(r.InputTokens))
	// Output:
	// 100 requests, 94 % of their tokens found
}
