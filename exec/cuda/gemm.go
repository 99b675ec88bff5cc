package cuda

import (
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// gemm is a rank's cuBLAS: a handle for its compute stream, and memory that the
// products work in. Ranks that share a GPU do not share it: nothing orders their
// products.
type gemm struct {
	driver.GEMM        // nil without cuBLAS
	workspace   memory // of ours, so that products can be captured
}

// open makes the handle of cuBLAS; without that library Krait's own kernels compute all products.
func (g *gemm) open(r *rank) error {
	if d := r.machine.device; d.NoGEMM || d.BatchInvariant {
		return nil
	}
	h, err := r.gpu.ctx.GEMM()
	if errors.Is(err, driver.ErrMissingLibrary) || errors.Is(err, driver.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	g.GEMM = h
	return h.SetStream(r.compute)
}

// reserve gives cuBLAS the workspace that NVIDIA recommends, once.
func (g *gemm) reserve(on *gpu) error {
	bytes := int64(4 << 20)
	if on.ctx.Device().Capability[0] >= 9 {
		bytes = 32 << 20
	}
	moved, err := g.workspace.reserve(on, bytes)
	if err != nil {
		return fmt.Errorf("workspace of cuBLAS: %w", err)
	}
	if !moved {
		return nil
	}
	return g.SetWorkspace(g.workspace.ptr, bytes)
}

// close gives the handle back, and then its memory.
func (g *gemm) close(on *gpu) error {
	if g.GEMM == nil {
		return nil
	}
	return errors.Join(g.GEMM.Close(), g.workspace.release(on))
}

// gemmRows is the least number of rows of a product by cuBLAS.
const gemmRows = 33

// byLibrary reports whether cuBLAS computes a step's products, if they are large enough.
func (r *rank) byLibrary(step *lowering.Step) bool {
	return r.gemm.GEMM != nil && step.Stream == lowering.Compute
}

// product is a matmul by cuBLAS.
type product struct {
	driver.GemmCall
	// pieces is how many matrices in the weight's format the activations are first turned into, in
	// scratch: 1 if they are rounded, kernels.Pieces if they are taken apart; 0: they are read as
	// they are.
	pieces int
}

// product returns the product that computes a matmul, or nil where Krait's kernels do: for few
// rows, without cuBLAS, by weights in blocks, and where a weight is split into several bf16, too.
func (r *rank) product(c *call, part *kernels.Part) *product {
	adds := part.Name() == "matmul_add"
	if part.Name() != "matmul" && !adds || !r.byLibrary(c.step) {
		return nil
	}
	x, w, y := &part.Args[0], &part.Args[1], &part.Results[0]
	if w.Blocks != nil || y.Rows() < gemmRows || y.Cols == 0 || w.Cols == 0 || x.DType != graph.F32 && x.DType != w.DType {
		return nil
	}
	g := &product{GemmCall: driver.GemmCall{M: y.Rows(), N: w.Rows(), K: w.Cols, A: driver.Ptr(x.Ptr), B: driver.Ptr(w.Ptr), C: driver.Ptr(y.Ptr),
		LDA: x.Stride, LDB: w.Stride, LDC: y.Stride, Accumulate: adds, For: c.step.Name, In: formatOf(w.DType), Out: formatOf(y.DType)}}
	rounds := r.machine.device.Math == kernels.BF16
	switch {
	case part.Apart():
		g.pieces = kernels.Pieces
	case part.Splits():
		return nil
	case w.DType == graph.F32 && rounds:
		g.In = driver.TF32
	case w.DType == graph.F32:
	case !rounds:
		return nil
	case x.DType == graph.F32:
		g.pieces = 1
	}
	return g
}

// scratch is the bytes that the pieces of the activations take.
func (g *product) scratch() int64 { return int64(g.pieces) * int64(g.M*g.K*g.In.Bytes()) }

// gemm appends a product; activations in f32 are rounded or taken apart first, and the operand to
// add is copied to the result.
func (b *builder) gemm(c *call, part *kernels.Part, g *product) error {
	if err := b.prepare(c, part, g); err != nil {
		return err
	}
	if y := part.Results[0]; g.Accumulate && part.Args[2].Ptr != y.Ptr {
		if err := b.launches(c.step.Name, c.step.Stream, kernels.Copy(y, part.Args[2])); err != nil {
			return err
		}
	}
	calls := []*driver.GemmCall{&g.GemmCall}
	if g.pieces > 1 {
		calls = g.OfPieces(g.pieces)
	}
	for _, call := range calls {
		b.actions = append(b.actions, action{kind: lowering.Launch, stream: c.step.Stream, name: c.step.Name, gemm: call})
	}
	return nil
}

// prepare appends the launches that round the activations of a product to a format, or take them
// apart, to scratch, where they are not there in pieces already.
func (b *builder) prepare(c *call, part *kernels.Part, g *product) error {
	x, to := part.Args[0], part.Args[0]
	to.DType, to.Ptr, to.Stride = part.Args[1].DType, part.Call.Scratch, g.K
	if g.pieces > 0 {
		g.A, g.LDA = driver.Ptr(to.Ptr), g.K
	}
	switch {
	case g.pieces == 0:
		return nil
	case g.pieces == 1:
		b.apart.x = 0
		return b.launches(c.step.Name, c.step.Stream, kernels.Convert(to, x))
	case b.apart.x == x.Ptr:
		g.A = driver.Ptr(b.apart.at)
		return nil
	}
	b.apart.x, b.apart.at = x.Ptr, to.Ptr
	if last := b.last; b.inPiecesOnly(c, x.Ptr) {
		b.apart.at = max(to.Ptr, last.part.Call.Scratch) // which the last part may read what is before
		g.A = driver.Ptr(b.apart.at)
		return b.againInPieces(b.apart.at)
	}
	return b.launches(c.step.Name, c.step.Stream, kernels.TakeApart(to.Ptr, x))
}

// given is a part with its actions.
type given struct {
	c        *call
	part     *kernels.Part
	from, to int
}

// inPiecesOnly reports whether the last part gave the activations at an address and can give them
// in pieces, and nothing reads them but products in pieces of this step. While steps are timed,
// each has its own launches.
func (b *builder) inPiecesOnly(c *call, x uint64) bool {
	last := b.last
	if last.part == nil || last.to != len(b.actions) || last.part.Results[0].Ptr != x || b.r.record != nil || b.key.once || b.key.trial != (trialKey{}) || !last.part.GivesPieces() {
		return false
	}
	if last.c != c {
		if from := last.c.step.Results[0]; last.c.step.Stream != c.step.Stream || c.step.Args[0].Buffer != from.Buffer || last.c.on.Results[0].Ptr != x || b.r.readers[last.c] != 1 {
			return false
		}
	} else if slices.ContainsFunc(c.on.Results, func(t kernels.Tensor) bool { return t.Ptr == x }) {
		return false
	}
	for i := range b.parts {
		part := &b.parts[i]
		at := slices.IndexFunc(part.Args, func(t kernels.Tensor) bool { return t.Ptr == x })
		if at < 0 {
			continue
		}
		if g := b.r.product(c, part); at > 0 || g == nil || g.pieces != kernels.Pieces {
			return false
		}
	}
	return true
}

// againInPieces replaces the actions of the last part by those that give its result in pieces.
func (b *builder) againInPieces(at uint64) error {
	last := b.last
	last.part.Pieces = at
	list, err := last.part.Launches(last.part.Call)
	last.part.Pieces = 0
	if err != nil {
		return err
	}
	b.actions = b.actions[:last.from]
	if err = b.launches(last.c.step.Name, last.c.step.Stream, list); err != nil {
		return err
	}
	for i := last.from; i < len(b.actions); i++ {
		b.actions[i].step = last.c.step
	}
	b.last = given{}
	return nil
}

// countReaders counts, by call, how often its first result is read until its buffer is written
// again, by steps and as an output.
func (r *rank) countReaders() map[*call]int {
	n := map[*call]int{}
	for i, c := range r.calls {
		if len(c.step.Results) == 0 {
			continue
		}
		of, again := c.step.Results[0].Buffer, false
		reads := func(x lowering.Ref) bool { return x.Buffer == of }
		for _, later := range r.s.Steps[i+1:] {
			for _, a := range later.Args {
				if reads(a) {
					n[c]++
				}
			}
			if again = slices.ContainsFunc(later.Results, reads); again {
				break
			}
		}
		for _, out := range r.s.Outputs {
			if !again && reads(out.Ref) {
				n[c]++
			}
		}
	}
	return n
}

func formatOf(d graph.DType) driver.Format {
	switch d {
	case graph.F16:
		return driver.F16
	case graph.BF16:
		return driver.BF16
	}
	return driver.F32
}
