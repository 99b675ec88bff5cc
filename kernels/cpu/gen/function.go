package main

import (
	"fmt"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vec writes a function whose operations are on vectors of f32, of one instruction
// set. Operands stand in Go's order: what is subtracted comes first, the result last.
type vec struct {
	*build.Context
	set    isa
	held   map[constant]vector // constants that are in registers
	wanted map[constant]int    // of a rehearsal: how often it asked for a constant
	ends   int                 // labels so far
	tight  bool                // registers are few: chains are written one after the other
}

type vector = reg.VecVirtual

func newVec(c *build.Context, set isa) *vec { return &vec{Context: c, set: set} }

func (g *vec) wide() bool { return g.set.lanes == 16 }

func (g *vec) bytes() int { return 4 * g.set.lanes }

func (g *vec) new() vector {
	if g.wide() {
		return g.ZMM()
	}
	return g.YMM()
}

// function begins one.
func function(c *build.Context, name, signature string, doc ...string) {
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.Pragma("noescape")
	c.Doc(doc...)
	c.SignatureExpr("func" + signature)
}

// function begins one of the instruction set, with no constants in registers.
func (g *vec) function(name, signature string, doc ...string) {
	g.held = map[constant]vector{}
	name += g.set.name
	doc[0] = name + " " + doc[0]
	function(g.Context, name, signature, doc...)
}

func (g *vec) end() {
	g.VZEROUPPER()
	g.RET()
}

// param is a parameter in a register.
func (g *vec) param(name string) reg.Register { return g.Load(g.Param(name), g.GP64()) }

// memory is where a parameter lies.
func (g *vec) memory(name string) Mem {
	b, err := g.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

func (g *vec) label(name string) string {
	g.ends++
	return fmt.Sprintf("%s%d", name, g.ends)
}

// loop repeats what body does to n elements while as many are left. Fewer are left then, and the
// flags say whether there are any.
func (g *vec) loop(name string, left Op, n int, body func()) {
	rest, again := g.label("part"), g.label(name)
	g.SUBQ(U8(n), left)
	g.JLT(LabelRef(rest))
	g.Label(again)
	body()
	g.SUBQ(U8(n), left)
	g.JGE(LabelRef(again))
	g.Label(rest)
	g.ADDQ(U8(n), left)
}

// together writes the instructions of n chains in turns, so that one does not wait for itself.
func (g *vec) together(n int, chain func(i int)) {
	file, err := g.Result()
	if err != nil {
		panic(err)
	}
	functions := file.Functions()
	f := functions[len(functions)-1]
	before := len(f.Nodes)
	var chains [][]ir.Node
	for i := range n {
		chain(i)
		chains = append(chains, slices.Clone(f.Nodes[before:]))
		f.Nodes = f.Nodes[:before]
	}
	if g.tight {
		f.Nodes = append(f.Nodes, slices.Concat(chains...)...)
		return
	}
	for k := range chains[0] {
		for _, c := range chains {
			f.Nodes = append(f.Nodes, c[k])
		}
	}
}
