//go:build amd64 || arm64

package spin

// pause tells the processor that it is in a loop that waits: the other thread of the
// core gets more of it, and leaving the loop is not mispredicted.
func pause()
