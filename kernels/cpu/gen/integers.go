package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// integers generates integer products of weights in blocks with activations in 8 bits: what rounds
// activations; for one token, what multiplies 8 rows; for several, what unpacks 8 rows of weights
// into a panel, and what multiplies two panels.
//
// The sum of a block's products is a whole number, in any order, and so is that of its least
// numbers with the sums of activations: parts of a block have whole scales. Both go to f32 and are
// multiplied with the block's scales; products of blocks are added in order.
func integers(c *build.Context) {
	g := &integerGenerator{vec: newVec(c, avx2)}
	g.masks = map[uint8]Mem{}
	g.round(32)
	g.round(256)
	for _, k := range codeKinds {
		for tokens := 1; tokens <= k.tokens; tokens++ {
			g.dot(k, tokens)
		}
	}
	g.unpacks()
	g.singles()
}

// codeKind is how codes in panels are multiplied.
//
// A panel has for each 32 elements the codes of 8 rows, 4 of each row in a vector, and in blocks of
// 256 the scale of each part, in both words of a lane. At the end of a block of 256 are words of
// numbers for each two parts: least numbers, or the scales again; then in f32 the scales of blocks
// and those of least numbers. Codes of at most 6 bits are unsigned; codes of 8 bits are signed and
// have no least numbers.
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

// panelPart is the size of the codes of 32 elements in a panel.
const panelPart = 256

// stride is the size of 32 elements in a panel, with the scales of their parts.
func (k *codeKind) stride() int {
	if !k.super() {
		return panelPart
	}
	return panelPart + 32*32/k.part
}

// scaleOf is where in a panel's block the scales of a part are, of blocks of 256.
func (k *codeKind) scaleOf(part int) int {
	each := 32 / k.part
	return part/each*k.stride() + panelPart + 32*(part%each)
}

// pairs is where in a panel's block the words for each two parts begin, and what is before them.
func (k *codeKind) pairs() int { return k.elems / 32 * k.stride() }

// scale is where in a panel's block its scales are.
func (k *codeKind) scale() int {
	if !k.super() || k.signed {
		return k.pairs()
	}
	return k.pairs() + k.elems/k.part*16
}

func (k *codeKind) bytes() int {
	if k.signed || k.offset > 0 {
		return k.scale() + 32
	}
	return k.scale() + 64
}

// integerGenerator is of one function at a time.
type integerGenerator struct {
	*vec
	masks map[uint8]Mem

	to, from, ws, ws3, upper, blocks reg.Register // upper is the fifth row of weights
	ahead, upperAhead                reg.Register // what is fetched for the next panel
}

// mask is a byte in each of a vector, in memory.
func (g *integerGenerator) mask(b uint8) Mem {
	if _, ok := g.masks[b]; !ok {
		g.masks[b] = g.static(fmt.Sprintf("integerBytes%02x", b), U8(b))
	}
	return g.masks[b]
}

// ones are words.
func (g *integerGenerator) ones() Mem {
	return g.data(constant{1, 16}, "integerOnes", func(i int) (Constant, bool) { return U16(1), i < 16 })
}
