// Package encode has the machine code of instructions of amd64 that Go's assembler does not know.
//
// Those of AMX are 0xC4 and two more bytes of a VEX prefix, an opcode of the map 0F38, and the
// operands (Intel's manual, volume 2, chapter 2.3). Memory is base + index, where the index is the
// distance between rows.
package encode

import "encoding/binary"

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

// TileLoad is TILELOADD, and TileStore TILESTORED.
func TileLoad(tile, base, offset, index int) []byte {
	return memory(pF2, 0x4B, tile, base, offset, index)
}

func TileStore(tile, base, offset, index int) []byte {
	return memory(pF3, 0x4B, tile, base, offset, index)
}

// TileZero, TileRelease and TileConfig are TILEZERO, TILERELEASE and LDTILECFG.
func TileZero(tile int) []byte { return append(vex(pF2, 0, 0, 0), 0x49, byte(3<<6|tile<<3)) }
func TileRelease() []byte      { return append(vex(none, 0, 0, 0), 0x49, 0xC0) }

func TileConfig(base int) []byte {
	if base&7 == 4 || base&7 == 5 {
		panic("BUG: SP, BP, R12 and R13 cannot be a base alone")
	}
	return append(vex(none, 0, base, 0), 0x49, byte(base&7))
}

// TileDot is TDPBF16PS: it adds the products of a's rows with the pairs in b.
func TileDot(sum, a, b int) []byte { return append(vex(pF3, b, 0, 0), 0x5C, byte(3<<6|sum<<3|a)) }

// PrefetchW is PREFETCHW of a line at a base and less than 128 bytes, which Go's assembler lacks.
func PrefetchW(base, offset int) []byte {
	if base >= 8 || base == 4 {
		panic("BUG: PREFETCHW of a base that takes another form")
	}
	return []byte{0x0F, 0x0D, byte(1<<6 | 1<<3 | base), byte(offset)}
}

// Dot is VDPBF16PS, EVEX.512.F3.0F38.W0 52 /r (Intel's manual, volume 2, chapter 2.7): the prefix
// has the upper two bits of each register, inverted.
func Dot(w, x, sum int) []byte {
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
