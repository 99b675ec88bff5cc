package validate

import (
	"fmt"
	"strings"
)

// Report is what was run, and how close the two graphs were.
type Report struct {
	Seed      uint64 `json:"seed"`
	Tokens    int    `json:"tokens"`
	Sequences int    `json:"sequences"`
	Parts     []Part `json:"parts"`
	// Weights is how many weights of a row of a wide matrix are random numbers, in most rows; the
	// others are zeros. 0: no matrix was that wide.
	Weights    int   `json:"weights,omitempty"`
	Multiplied int64 `json:"multiplied"` // how many numbers products by weights multiplied
}

// Part is a block, or what is outside of blocks.
type Part struct {
	Blocks     []string `json:"blocks,omitempty"`   // that are equal, of which the first was run; none: outside of blocks
	Values     int      `json:"values"`             // how many values were compared
	Difference float64  `json:"difference"`         // the largest, over the largest magnitude of that value in the source
	Worst      string   `json:"worst,omitempty"`    // the value that has it
	Rounded    float64  `json:"rounded,omitempty"`  // with payloads rounded as the graph says, the same for values that leave the part; 0: nothing is lost
	Overflow   string   `json:"overflow,omitempty"` // the first value that left the range of its payload's format when rounded
	Skipped    string   `json:"skipped,omitempty"`  // why the part was not run; empty: it was

	sparse bool // some weights of wide matrices were zeros
}

// where names the part.
func (p Part) where() string {
	switch {
	case len(p.Blocks) == 0 || p.Blocks[0] == "":
		return "outside of blocks"
	case len(p.Blocks) == 1:
		return p.Blocks[0]
	}
	return fmt.Sprintf("%s and %d like it", p.Blocks[0], len(p.Blocks)-1)
}

// String is the report in a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "executed in float64 on random numbers (seed %d), %d tokens in %d sequences:\n", r.Seed, r.Tokens, r.Sequences)
	if r.Weights > 0 {
		fmt.Fprintf(&b, "  at the model's dimensions; most rows of wide matrices have %d weights, the others are zeros\n", r.Weights)
	}
	for _, p := range r.Parts {
		fmt.Fprintf(&b, "  %s: ", p.where())
		if p.Skipped != "" {
			fmt.Fprintf(&b, "not executed: %s\n", p.Skipped)
			continue
		}
		fmt.Fprintf(&b, "%d values, off by at most %.1e", p.Values, p.Difference)
		if p.Rounded > 0 {
			fmt.Fprintf(&b, "; by %.1e with payloads rounded", p.Rounded)
		}
		if p.Overflow != "" {
			fmt.Fprintf(&b, "; rounded, %s leaves the range of its format", p.Overflow)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
