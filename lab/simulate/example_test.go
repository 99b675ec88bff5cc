package simulate_test

import (
	"fmt"
	"log"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/passes"
)

// The time of a model on GPUs that need not be present.
func Example() {
	_, g, err := checkpoint.Describe("../../testdata/golden/mamba2-g1")
	if err != nil {
		log.Fatal(err)
	}
	hardware, err := cost.Find("h100-nvlink")
	if err != nil {
		log.Fatal(err)
	}
	device := &virtual.Device{Profile: hardware}
	m, err := simulate.Compile(g, passes.Options{Ranks: 2}, device)
	if err != nil {
		log.Fatal(err)
	}
	r, err := m.Run(simulate.Workload{Batch: 1, Prompt: 512, Output: 64})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.TTFT > 0, r.TPOT > 0, r.Memory[0].Weights, "bytes of weights on rank 0")
	// Output:
	// true true 248528 bytes of weights on rank 0
}
