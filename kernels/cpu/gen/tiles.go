package main

import (
	"encoding/binary"
	"fmt"

	"github.com/krait-ml/krait/kernels/cpu/gen/encode"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tiles writes AMX's instructions, which Go's assembler does not know, as numbers. A base and an
// index must be registers of the machine.
type tiles struct{ *build.Context }

// emit writes an instruction, which reads registers.
func (c tiles) emit(code []byte, text string, uses ...Op) {
	c.Comment(text)
	for _, in := range asNumbers(code) {
		in.Inputs, uses = uses, nil
		c.Instruction(in)
	}
}

// asNumbers is code for an assembler that does not know the instruction.
func asNumbers(code []byte) (list []*ir.Instruction) {
	for len(code) > 0 {
		in := &ir.Instruction{}
		switch n := len(code); {
		case n >= 4:
			in.Opcode, in.Operands = "LONG", []Op{U32(binary.LittleEndian.Uint32(code))}
			code = code[4:]
		case n >= 2:
			in.Opcode, in.Operands = "WORD", []Op{U16(binary.LittleEndian.Uint16(code))}
			code = code[2:]
		default:
			in.Opcode, in.Operands = "BYTE", []Op{U8(code[0])}
			code = code[1:]
		}
		list = append(list, in)
	}
	return list
}

// number is that of a register of the machine.
func number(r reg.Register) int { return int(r.(reg.Physical).PhysicalIndex()) }

func (c tiles) load(tile int, base reg.Register, offset int, index reg.Register) {
	c.emit(encode.TileLoad(tile, number(base), offset, number(index)), fmt.Sprintf("TILELOADD %d(%s)(%s*1), T%d", offset, base.Asm(), index.Asm(), tile), base, index)
}

func (c tiles) store(tile int, base reg.Register, offset int, index reg.Register) {
	c.emit(encode.TileStore(tile, number(base), offset, number(index)), fmt.Sprintf("TILESTORED T%d, %d(%s)(%s*1)", tile, offset, base.Asm(), index.Asm()), base, index)
}

func (c tiles) fetchToWrite(base reg.Register, offset int) {
	c.emit(encode.PrefetchW(number(base), offset), fmt.Sprintf("PREFETCHW %d(%s)", offset, base.Asm()), base)
}

func (c tiles) config(base reg.Register) {
	c.emit(encode.TileConfig(number(base)), fmt.Sprintf("LDTILECFG (%s)", base.Asm()), base)
}

func (c tiles) zero(tile int) { c.emit(encode.TileZero(tile), fmt.Sprintf("TILEZERO T%d", tile)) }
func (c tiles) release()      { c.emit(encode.TileRelease(), "TILERELEASE") }

func (c tiles) dot(sum, a, b int) {
	c.emit(encode.TileDot(sum, a, b), fmt.Sprintf("TDPBF16PS T%d, T%d, T%d", b, a, sum))
}
