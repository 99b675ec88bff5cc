package cuda

import (
	"errors"
	"fmt"

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
	calls  []*driver.GemmCall // itself, or those of the pieces of the activations
	rounds bool               // the activations are first rounded to the weight's format, in scratch
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
	case x.InPieces:
		g.calls = g.OfPieces(kernels.Pieces)
		return g
	case part.Splits():
		return nil
	case w.DType == graph.F32 && rounds:
		g.In = driver.TF32
	case w.DType == graph.F32:
	case !rounds:
		return nil
	case x.DType == graph.F32:
		g.rounds, g.A, g.LDA = true, driver.Ptr(part.Call.Scratch), g.K
	}
	g.calls = []*driver.GemmCall{&g.GemmCall}
	return g
}

// scratch is the bytes that rounded activations take.
func (g *product) scratch() int64 {
	if g.rounds {
		return int64(g.M * g.K * g.In.Bytes())
	}
	return 0
}

// gemm appends a product; activations in f32 are rounded first where it takes them so, and the
// operand to add is copied to the result.
func (b *builder) gemm(c *call, part *kernels.Part, g *product) error {
	var before []kernels.Launch
	if x := part.Args[0]; g.rounds {
		to := x
		to.DType, to.Ptr, to.Stride = part.Args[1].DType, uint64(g.A), g.K
		before = kernels.Convert(to, x)
	}
	if y := part.Results[0]; g.Accumulate && part.Args[2].Ptr != y.Ptr {
		before = append(before, kernels.Copy(y, part.Args[2])...)
	}
	if err := b.launches(c.step.Name, c.step.Stream, before); err != nil {
		return err
	}
	for _, call := range g.calls {
		b.actions = append(b.actions, action{kind: lowering.Launch, stream: c.step.Stream, name: c.step.Name, gemm: call})
	}
	return nil
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
