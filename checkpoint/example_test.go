package checkpoint_test

import (
	"fmt"
	"log"

	"github.com/krait-ml/krait/checkpoint"
)

// A folder is a graph, and weights that stay in its files.
func Example() {
	c, err := checkpoint.Open("../testdata/golden/mamba-a")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.Model.Family, c.Model.Vocab, "tokens,", c.Model.Layers, "layers,", len(c.Graph.Leaves("param")), "parameters")
	w, err := c.Tensor("backbone.norm_f.weight")
	fmt.Println(w.DType, w.Shape, err)
	// Output:
	// mamba 256 tokens, 3 layers, 32 parameters
	// f32 [64] <nil>
}
