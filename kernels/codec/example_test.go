package codec_test

import (
	"fmt"
	"log"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/codec"
)

// A row goes through int8 in blocks of 32 and comes back within the bound that its largest
// magnitude gives.
func Example() {
	c, _, err := graph.NewCodec("int8/32")
	if err != nil {
		log.Fatal(err)
	}
	row := []float32{0.5, -1.25, 3, 0}
	codec.Round(c, row)
	fmt.Println(row)
	fmt.Printf("off by at most %.4f\n", codec.Bound(c, 3))
	// Output:
	// [0.49731445 -1.255127 3.0075684 0]
	// off by at most 0.0119
}
