package cuda

import (
	"encoding/binary"
	"math"
)

// What a kernel that chooses tokens gives instead of one.
const (
	BrokenLogits = -1 // a logit is NaN or +Inf
	NoToken      = -2 // all logits are -Inf
)

// Argmax puts the first of the highest logits of each row to ids, i32[rows].
func Argmax(ids uint64, logits Tensor) []Launch {
	var c Call
	c.launch("sampling", "argmax", [3]int{logits.Rows(), 1, 1}, [3]int{1024}, 0, ids, logits.Ptr, logits.stride(), logits.Cols)
	return c.launches
}

// Choice is how the token of a row is chosen: temperature 0 takes the best, top-k
// 0 and top-p 0 or 1 keep all. Uniform is a random number of [0, 1).
type Choice struct {
	Temperature, TopP, Uniform float64
	TopK                       int32
}

// ChoiceBytes is the size of a Choice in device memory.
const ChoiceBytes = 32

// Append appends the Choice as it is in device memory.
func (c Choice) Append(b []byte) []byte {
	for _, v := range []float64{c.Temperature, c.TopP, c.Uniform} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return binary.LittleEndian.AppendUint64(b, uint64(uint32(c.TopK)))
}

// Sample puts a token of each row to ids, i32[rows], drawn as choices say, of
// which there is one per row. The steps, and which tokens stay at ties, are those
// of Krait's sampler on the host; probabilities are exact to 2^-20 of the best.
func Sample(ids uint64, logits Tensor, choices uint64) []Launch {
	var c Call
	c.launch("sampling", "sample", [3]int{logits.Rows(), 1, 1}, [3]int{1024}, 0, ids, logits.Ptr, logits.stride(), logits.Cols, choices)
	return c.launches
}
