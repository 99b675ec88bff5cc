// Gpu runs a model on a GPU, or on the simulated device without one.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/devices"
)

func main() {
	device, err := devices.Open("cuda", devices.Options{})
	if err != nil {
		fmt.Println("no GPU: a simulated one it is")
		if device, err = devices.Open("cuda-sim", devices.Options{}); err != nil {
			log.Fatal(err)
		}
	}
	m, err := krait.Embedded(krait.Options{Device: device, Sharding: krait.Sharding{Ranks: 2}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	out, err := m.Generate(context.Background(), "In the beginning", krait.Generate{MaxTokens: 7})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d ranks:%s\n", m.Ranks(), out.Text)
}
