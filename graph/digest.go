package graph

import (
	"crypto/sha256"
	"hash"
	"io"
	"strings"
)

// Digest returns a SHA-256 of the graph's text without the names of its outputs: two models with
// the same shapes, formats and operations have the same. A caller can add weights to it.
func Digest(g *Graph) hash.Hash {
	sum := sha256.New()
	for line := range strings.Lines(Print(g)) {
		if !strings.HasPrefix(line, "output ") {
			io.WriteString(sum, line)
		}
	}
	return sum
}
