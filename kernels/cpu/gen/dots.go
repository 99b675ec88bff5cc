package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// avx512BF16 is AVX-512 with VDPBF16PS, which adds to each f32 the products of two pairs of bf16.
var avx512BF16 = isa{"AVX512BF16", 16, 6}

const dotName = "VDPBF16PS"

// dot adds the products of the pairs in w and x to sum. Go's assembler does not know it, and its
// number depends on the registers, which the allocator has yet to choose: see dotsAsNumbers.
func dot(c *build.Context, w, x, sum reg.VecVirtual) {
	c.Instruction(&ir.Instruction{Opcode: dotName, Operands: []Op{w, x, sum}, Inputs: []Op{w, x, sum}, Outputs: []Op{sum}})
}

// dotCode is EVEX.512.F3.0F38.W0 52 /r (Intel's manual, volume 2, chapter 2.7): the prefix has the
// upper two bits of each register, inverted.
func dotCode(w, x, sum int) []byte {
	const map0F38, evex, full, opcode = 2, 1 << 2, 2 << 5, 0x52
	not := func(register, bit int) byte { return byte(^register >> bit & 1) }
	return []byte{
		0x62,
		not(sum, 3)<<7 | not(w, 4)<<6 | not(w, 3)<<5 | not(sum, 4)<<4 | map0F38,
		byte(^x&15)<<3 | evex | pF3,
		full | not(x, 4)<<3,
		opcode,
		byte(3<<6 | sum&7<<3 | w&7),
	}
}

// dotsAsNumbers writes those of a file, whose registers are chosen, as numbers.
func dotsAsNumbers(file *ir.File) {
	for _, f := range file.Functions() {
		var nodes []ir.Node
		for _, n := range f.Nodes {
			in, ok := n.(*ir.Instruction)
			if !ok || in.Opcode != dotName {
				nodes = append(nodes, n)
				continue
			}
			var r [3]int
			var names [3]string
			for i, op := range in.Operands {
				r[i], names[i] = number(op.(reg.Register)), op.Asm()
			}
			nodes = append(nodes, ir.NewComment(fmt.Sprintf("%s %s, %s, %s", dotName, names[0], names[1], names[2])))
			for _, part := range asNumbers(dotCode(r[0], r[1], r[2])) {
				nodes = append(nodes, part)
			}
		}
		f.Nodes = nodes
	}
}
