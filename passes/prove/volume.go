package prove

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// oneToken is the batch for which bytes are compared.
var oneToken = graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1}

// phases counts how often a ring passes the payload on: to add it up part by part,
// and to bring parts to all. The rest of the house has it from graph.Sent; the proof
// counts by itself, so that one mistake cannot be in both.
func phases(op *graph.Op) int64 {
	if op.From == graph.Partial && op.To == graph.Replicated {
		return 2
	}
	return 1
}

// Volume is a number of bytes in the sizes of a batch. Ranks may not divide it:
// it is bytes + over/ranks.
type Volume struct {
	bytes, over graph.Poly
	ranks       int64
}

// sent is what each rank sends when values of type t go through a collective.
func sent(op *graph.Op, t graph.Type, ranks int) Volume { return inRing(phases(op), t, ranks) }

// inRing is what each rank sends of values of type t in some phases of a ring.
func inRing(phases int64, t graph.Type, ranks int) Volume {
	n, symbols := phases*int64(ranks-1)*int64(t.DType.Bytes()), graph.Const(1)
	dims := t.Dims
	if c, ok := t.DType.Codec(); ok { // blocks of a scale and its codes, the last one whole
		row, bits := int64(1), map[graph.CodecKind]int64{graph.Int8: 8, graph.Int4: 4, graph.E4M3: 8, graph.E5M2: 8, graph.Scaled16: 16}[c.Kind]
		for _, d := range dims[1:] {
			row *= int64(d.Len())
		}
		block := int64(c.Block)
		n, dims = n*((row+block-1)/block)*(2+block*bits/8), dims[:1]
	}
	for _, d := range dims {
		if d.Sym != 0 {
			symbols = symbols.Times(graph.Var(d.Sym))
		} else {
			n *= int64(d.Len())
		}
	}
	v := Volume{ranks: int64(ranks)}
	if n%v.ranks == 0 {
		v.bytes = graph.Const(n / v.ranks).Times(symbols)
	} else {
		v.over = graph.Const(n).Times(symbols)
	}
	return v
}

// plus adds volumes of the same number of ranks.
func (v Volume) plus(w Volume) Volume {
	return Volume{v.bytes.Plus(w.bytes), v.over.Plus(w.over), max(v.ranks, w.ranks)}
}

// parts is the volume for one token, times the number of ranks.
func (v Volume) parts() int64 { return v.bytes.At(oneToken)*max(v.ranks, 1) + v.over.At(oneToken) }

// One is the volume for one token, one sequence and one row, rounded up.
func (v Volume) One() int64 { return ceil(v.parts(), int(v.ranks)) }

// ceil is n/ranks, rounded up.
func ceil(n int64, ranks int) int64 {
	p := int64(max(ranks, 1))
	return (n + p - 1) / p
}

// String writes 240·t, or 80·t + (640·t)/3.
func (v Volume) String() string {
	switch {
	case len(v.over) == 0:
		return v.bytes.String()
	case len(v.bytes) == 0:
		return fmt.Sprintf("(%s)/%d", v.over, v.ranks)
	}
	return fmt.Sprintf("%s + (%s)/%d", v.bytes, v.over, v.ranks)
}
