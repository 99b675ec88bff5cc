package cuda

import (
	"math"
	"math/rand/v2"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// draw makes random tensors.
type draw struct {
	*rapid.T
	rng *rand.Rand

	past   []int // tokens that each slot's sequence has had
	decode bool  // every sequence has one token
	lens   []int // of sequences
	least  int   // sequences of a batch
	most   int

	oneGroup bool // of B and C, which all channels share and every rank has
	aligned  bool // rows begin at multiples of 16 bytes, if they are that long
	blank    bool // tensors have no numbers: the call is planned only
}

const slots = 4

func newDraw(t *rapid.T) *draw {
	return &draw{T: t, rng: newRand(rapid.Uint64().Draw(t, "seed")), past: make([]int, slots), least: 1, most: slots,
		lens: []int{1, 2, 3, 5, 9, 31, 33, 70}, decode: rapid.IntRange(0, 3).Draw(t, "decode") == 0, blank: planOnly != nil}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// size is one at which tilings go wrong: small, primes, around fours and warps.
func (d *draw) size(name string, more ...int) int {
	return rapid.SampledFrom(append([]int{1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17}, more...)).Draw(d.T, name)
}

func (d *draw) pick(name string, from ...int) int { return rapid.SampledFrom(from).Draw(d.T, name) }

// offset is where a tensor begins in its allocation.
func (d *draw) offset() int {
	if d.aligned {
		return d.pick("offset", 0, 8)
	}
	return d.pick("offset", 0, 0, 0, 4, 1)
}

func (d *draw) format() graph.DType {
	return rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16, graph.F16}).Draw(d.T, "format")
}

// kept is a format in which an operation's states may be.
func (d *draw) kept(op string) graph.DType {
	return rapid.SampledFrom(findOp(d.T, op).States[0].Kind.Formats()).Draw(d.T, "kept")
}

// tensor is one that is not split, of normal numbers; between its rows there
// may be some that belong to others.
func (d *draw) tensor(t graph.DType, dims ...int) kernels.Tensor {
	out := shaped(t, dims...)
	if len(dims) > 1 {
		if d.aligned {
			out.Stride += d.pick("stride", 0, 8)
		} else {
			out.Stride += d.pick("stride", 0, 0, 0, 4, 16, 1)
		}
	}
	d.fill(&out, func(v float64) float64 { return v })
	return out
}

// packed is a tensor with nothing between its rows, as weights, states and
// vectors are.
func (d *draw) packed(t graph.DType, dims ...int) kernels.Tensor {
	out := shaped(t, dims...)
	d.fill(&out, func(v float64) float64 { return v })
	return out
}

func shaped(t graph.DType, dims ...int) kernels.Tensor {
	out := kernels.Tensor{DType: t, Cols: 1, Axis: len(dims) - 1, Full: dims[len(dims)-1], Unit: 1}
	for i := range out.Dims {
		out.Dims[i] = 1
	}
	copy(out.Dims[:], dims)
	for _, n := range dims[1:] {
		out.Cols *= n
	}
	out.Stride = out.Cols
	return out
}

// fill sets the elements of t to functions of normal numbers.
func (d *draw) fill(t *kernels.Tensor, f func(float64) float64) {
	rows := allRows(t)
	n := max(0, (rows-1)*t.Stride+t.Cols)
	if rows == 0 {
		n = 0
	}
	switch t.DType {
	case graph.F32:
		t.F32 = make([]float32, n)
	case graph.I32:
		t.I32 = make([]int32, n)
		return
	case graph.F8:
		t.U8 = make([]byte, n)
	default:
		t.U16 = make([]uint16, n)
	}
	if d.blank {
		return
	}
	row := make([]float32, t.Cols)
	for i := range rows {
		for j := range row {
			row[j] = float32(f(d.rng.NormFloat64()))
		}
		t.Write(i*t.Stride, row)
	}
}

// ints is a vector of numbers below a limit.
func (d *draw) ints(n, limit int) kernels.Tensor {
	t := d.packed(graph.I32, n)
	for i := range t.I32 {
		t.I32[i] = int32(d.rng.IntN(limit))
	}
	return t
}

// part says that t is what a rank has of an axis: one run of a whole of full
// elements in units.
func part(t kernels.Tensor, axis, full, unit, start int) kernels.Tensor {
	t.Axis, t.Full, t.Unit, t.Runs = axis, full, unit, []graph.Run{{Start: start, Len: t.Dims[axis]}}
	return t
}

// share is the units from one on that a rank has of a number of them.
func (d *draw) share(units int) graph.Run {
	if rapid.Bool().Draw(d.T, "whole") {
		return graph.Run{Start: 0, Len: units}
	}
	lo := rapid.IntRange(0, units).Draw(d.T, "first")
	return graph.Run{Start: lo, Len: rapid.IntRange(0, units-lo).Draw(d.T, "units")}
}

// cover is the groups of each units that a run of units touches.
func cover(r graph.Run, each int) graph.Run {
	lo := r.Start / each
	if r.Len == 0 {
		return graph.Run{Start: lo, Len: 0}
	}
	return graph.Run{Start: lo, Len: (r.End()+each-1)/each - lo}
}

// batch draws sequences in slots of their own: the segment table, the past, and
// the number of tokens.
func (d *draw) batch() (seg, past kernels.Tensor, tokens int) {
	n := rapid.IntRange(d.least, d.most).Draw(d.T, "sequences")
	order := d.rng.Perm(slots)
	seg, past = d.packed(graph.I32, n, 3), d.packed(graph.I32, n)
	for i := range n {
		count := 1
		if !d.decode {
			count = d.pick("tokens", d.lens...)
		}
		slot := order[i%slots] // of more sequences than slots, the test leaves some without tokens
		seg.I32[3*i], seg.I32[3*i+1], seg.I32[3*i+2] = int32(tokens), int32(count), int32(slot)
		past.I32[i] = int32(d.past[slot])
		d.past[slot] += count
		tokens += count
	}
	return seg, past, tokens
}

// positive and negative are for steps and rates of scans.
func positive(v float64) float64 { return math.Abs(v) / 4 }
func negative(v float64) float64 { return -math.Abs(v) }
