//go:build !amd64

package cpu

// rounders are what rounds activations, by instruction set.
func rounders() map[string]func(to []byte, x []float32, elems int) {
	return map[string]func(to []byte, x []float32, elems int){plain: roundPlain}
}
