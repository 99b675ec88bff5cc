package cpu

import "slices"

// rounders are what rounds activations, by instruction set.
func rounders() map[string]func(to []byte, x []float32, elems int) {
	all := map[string]func(to []byte, x []float32, elems int){plain: roundPlain}
	if slices.Contains(ISAs(), "avx2") {
		all["avx2"] = roundAVX2
	}
	return all
}
