package sim_test

import (
	"context"
	"log"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
)

// A simulated machine that reports work which shares memory and has no order.
func Example() {
	d := &cuda.Device{Driver: sim.New(sim.Options{Ordered: true})}
	m, err := krait.Embedded(krait.Options{Device: d, Sharding: krait.Sharding{Ranks: 2}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Generate(context.Background(), "In the", krait.Generate{MaxTokens: 4}); err != nil {
		log.Fatal(err)
	}
}
