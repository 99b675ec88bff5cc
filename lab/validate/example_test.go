package validate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/passes"
)

// A model and what it becomes on three ranks give the same values.
func Example() {
	_, source, err := checkpoint.Describe("../../testdata/golden/mamba2-g1")
	if err != nil {
		log.Fatal(err)
	}
	partition, err := passes.Compile(source, passes.Options{Ranks: 3, Stop: graph.PartitionedStage})
	if err != nil {
		log.Fatal(err)
	}
	report, err := validate.Run(context.Background(), source, partition, validate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(report.Parts) > 0)
	// Output:
	// true
}
