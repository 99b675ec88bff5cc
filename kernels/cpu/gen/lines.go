package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// stride is a parameter in elements of f32, in bytes.
func (g *vec) stride(name string) reg.Register { return g.strideOf(f32, name) }

// strideOf is a parameter in elements of a format, in bytes.
func (g *vec) strideOf(f format, name string) reg.Register {
	r := g.param(name)
	if f.Size > 1 {
		g.SHLQ(U8(f.Size/2), r)
	}
	return r
}

// ahead is the address of the row that is some rows on, a power of 2, to fetch it: rows are pages
// apart, where no processor fetches them by itself.
func (g *vec) ahead(row Op, stride reg.Register, rows int) reg.Register {
	at := g.GP64()
	g.MOVQ(stride, at)
	g.SHLQ(U8(bits.Len(uint(rows))-1), at)
	g.ADDQ(row, at)
	return at
}

// triple is three times a stride.
func (g *vec) triple(stride reg.Register) reg.Register {
	r := g.GP64()
	g.LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, r)
	return r
}

// strided are four rows from base on; s3 is three strides.
func strided(base, s, s3 reg.Register) [4]Mem {
	return [4]Mem{{Base: base}, {Base: base, Index: s, Scale: 1}, {Base: base, Index: s, Scale: 2}, {Base: base, Index: s3, Scale: 1}}
}

// lines are where rows go on that are some bytes apart. Of more than three rows, upper may be the
// fourth; packed rows are a number of bytes apart.
type lines struct {
	base, upper, apart, apart3 reg.Register
	packed                     int
}

// fourLines are four rows.
func (g *vec) fourLines(base, apart reg.Register) lines {
	return lines{base: base, apart: apart, apart3: g.triple(apart)}
}

// linesFrom are up to six rows.
func (g *vec) linesFrom(base, apart reg.Register, n int) lines {
	l := lines{base: base, apart: apart}
	if n > 3 {
		l.upper = g.GP64()
		g.LEAQ(Mem{Base: base, Index: apart, Scale: 2}, l.upper)
		g.ADDQ(apart, l.upper)
	}
	return l
}

// at is where a row goes on.
func (l *lines) at(row int) Mem {
	switch {
	case l.packed > 0:
		return Mem{Base: l.base, Disp: row * l.packed}
	case l.upper != nil && row >= 3:
		return strided(l.upper, l.apart, nil)[row-3]
	}
	return strided(l.base, l.apart, l.apart3)[row]
}

// move is by adding to the addresses, or subtracting from them.
func (l *lines) move(op func(by, at Op), by Op) {
	op(by, l.base)
	if l.upper != nil {
		op(by, l.upper)
	}
}
