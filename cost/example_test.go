package cost_test

import (
	"fmt"
	"log"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/graph"
)

// How long a sum over ranks takes by the link of a profile.
func Example() {
	fmt.Println(cost.Names())
	p, err := cost.Find("h100-nvlink")
	if err != nil {
		log.Fatal(err)
	}
	reduce, _ := graph.Lookup("all_reduce")
	best := p.Link.Best(cost.ExchangeOf(reduce, 8, 1<<20, 2*7./8*(1<<20))) // 1 MiB, sent by a ring; above the size up to which kernels have it
	fmt.Printf("%.0f µs by %s\n", best.Seconds()*1e6, best.Algorithm.Name)
	// Output:
	// [a100-efa a100-hdr a100-nvlink a6000-25gbe a6000-pcie h100-ndr h100-nvlink h200-ndr h200-nvlink]
	// 11 µs by tree
}
