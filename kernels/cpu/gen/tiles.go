package main

import (
	"encoding/binary"
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tiles writes AMX's instructions, which Go's assembler does not know, as numbers.
// Each is 0xC4 and two more bytes of a VEX prefix, an opcode of the map 0F38, and the
// operands (Intel's manual, volume 2, chapter 2.3). Memory is base + index, where the
// index is the distance between rows: both must be given as registers of the machine.
type tiles struct{ *build.Context }

// prefixes that VEX packs into two bits.
const (
	none = iota
	p66
	pF3
	pF2
)

// vex is the prefix of an instruction whose operands are in the first eight registers,
// but for the base and the index.
func vex(prefix, source, base, index int) []byte {
	return []byte{0xC4, byte((^index>>3&1)<<6 | (^base>>3&1)<<5 | 1<<7 | 2), byte((^source&15)<<3 | prefix)}
}

// memory is an instruction with a tile and memory, at an offset from base.
func memory(prefix int, opcode byte, tile, base, offset, index int) []byte {
	code := append(vex(prefix, 0, base, index), opcode, byte(tile<<3|4), byte((index&7)<<3|base&7))
	if offset != 0 || base&7 == 5 {
		code[4] |= 2 << 6
		code = binary.LittleEndian.AppendUint32(code, uint32(offset))
	}
	return code
}

func tileLoad(tile, base, offset, index int) []byte {
	return memory(pF2, 0x4B, tile, base, offset, index)
}

func tileStore(tile, base, offset, index int) []byte {
	return memory(pF3, 0x4B, tile, base, offset, index)
}

func tileZero(tile int) []byte { return append(vex(pF2, 0, 0, 0), 0x49, byte(3<<6|tile<<3)) }
func tileRelease() []byte      { return append(vex(none, 0, 0, 0), 0x49, 0xC0) }
func tileConfig(base int) []byte {
	if base&7 == 4 || base&7 == 5 {
		panic("BUG: SP, BP, R12 and R13 cannot be a base alone")
	}
	return append(vex(none, 0, base, 0), 0x49, byte(base&7))
}

// tileDot adds the products of a's rows with the pairs in b.
func tileDot(sum, a, b int) []byte { return append(vex(pF3, b, 0, 0), 0x5C, byte(3<<6|sum<<3|a)) }

// prefetchW is PREFETCHW of a line at a base and less than 128 bytes, which Go's assembler lacks.
func prefetchW(base, offset int) []byte {
	if base >= 8 || base == 4 {
		panic("BUG: PREFETCHW of a base that takes another form")
	}
	return []byte{0x0F, 0x0D, byte(1<<6 | 1<<3 | base), byte(offset)}
}

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
	c.emit(tileLoad(tile, number(base), offset, number(index)), fmt.Sprintf("TILELOADD %d(%s)(%s*1), T%d", offset, base.Asm(), index.Asm(), tile), base, index)
}

func (c tiles) store(tile int, base reg.Register, offset int, index reg.Register) {
	c.emit(tileStore(tile, number(base), offset, number(index)), fmt.Sprintf("TILESTORED T%d, %d(%s)(%s*1)", tile, offset, base.Asm(), index.Asm()), base, index)
}

func (c tiles) fetchToWrite(base reg.Register, offset int) {
	c.emit(prefetchW(number(base), offset), fmt.Sprintf("PREFETCHW %d(%s)", offset, base.Asm()), base)
}

func (c tiles) config(base reg.Register) {
	c.emit(tileConfig(number(base)), fmt.Sprintf("LDTILECFG (%s)", base.Asm()), base)
}

func (c tiles) zero(tile int) { c.emit(tileZero(tile), fmt.Sprintf("TILEZERO T%d", tile)) }
func (c tiles) release()      { c.emit(tileRelease(), "TILERELEASE") }

func (c tiles) dot(sum, a, b int) {
	c.emit(tileDot(sum, a, b), fmt.Sprintf("TDPBF16PS T%d, T%d, T%d", b, a, sum))
}
