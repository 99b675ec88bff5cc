package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// columns go over a row of elements, by vectors and then those that fill none. A function calls
// columns where it begins, and each for its rows.
type columns struct {
	g     *vec
	name  string       // of the parameter with their number
	whole reg.Register // bytes of those that fill vectors
	rest  tail
}

func (g *vec) columns(name string) *columns {
	whole := g.stride(name)
	g.ANDQ(I8(-g.bytes()), whole)
	return &columns{g, name, whole, g.rest(g.param(name))}
}

// each calls body for a vector at byte at, in a loop, and for the rest with its tail.
func (c *columns) each(body func(at reg.Register, t *tail)) {
	g := c.g
	next, none, all := g.label("columns"), g.label("rest"), g.label("all")
	at := g.GP64()
	g.XORQ(at, at)
	g.CMPQ(at, c.whole)
	g.JGE(LabelRef(none))
	g.Label(next)
	body(at, nil)
	g.ADDQ(U8(g.bytes()), at)
	g.CMPQ(at, c.whole)
	g.JLT(LabelRef(next))
	g.Label(none)
	n := g.param(c.name)
	g.TESTQ(U32(uint32(g.set.lanes-1)), n)
	g.JZ(LabelRef(all))
	body(at, &c.rest)
	g.Label(all)
}
