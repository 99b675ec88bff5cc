package cuda

import (
	"encoding/binary"
	"math"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{"choose": {plan: choose}})

// choose takes a block per row. Which tokens top-k keeps, and a token that is not
// drawn, are exact. Weights of tokens are whole multiples of 2^-40 of the best one's
// and exact to 2^-20 of it, so that top-p, and where one token's range of random
// numbers ends, are exact to as much for each token before.
func choose(c *Call) error {
	logits, choice, seen, ids := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0]
	c.launch("sampling", "choose", [3]int{logits.Rows(), 1, 1}, [3]int{1024}, 0,
		ids.Ptr, logits.Ptr, logits.stride(), logits.Cols, choice.Ptr, choice.stride(), seen.Ptr, seen.stride())
	return nil
}

// What a kernel that chooses tokens gives instead of one.
const (
	BrokenLogits = graph.BrokenLogits
	NoToken      = graph.NoToken
)

// Choice is a choice as the device chooses apart from the graph.
type Choice struct {
	Temperature, TopP, Uniform float64
	TopK                       int32
}

// ChoiceBytes is the size of a Choice in device memory.
const ChoiceBytes = 24

// Append appends the Choice as it is in device memory.
func (c Choice) Append(b []byte) []byte {
	var row [ChoiceBytes / 4]float32
	kernels.Choice{Temperature: c.Temperature, TopP: c.TopP, Uniform: c.Uniform, TopK: int(c.TopK)}.Put(row[:])
	for _, v := range row {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// Sample puts a token of each row to ids, i32[rows], drawn as choices say, of
// which there is one per row.
func Sample(ids uint64, logits Tensor, choices uint64) []Launch {
	var c Call
	c.launch("sampling", "choose", [3]int{logits.Rows(), 1, 1}, [3]int{1024}, 0,
		ids, logits.Ptr, logits.stride(), logits.Cols, choices, int64(ChoiceBytes/4), uint64(0), int64(0))
	return c.launches
}
