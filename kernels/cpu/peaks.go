//go:build amd64 || arm64

package cpu

// Sizes of a turn, as the generators in gen have them.
const (
	peakLoads = 8
	peakSums  = 12
)

// peakOf is the peak of an instruction set with a number of elements in a vector.
func peakOf(isa string, lanes int, read func(*byte, int), multiply func(int)) Peak {
	turn := peakLoads * 4 * lanes
	return Peak{isa, func(data []byte) { readWhole(read, data, turn) }, turn, multiply, 2 * peakSums * lanes}
}

// readWhole reads the turns of data that are whole.
func readWhole(read func(*byte, int), data []byte, turn int) {
	if n := len(data) / turn * turn; n > 0 {
		read(&data[0], n)
	}
}
