package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tail is a mask of the lanes below a number. AVX2 has it in a register, or where those are few in
// memory.
type tail struct {
	g    *vec
	k    reg.Register // wide
	mask Op           // otherwise
}

// tail is of lanes below n, which is between 0 and the number of lanes.
func (g *vec) tail(n reg.Register) tail {
	t := g.tailInMemory(n)
	if !g.wide() {
		t.mask = g.copy(t.mask)
	}
	return t
}

// rest is of those of n elements that fill no vector. It changes n.
func (g *vec) rest(n reg.Register) tail {
	g.ANDQ(U8(g.set.lanes-1), n)
	return g.tail(n)
}

func (g *vec) tailInMemory(n reg.Register) tail {
	if g.wide() {
		ones, k := g.GP64(), g.K()
		g.MOVQ(I32(-1), ones)
		g.BZHIQ(n, ones, ones)
		g.KMOVW(ones.As32(), k)
		return tail{g: g, k: k}
	}
	at, negative := g.GP64(), g.GP64()
	g.LEAQ(g.tails(), at)
	g.MOVQ(n, negative)
	g.NEGQ(negative)
	return tail{g: g, mask: Mem{Base: at, Index: negative, Scale: 4, Disp: 32}}
}

// tails is 8 lanes of ones, and 8 of zeros.
func (g *vec) tails() Mem {
	return g.data(constant{}, "tails", func(i int) (Constant, bool) {
		return U32([]uint32{math.MaxUint32, 0}[i/8%2]), i < 16
	})
}

// load loads the lanes of the mask; the others are 0, and no memory of theirs is read.
func (t *tail) load(from Mem, to vector) {
	switch mask := t.mask.(type) {
	case nil:
		t.g.VMOVUPS_Z(from, t.k, to)
	case Mem:
		t.g.VMOVUPS(mask, to)
		t.g.VMASKMOVPS(from, to, to)
	default:
		t.g.VMASKMOVPS(from, mask, to)
	}
}

func (t *tail) store(from vector, to Mem) {
	if t.k != nil {
		t.g.VMOVUPS(from, t.k, to)
	} else {
		t.g.VMASKMOVPS(from, t.mask, to)
	}
}

// clear sets the other lanes to 0.
func (t *tail) clear(v vector) {
	if t.k != nil {
		t.g.VMOVUPS_Z(v, t.k, v)
	} else {
		t.g.VANDPS(t.mask, v, v)
	}
}

// load and store move whole vectors, or with a tail its lanes.
func (g *vec) load(from Mem, t *tail) vector {
	v := g.new()
	if t == nil {
		g.VMOVUPS(from, v)
	} else {
		t.load(from, v)
	}
	return v
}

func (g *vec) store(from vector, to Mem, t *tail) {
	if t == nil {
		g.VMOVUPS(from, to)
	} else {
		t.store(from, to)
	}
}

// operand is a vector in memory, or the lanes that a tail has of it.
func (g *vec) operand(m Mem, t *tail) Op {
	if t == nil {
		return m
	}
	return g.load(m, t)
}
