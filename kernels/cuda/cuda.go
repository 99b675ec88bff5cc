// Package cuda has the kernels for NVIDIA GPUs, in CUDA C++ that is compiled to
// PTX ahead of time (build.sh) and lies in the binary: building Krait needs no
// compiler but Go's. The package knows which kernels an operation launches and
// how; loading and launching them is up to a driver.
//
// Kernels are deterministic, and a row's result does not depend on which rows
// come with it. It may change in the last bits with their number, where that
// decides between two kernels: for a matmul, between the one for few rows and the
// one for many; for ssd_scan and attention, between a token by itself and a
// prompt; for a selective scan, between long segments in pieces and whole ones.
// With [Options.Invariant] it does not, but between single tokens and prompts.
//
// Grids depend on numbers of tokens, sequences and rows only. The kernels read the
// segment table, past and ids on the device, so that a
// captured graph of launches serves other batches of the same size.
package cuda

import (
	"fmt"
	"math"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Tensor is a tensor in device memory. The slices of kernels.Tensor are not used.
type Tensor struct {
	kernels.Tensor
	// Ptr is the address of the first element. For a KV cache, which lies in Pages, it is the address
	// of a block table: for each sequence of the batch, the addresses of the pages of Dims[1] tokens.
	// Pages that a sequence does not have are not read. Pages begin at multiples of 16 bytes;
	// Pages.Memory and Of are not used.
	Ptr uint64
	// Fixed: no launch writes it, as weights, so that a launch need not wait before it loads it.
	Fixed bool
	// InPieces: it lies as [Pieces] matrices of bf16, packed and one behind the other, whose sum it
	// is: see [Kernel.Accepts].
	InPieces bool
}

// Math is the arithmetic of products of many rows.
type Math int

const (
	// F32 has the accuracy of f32 for weights in any format. By weights in bf16 it uses tensor cores,
	// with activations split into three bf16.
	F32 Math = iota
	// BF16 rounds both operands to bf16 and adds in f32, on tensor cores, where
	// rows are aligned to 16 bytes. Activations may be in bf16: see [Kernel.Accepts].
	BF16
)

// Options choose between kernels of an operation.
type Options struct {
	Math Math
	// Library lets cuBLAS compute products of more than 32 rows.
	Library bool
	// Split lets products of many rows by weights in f32 run on tensor cores, with each number split
	// into three bf16, as for weights in 16 bits: see [SplitPays].
	Split bool
	// Invariant lets a row's bits depend on no other row: neither their number nor that of sequences
	// chooses between kernels that add in different orders. What decides is the shape of weights, and
	// whether a sequence has one token.
	Invariant bool
	// Decode selects the kernels of single tokens, as if each sequence had one at most. In scans and
	// convolutions that must be so.
	Decode bool
	// Shared is the most shared memory of a block, in bytes: operations fall back on
	// kernels that need less. 0: as much as any kernel needs.
	Shared int
}

// Call is an operation on tensors: operands and results in the order of the
// operation. The new state of an operation that has one is the memory of the old.
type Call struct {
	Args, Results []Tensor
	Attrs         graph.Attrs
	Options       Options
	// Scratch is the address of as many bytes as Kernel.Scratch asks for, aligned
	// to 256. Their contents do not matter, before or after.
	Scratch uint64
	// Arrivals is the address of MaxArrivals counters of 4 bytes that are 0, and are so again after
	// each launch. Calls that may run at the same time have their own.
	Arrivals uint64

	module   string // of an operation that was registered
	launches []Launch
	err      error // of the first launch that is beyond CUDA's limits
}

// MaxArrivals bounds the tiles of a product whose blocks count those that have arrived.
const MaxArrivals = 1024

// Launch is one launch of a kernel.
type Launch struct {
	Module, Function string
	Grid, Block      [3]uint32
	Shared           uint32 // dynamic shared memory, bytes; above 48 KB a function must be allowed to have it
	Params           []byte // the parameters, laid out as the function's list says
}

// Kernel computes an operation.
type Kernel struct {
	launch  func(c *Call) error
	scratch func(c *Call) int64
	parts   func(c *Call) bool  // whether the call is done by its parts; nil: none is
	accepts func(c *Call) []int // activations in bf16, see [Kernel.Accepts]; nil: none
	pieces  func(c *Call) []int // activations in pieces, likewise; nil: none
	op      *graph.Op
}

// Launches returns the launches that compute the call, in order. They are the same for all
// calls whose tensors have the same shapes and addresses.
func (k Kernel) Launches(c *Call) ([]Launch, error) {
	var all []Launch
	for _, part := range k.Parts(c) {
		part.launches, part.err = nil, nil
		if err := part.Kernel.launch(part.Call); err != nil {
			return nil, err
		}
		if part.err != nil {
			return nil, part.err
		}
		all = append(all, part.launches...)
	}
	return all, nil
}

// Scratch returns the bytes of memory that the call needs beside its tensors.
func (k Kernel) Scratch(c *Call) int64 {
	var most int64
	for _, part := range k.Parts(c) {
		n := int64(part.Call.Scratch - c.Scratch)
		if scratch := part.Kernel.scratch; scratch != nil {
			n += scratch(part.Call)
		}
		most = max(most, n)
	}
	return most
}

// Set is kernels by the name of their operation.
type Set map[string]Kernel

// Kernels has the kernels of all operations; each file registers its own.
var Kernels = Set{}

// launch appends a launch, unless there is nothing to do. The first axis of a grid
// counts rows, sequences or pieces of them; the others count what a model's sizes
// bound: columns, heads, experts.
func (c *Call) launch(module, function string, grid, block [3]int, shared int, params ...any) {
	if inspect != nil {
		inspect(module, function, params)
	}
	l := Launch{Module: module, Function: function, Shared: uint32(shared), Params: Params(params...)}
	for i := range grid {
		if grid[i] == 0 {
			return
		}
		if grid[i] < 0 {
			panic(fmt.Sprintf("BUG: %s is launched on %v blocks", function, grid))
		}
		if most := maxGrid[i]; grid[i] > most && c.err == nil {
			c.err = fmt.Errorf("kernel %s: a grid of %d x %d x %d blocks; CUDA's have up to %d x %d x %[6]d: split the tensor over more ranks, or the batch",
				function, grid[0], grid[1], grid[2], maxGrid[0], maxGridYZ)
		}
		l.Grid[i], l.Block[i] = uint32(grid[i]), uint32(max(1, block[i]))
	}
	c.launches = append(c.launches, l)
}

// inspect, which tests set, sees what a launch is given.
var inspect func(module, function string, params []any)

// maxGridYZ is how many blocks there may be but along the first axis.
const maxGridYZ = 65535

// maxGrid is how many blocks there may be along each axis.
var maxGrid = [3]int{math.MaxInt32, maxGridYZ, maxGridYZ}

// offset is the address of element i.
func (t *Tensor) offset(i int) uint64 { return t.Ptr + uint64(BytesBefore(&t.Tensor, i)) }

// stride is the distance of rows, as kernels take it: in bytes of weights in blocks.
func (t *Tensor) stride() int64 {
	if t.Blocks != nil {
		return int64(BytesBefore(&t.Tensor, t.Stride))
	}
	return int64(t.Stride)
}

// aligned reports whether all rows of tensors begin at a multiple of 16 bytes, so
// that kernels may load as many at a time. Of one row it says what it says of several: kernels are
// chosen by it.
func aligned(tensors ...*Tensor) bool {
	for _, t := range tensors {
		if t.Ptr%16 != 0 || t.Stride*t.DType.Bytes()%16 != 0 {
			return false
		}
	}
	return true
}

// runs visits the runs of the batch's tokens that t has rows of, with the row of the first: in
// parts those of each sequence, as one where they follow each other.
func (t *Tensor) runs(visit func(run graph.Run, row int)) {
	run, row := graph.Run{Start: t.First}, 0
	for _, r := range t.Parts {
		if r.Len > 0 && r.Start != run.End() {
			if run.Len > 0 {
				visit(run, row)
			}
			row += run.Len
			run = graph.Run{Start: r.Start}
		}
		run.Len += r.Len
	}
	if len(t.Parts) == 0 {
		run.Len = t.Rows()
	}
	if run.Len > 0 {
		visit(run, row)
	}
}

// ceilDiv is a / b, rounded up.
func ceilDiv(a, b int) int { return (a + b - 1) / b }

// formats are the names of formats in kernels' names.
func format(d graph.DType) string {
	if d == graph.F32 || d == graph.F16 || d == graph.BF16 || d == graph.F8 || d.Quantized() {
		return d.String()
	}
	panic(fmt.Sprintf("BUG: no kernel has elements of %s", d))
}
