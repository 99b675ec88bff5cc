package main

import (
	"fmt"

	"github.com/krait-ml/krait/kernels/cpu/gen/encode"
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
			for _, part := range asNumbers(encode.Dot(r[0], r[1], r[2])) {
				nodes = append(nodes, part)
			}
		}
		f.Nodes = nodes
	}
}
