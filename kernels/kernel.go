// Package kernels says what a kernel is; the packages below it have one per
// operation: cpu the fast ones, reference the plain ones in float64.
//
// A kernel of your own is a function of a [Call]; for an operation of one operand whose rows are
// computed one by one, [PerRow] makes it:
//
//	cpu.Register("acme_softsign", kernels.PerRow(func(y, x []float32) {
//		for j, v := range x {
//			y[j] = v / (1 + max(v, -v))
//		}
//	}))
//
// Kernels check nothing: shapes and formats are those that the operation's row lets pass. One that
// panics is an error of the step, which names it.
package kernels

import (
	"fmt"
	"unsafe"

	"github.com/krait-ml/krait/graph"
)

// ShortDepth bounds the sums that matmul takes in float64 on a CPU, on every instruction set: those
// of fewer terms, but not of weights in blocks. The matrices that have them (a step's low rank,
// adapters, heads) are a few percent of a model's weights, so that it costs little, and their sums
// are then rounded once.
const ShortDepth = 512

// Tensor is memory as a kernel sees it: rows of Cols elements, Stride elements
// apart; of a codec, Stride bytes. Of the slices, the one for DType is set.
type Tensor struct {
	DType  graph.DType
	Dims   [graph.MaxRank]int // of what the rank holds; axes that do not exist are 1
	Cols   int                // elements of a row: the product of all axes but the first, of a cache but the first two
	Stride int
	F64    []float64 // the reference kernels take it, others do not
	F32    []float32
	U16    []uint16 // bits of f16 and bf16
	I32    []int32
	U8     []byte // F8, rows in the blocks of a codec, or weights in blocks

	// Pages has the rows of a cache, from byte InPage of a page on; nil: they are here, Dims[1]
	// for each slot.
	Pages  *Pages
	InPage int

	// Blocks says where the elements of weights in blocks are, whose rows lie one after another:
	// Stride is Cols.
	Blocks *graph.Blocks

	// Axis is the sharded axis, Full its size over all ranks, Unit the size of its units, and Runs
	// what this rank holds of it. Of a tensor that is not sharded, or of which a rank has some rows
	// of the batch, Axis is the last one and Runs is nil. First is the first of these rows, in the
	// batch: kernels that look for tokens by their segments mind it.
	Axis, Full, Unit int
	Runs             []graph.Run
	First            int
	// Parts are the runs of rows of the batch that this rank has, where these are several: one of
	// each sequence.
	Parts []graph.Run
}

// Describe is what a rank holds of a value of type t, without its memory, one row
// after another. Axes whose size is a symbol are 0.
func Describe(t graph.Type, ranks, rank int) Tensor {
	x := Tensor{DType: t.DType, Cols: 1, Axis: len(t.Dims) - 1}
	if t.Layout.Kind == graph.Sharded && !t.Layout.ByBatch() {
		x.Axis, x.Runs = t.Layout.Axis, t.Extents(nil, ranks, rank)
	}
	if x.Axis >= 0 {
		x.Full, x.Unit = t.Dims[x.Axis].Len(), 1
		if f := t.Dims[x.Axis].Fields; len(f) > 0 {
			x.Unit = f[0].Grain()
		}
	}
	local := t.Local(ranks, rank).Dims
	for i := range x.Dims {
		x.Dims[i] = 1
		if i < len(local) {
			x.Dims[i] = local[i].Len()
		}
		if i > 1 || i > 0 && !t.Ragged() {
			x.Cols *= x.Dims[i]
		}
	}
	x.Stride = x.Cols
	if t.DType.InBlocks() {
		x.Stride = t.DType.RowBytes(x.Cols)
	}
	if t.DType.Quantized() {
		x.Blocks = graph.BlocksOf(t, ranks, rank)
	}
	return x
}

// Rows is the size of the first axis.
func (t *Tensor) Rows() int { return t.Dims[0] }

// Row is row i of an f32 tensor.
func (t *Tensor) Row(i int) []float32 {
	at := i * t.Stride
	return t.F32[at : at+t.Cols : at+t.Cols]
}

// Cut is n rows of a tensor of numbers, from one on.
func (t *Tensor) Cut(first, n int) Tensor {
	out, at := *t, first*t.Stride
	out.Dims[0] = n
	out.F64, out.F32, out.I32 = t.F64[min(at, len(t.F64)):], t.F32[min(at, len(t.F32)):], t.I32[min(at, len(t.I32)):]
	out.U16, out.U8 = t.U16[min(at, len(t.U16)):], t.U8[min(at, len(t.U8)):]
	return out
}

// Vector is an f32 tensor with one axis.
func (t *Tensor) Vector() []float32 { return t.F32[:t.Dims[0]] }

// Here is which of the tokens of a segment t has, counted in the segment, and the row of
// the first of them.
func (t *Tensor) Here(start, tokens int) (lo, hi, row int) {
	for _, r := range t.Parts {
		if r.Start >= start && r.End() <= start+tokens && r.Len > 0 {
			return r.Start - start, r.End() - start, row
		}
		row += r.Len
	}
	if len(t.Parts) > 0 {
		return 0, 0, 0
	}
	lo = min(max(t.First-start, 0), tokens)
	return lo, max(lo, min(t.First+t.Rows()-start, tokens)), start + lo - t.First
}

