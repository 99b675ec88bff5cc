package devices_test

import (
	"context"
	"fmt"
	"log"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/devices"
)

// The embedded model runs on two ranks of a simulated GPU.
func Example() {
	d, err := devices.Open("cuda-sim", devices.Options{})
	if err != nil {
		log.Fatal(err)
	}
	m, err := krait.Embedded(krait.Options{Device: d, Sharding: krait.Sharding{Ranks: 2}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	out, err := m.Generate(context.Background(), "In the", krait.Generate{MaxTokens: 4})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", out.Text)
}
