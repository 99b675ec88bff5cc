package cuda

import (
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Target says which activations of a graph the kernels take in bf16, or with math of f32 in
// pieces, with products by cuBLAS. It is a passes.Target.
type Target struct {
	Math   Math
	Shared int // the most shared memory of a block, in bytes; 0: as much as any kernel needs
}

// A batch of this many tokens and sequences has every operation's kernel for many rows, and for
// whole segments.
const manyRows, manySeqs = 4096, 512

// Pieces reports whether activations are accepted in pieces, and not in bf16.
func (t *Target) Pieces() bool { return t.Math == F32 }

// Accepts reports, of a node's operands and then of its results, which its kernels take so on
// every rank.
func (t *Target) Accepts(n *graph.Node, ranks int, narrow func(*graph.Value) bool, prompts bool) []bool {
	accepted := slices.Repeat([]bool{true}, len(n.Args)+len(n.Results))
	k, ok := Kernels[n.Op.Name]
	for rank := range ranks {
		c := &Call{Attrs: n.Attrs, Options: Options{Math: t.Math, Library: true, Shared: t.Shared}}
		for _, v := range n.Args {
			c.Args = append(c.Args, c.Options.laid(v, ranks, rank, narrow(v), prompts))
		}
		for _, v := range n.Results {
			c.Results = append(c.Results, c.Options.laid(v, ranks, rank, narrow(v), prompts))
		}
		if !ok {
			return make([]bool, len(accepted))
		}
		for i, is := range k.Accepts(c) {
			accepted[i] = accepted[i] && is
		}
	}
	return accepted
}

// laid is a value of a graph for a batch of many rows, as lowering lays it: a field lies in the
// rows of what it is a field of. Its address says only how it is aligned.
func (o *Options) laid(v *graph.Value, ranks, rank int, narrow, prompts bool) Tensor {
	t := Tensor{Tensor: kernels.Describe(v.Type, ranks, rank)}
	if narrow {
		o.Narrow(&t, true)
	}
	if d := v.Type.Dims; len(d) > 0 && d[0].Sym != 0 {
		if t.Dims[0] = manyRows; d[0].Sym == graph.Seqs && prompts {
			t.Dims[0] = manySeqs
		}
	}
	first := 0
	for v.Def.Op.Class == graph.View {
		axis, of := v.Def.Attrs.Int("axis"), v.Def.Args[0]
		local := of.Type.Local(ranks, rank).Dims
		_, _, start, _ := local[axis].Run(v.Def.Attrs.Text("name"))
		if t.Stride = graph.RowElems(local); axis == 0 {
			start *= t.Stride
		} else if len(local) > 2 {
			start *= graph.RowElems(local[1:])
		}
		v, first = of, first+start
	}
	t.Ptr = uint64(first * t.DType.Bytes())
	return t
}