// Hold says which rows of the batch t has: several runs of them, in parts.
func (t *Tensor) Hold(runs []graph.Run) {
	t.First, t.Parts, t.Dims[0] = runs[0].Start, nil, 0
	if len(runs) > 1 {
		t.Parts = runs
	}
	for _, r := range runs {
		t.Dims[0] += r.Len
	}
}

// Segment is row i of the segment table: the first token of a sequence, the
// number of its tokens, and its state slot.
func (t *Tensor) Segment(i int) (start, tokens, slot int) {
	r := t.I32[3*i : 3*i+3]
	return int(r[0]), int(r[1]), int(r[2])
}

// Start is where the rank's part of the sharded axis begins.
func (t *Tensor) Start() int {
	if len(t.Runs) == 0 {
		return 0
	}
	return t.Runs[0].Start
}

// HeldRow finds row i of the whole tensor among those that the rank holds.
func (t *Tensor) HeldRow(i int) (at int, ok bool) {
	if t.Runs == nil || t.Axis != 0 {
		return i, true
	}
	for _, r := range t.Runs {
		if r.Start <= i && i < r.End() {
			return at + i - r.Start, true
		}
		at += r.Len
	}
	return 0, false
}

// Call is one launch: operands and results in the order of the operation. The new state of an
// operation that has one is the memory of the old, with a row per slot.
type Call struct {
	Args    []Tensor
	Results []Tensor
	Attrs   graph.Attrs
	// Wide are the rows of the first operand that are tokens of whole blocks of a prompt: of
	// [graph.PartBlock] tokens, which begin at a multiple of it from the sequence's start and are
	// prefilled in one step. Runs of them are in order and apart. A kernel may take these rows
	// another way than others, with other bits, so that bits depend on a token's position alone.
	Wide []graph.Run
	// Scratch is as many bytes as Kernel.Scratch asks for, aligned to 64. Its old
	// contents do not matter.
	Scratch []byte
}

// Kernel computes an operation. Units says into how many parts the work can be
// cut; Run does parts lo to hi. Parts may run at the same time, and a part's
// result does not depend on how the work was cut.
type Kernel struct {
	Units func(c *Call) int
	Run   func(c *Call, lo, hi int)
	// Before, if there is one, has run with the same call, all its parts, when Run
	// begins: it leaves in the scratch memory what all parts read. It has no scratch memory of its
	// own, but may have one before it.
	Before  *Kernel
	Scratch func(c *Call) int // bytes; nil: none
}

// Prepare does for a call all that comes before Run. It makes scratch memory that the call lacks.
func (k *Kernel) Prepare(c *Call) {
	if k.Scratch != nil {
		if n := k.Scratch(c); n > len(c.Scratch) {
			c.Scratch = NewScratch(n)
		}
	}
	if k.Before != nil {
		k.Before.Prepare(c)
		k.Before.Run(c, 0, k.Before.Units(c))
	}
}

// NewScratch makes memory for [Call.Scratch].
func NewScratch(n int) []byte {
	const alignment = 64
	b := make([]byte, n+alignment)
	at := -uintptr(unsafe.Pointer(&b[0])) & (alignment - 1)
	return b[at : at+uintptr(n)]
}

// Set has a kernel for each operation, by name.
type Set map[string]Kernel

// Register adds the kernels of a file to the set of its package, and returns the set. It is called
// where package variables get their values, so that sets are whole before anything reads them.
func Register[S ~map[string]K, K any](set, more S) S {
	for name, k := range more {
		if _, ok := set[name]; ok {
			panic(fmt.Sprintf("BUG: two kernels are registered for %s", name))
		}
		set[name] = k
	}
	return set
}

// RowUnits cuts the work by rows of the first result.
func RowUnits(c *Call) int { return c.Results[0].Rows() }

// PerRow is the kernel of a function of each row of one operand; y may be x.
func PerRow(f func(y, x []float32)) Kernel {
	return Kernel{Units: RowUnits, Run: func(c *Call, lo, hi int) {
		for i := lo; i < hi; i++ {
			f(c.Results[0].Row(i), c.Args[0].Row(i))
		}
	}}
}

// Held is what the rank holds of size elements of the axis, from one on: where
// they begin and end in what the rank has.
func Held(t *Tensor, from, size int) (lo, hi int) {
	lo = min(max(from-t.Start(), 0), t.Cols)
	return lo, max(lo, min(from+size-t.Start(), t.Cols))
}

// Groups says which group of B and C a head (or channel) of a scan reads, where
// a rank has a range of the heads and the groups that they need.
type Groups struct {
	first int // the rank's first head
	each  int // heads per group
	skip  int // groups before the first that the rank holds
}

// GroupsOf works the groups out from a tensor with an entry per head and one with n per group.
func GroupsOf(heads, b *Tensor, n int) Groups {
	return Groups{heads.Start(), max(1, heads.Full/(b.Full/n)), b.Start() / n}
}

// Of is the group, of those that the rank holds, that its head i reads.
func (g Groups) Of(i int) int { return (g.first+i)/g.each - g.skip }

// End is the first head after head i that reads another group.
func (g Groups) End(i int) int { return ((g.first+i)/g.each+1)*g.each - g.first }
