package main

import . "github.com/mmcloughlin/avo/operand"

// vnni is AVX-512 with VPDPBUSD, which adds to each lane four products of bytes without a sign with
// bytes that have one.
var vnni = isa{"VNNI", 16, 6}

// Codes are without a sign there: 128 is added to those that have one. In blocks of 256 that is an
// offset; in those of 32 sums begin at -128 times the sum of the activations' numbers.
var (
	unsignedCodes = codeKind{name: "Codes", elems: 32, part: 32, tokens: 6}
	superCodes    = codeKind{name: "SuperCodes", elems: 256, part: 32, tokens: 6}
	superLevels   = codeKind{name: "SuperLevels", elems: 256, part: 32, offset: 7, tokens: 6}

	unsignedKinds = []codeKind{unsignedCodes, ofVNNI(eights), superCodes, ofVNNI(superSixes), superLevels}
)

func ofVNNI(k codeKind) codeKind {
	k.tokens = vnni.tokens
	return k
}

// unsigned does for VNNI what sums does. Sums of blocks of 32 are above the bits of 3·2²², so that
// as f32 they are 3·2²² and the sum: both are exact.
func (g *dotGenerator) unsigned(sums [][2]vector) {
	const each = 2 // vectors in a turn
	parts, turns := make([][2]vector, g.tokens), g.k.part/4/each
	g.begin(parts)
	left := g.GP64()
	if turns > 1 {
		g.MOVQ(U32(uint32(turns)), left)
		g.Label("turn")
	}
	for at := range each {
		g.unsignedProducts(parts, at)
	}
	g.advance(each*g.bytes(), 4*each)
	if turns > 1 {
		g.DECQ(left)
		g.JNZ(LabelRef("turn"))
	}
	if !g.k.super() {
		copy(sums, parts)
		return
	}
	g.each(func(t, r int) {
		g.VPMULLD(g.in(r, 0), parts[t][r], parts[t][r])
		g.VPADDD(parts[t][r], sums[t][r], sums[t][r])
	})
	g.ADDQ(U8(uint8(g.bytes())), g.panel)
}

// begin sets the sums of a part to what they begin with.
func (g *dotGenerator) begin(parts [][2]vector) {
	for t := range parts {
		switch {
		case g.k.super():
			parts[t] = [2]vector{g.zero(), g.zero()}
		case g.k.signed:
			first := g.number(g.token(t, g.l.sum))
			g.VFMADD213PS(g.magic, g.c(-128).(vector), first)
			parts[t] = [2]vector{first, g.copy(first)}
		default:
			parts[t] = [2]vector{g.copy(g.magic), g.copy(g.magic)}
		}
	}
}

// unsignedProducts adds those of a vector of codes.
func (g *dotGenerator) unsignedProducts(parts [][2]vector, at int) {
	var w [2]vector
	for r := range w {
		w[r] = g.copy(g.in(r, g.bytes()*at))
	}
	for t := range parts {
		number := g.ZMM()
		g.VPBROADCASTD(g.token(t, 4*at), number)
		for r := range w {
			g.VPDPBUSD(number, w[r], parts[t][r])
		}
	}
}

// scaled is a sum above 3·2²² without that, times the scales of a block. Where these are finite it
// has the bits of a sum that is converted and then multiplied: scales in f16 times 3·2²² are exact.
func (g *dotGenerator) scaled(sum vector, scale Mem) {
	above := g.copy(scale)
	g.VMULPS(g.c(-3<<22), above, above)
	g.VFMADD132PS(scale, above, sum)
}
