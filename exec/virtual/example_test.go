package virtual_test

import (
	"context"
	"fmt"
	"log"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// The schedules of two ranks run on hardware that is not there.
func Example() {
	_, g, err := checkpoint.Describe("../../testdata/golden/mamba2-g1")
	if err != nil {
		log.Fatal(err)
	}
	if g, err = passes.Compile(g, passes.Options{Ranks: 2}); err != nil {
		log.Fatal(err)
	}
	schedules, err := lowering.Lower(g)
	if err != nil {
		log.Fatal(err)
	}
	hardware, err := cost.Find("h100-nvlink")
	if err != nil {
		log.Fatal(err)
	}
	e, err := exec.New(schedules, nil, exec.Options{Device: &virtual.Device{Profile: hardware}})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	slot, err := e.Alloc()
	if err != nil {
		log.Fatal(err)
	}
	_, err = e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: make([]int, 512)}}})
	fmt.Println(err)
	// Output:
	// <nil>
}
