package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// integers generates integer products of weights in blocks with activations in 8 bits: what rounds
// activations; for one token, what multiplies 8 rows; for several, what unpacks as many rows of
// weights as a vector has lanes into a panel, and what multiplies two panels.
//
// The sum of a block's products is a whole number, in any order, and so is that of its least
// numbers with the sums of activations: parts of a block have whole scales. Both go to f32 and are
// multiplied with the block's scales; products of blocks are added in order. So all instruction
// sets have the same bits.
func integers(c *build.Context) {
	g := &integerGenerator{vec: newVec(c, avx2)}
	g.round(32)
	g.round(256)
	g.panels(codeKinds)
	g.singles()
	g = &integerGenerator{vec: newVec(c, vnni)}
	g.panels(unsignedKinds)
}

// panels generates what unpacks and multiplies panels.
func (g *integerGenerator) panels(kinds []codeKind) {
	for _, k := range kinds {
		for tokens := 1; tokens <= k.tokens; tokens++ {
			if g.wide() && tokens > 2 && tokens < k.tokens {
				continue // twos are nearly as good, and code is large
			}
			g.dot(k, tokens)
		}
	}
	g.unpacks()
}

// codeKind is how codes in panels are multiplied.
//
// A panel has for each part the codes of its rows, 4 of each row in a vector, and in blocks of 256
// the scales of the part, with AVX2 in both words of a lane. At the end of a block of 256 are words
// of numbers for each two parts: least numbers, or the scales again; then in f32 the scales of
// blocks and those of least numbers. Codes of at most 6 bits are unsigned; codes of 8 bits are
// signed, unless by VNNI, and have no least numbers.
type codeKind struct {
	name   string
	elems  int // of a block
	part   int // elements with a scale of their own
	group  int // vectors of codes whose products fit 16 bits together
	signed bool
	offset int // shift of the number that codes are above the elements' own, by whole scales
	tokens int // that registers suffice for
}

var (
	fours       = codeKind{name: "Fours", elems: 32, part: 32, group: 8, tokens: 3}
	fives       = codeKind{name: "Fives", elems: 32, part: 32, group: 4, tokens: 2}
	eights      = codeKind{name: "Eights", elems: 32, part: 32, group: 1, signed: true, tokens: 2}
	superFours  = codeKind{name: "SuperFours", elems: 256, part: 32, group: 8, tokens: 3}
	superFives  = codeKind{name: "SuperFives", elems: 256, part: 32, group: 4, tokens: 3}
	superSixes  = codeKind{name: "SuperSixes", elems: 256, part: 16, group: 2, offset: 5, tokens: 3}
	superEights = codeKind{name: "SuperEights", elems: 256, part: 32, group: 1, signed: true, tokens: 2}

	codeKinds = []codeKind{fours, fives, eights, superFours, superFives, superSixes, superEights}
)

func (k *codeKind) super() bool { return k.elems > 32 }

// partBytes is the size of a part in a panel, in blocks of 256 with its scales.
func (g *integerGenerator) partBytes(k codeKind) int {
	if !k.super() {
		return g.codeBytes(k)
	}
	return g.codeBytes(k) + g.bytes()
}

// codeBytes is the size of the codes of a part in a panel.
func (g *integerGenerator) codeBytes(k codeKind) int { return g.bytes() * k.part / 4 }

// pairsAt is where in a panel's block the words for each two parts begin, and what is before them.
func (g *integerGenerator) pairsAt(k codeKind) int { return k.elems / k.part * g.partBytes(k) }

// scaleAt is where in a panel's block its scales are.
func (g *integerGenerator) scaleAt(k codeKind) int {
	if !k.super() || k.signed {
		return g.pairsAt(k)
	}
	return g.pairsAt(k) + k.elems/k.part*g.bytes()/2
}

// blockBytes is the size of a block in a panel.
func (g *integerGenerator) blockBytes(k codeKind) int {
	if k.signed || k.offset > 0 {
		return g.scaleAt(k) + g.bytes()
	}
	return g.scaleAt(k) + 2*g.bytes()
}

// integerGenerator is of one function at a time.
type integerGenerator struct {
	*vec

	to, ws, ws3, blocks, ahead reg.Register
	from                       []reg.Register // each fourth row of weights
}

// mask is a byte in each of a vector: in memory, or broadcast from there.
func (g *integerGenerator) mask(b uint8) Op {
	m := g.data(constant{uint64(b), 1}, fmt.Sprintf("integerBytes%02x", b), func(i int) (Constant, bool) { return U8(b), i < 32 })
	if g.wide() {
		return g.repeated(m)
	}
	return m
}

// repeated is a vector of what 32 bytes of memory have, in each half of a wide one.
func (g *integerGenerator) repeated(m Mem) vector {
	v := g.new()
	if g.wide() {
		g.VBROADCASTI64X4(m, v)
	} else {
		g.VMOVDQU(m, v)
	}
	return v
}

func (g *integerGenerator) and(a Op, b, out vector) {
	if g.wide() {
		g.VPANDD(a, b, out)
	} else {
		g.VPAND(a, b, out)
	}
}

func (g *integerGenerator) or(a Op, b, out vector) {
	if g.wide() {
		g.VPORD(a, b, out)
	} else {
		g.VPOR(a, b, out)
	}
}

// ones are words.
func (g *integerGenerator) ones() Mem {
	return g.data(constant{1, 16}, "integerOnes", func(i int) (Constant, bool) { return U16(1), i < 16 })
}
