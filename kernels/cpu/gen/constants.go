package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// constant is a number that all lanes have, of 4 or 8 bytes.
type constant struct {
	bits uint64
	size int
}

// globals are the constants of a file, in memory.
var globals = map[*build.Context]map[constant]Mem{}

// global is a constant in memory, in each lane of a YMM.
func (g *vec) global(c constant) Mem {
	return g.data(c, fmt.Sprintf("lanes%0*X", 2*c.size, c.bits), func(i int) (Constant, bool) {
		if c.size == 8 {
			return U64(c.bits), i < 4
		}
		return U32(c.bits), i < 8
	})
}

// data is memory that has a key, and is written once.
func (g *vec) data(key constant, name string, element func(i int) (c Constant, ok bool)) Mem {
	all := globals[g.Context]
	if all == nil {
		all = map[constant]Mem{}
		globals[g.Context] = all
	}
	if _, ok := all[key]; !ok {
		all[key] = g.StaticGlobal(name)
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := 0; ; i++ {
			c, ok := element(i)
			if !ok {
				break
			}
			g.AppendDatum(c)
		}
	}
	return all[key]
}

// static is a number in every lane of 32 bytes of memory that has a name.
func (g *vec) static(name string, v Constant) Mem {
	m := g.StaticGlobal(name)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := 0; i < 32; i += v.Bytes() {
		g.AddDatum(i, v)
	}
	return m
}

// constant is one as the first operand of an operation: where it is held, its register;
// else in memory, or broadcast from there.
func (g *vec) constant(c constant) Op {
	if g.wanted != nil {
		g.wanted[c]++
	}
	if r, ok := g.held[c]; ok {
		return r
	}
	if g.wide() {
		return g.broadcast(c)
	}
	return g.global(c)
}

func (g *vec) broadcast(c constant) vector {
	v := g.new()
	if c.size == 8 {
		g.VBROADCASTSD(g.global(c), v)
	} else {
		g.VBROADCASTSS(g.global(c), v)
	}
	return v
}

func (g *vec) bits(bits uint32) Op { return g.constant(constant{uint64(bits), 4}) }

func (g *vec) c(v float32) Op { return g.bits(math.Float32bits(v)) }

// hold puts constants that body asks for into registers, if enough are free: at most
// n, those that it asks for most often.
func (g *vec) hold(n int, body func(g *vec)) {
	if !g.wide() {
		return
	}
	rehearsal := newVec(build.NewContext(), g.set)
	rehearsal.wanted = map[constant]int{}
	rehearsal.Function("rehearsal")
	body(rehearsal)
	most := slices.SortedFunc(maps.Keys(rehearsal.wanted), func(a, b constant) int {
		return cmp.Or(rehearsal.wanted[b]-rehearsal.wanted[a], cmp.Compare(a.bits, b.bits))
	})
	for _, c := range most[:min(n, len(most))] {
		g.held[c] = g.broadcast(c)
	}
}
