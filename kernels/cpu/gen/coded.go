package main

// coded is a format of GGUF with blocks of 32 codes, and a scale in f16 before them. It says at
// which bytes of a block things are, 0: nowhere.
type coded struct {
	name                     string
	codes, size, high, least int     // high are the fifth bits of codes
	offset                   float32 // that codes are without
	levels                   bool    // codes stand for those of IQ4_NL
}

var (
	q4x0  = coded{name: "Q4x0", codes: 2, size: 18, offset: 8}
	q4x1  = coded{name: "Q4x1", codes: 4, size: 20, least: 2}
	q5x0  = coded{name: "Q5x0", codes: 6, size: 22, high: 2, offset: 16}
	q5x1  = coded{name: "Q5x1", codes: 8, size: 24, high: 4, least: 2}
	iq4nl = coded{name: "IQ4NL", codes: 2, size: 18, levels: true}

	codedBlocks = []coded{q4x0, q4x1, q5x0, q5x1, iq4nl}
)
