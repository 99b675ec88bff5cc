package cpu_test

import (
	"context"
	"fmt"
	"log"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/cpu"
)

// The embedded model on two ranks, whose kernels two goroutines run.
func Example() {
	d := &cpu.Device{Workers: 2}
	m, err := krait.Embedded(krait.Options{Device: d, Sharding: krait.Sharding{Ranks: 2}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	out, err := m.Generate(context.Background(), "In the beginning", krait.Generate{MaxTokens: 12})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", out.Text)
	// Output:
	// " of the chil"
}
