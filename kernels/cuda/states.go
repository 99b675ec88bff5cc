package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// The operations of recurrences over parts of sequences (graph/parts.go).
var _ = kernels.Register(Kernels, Set{
	"parts":            {launch: parts},
	"zeros":            {launch: zeros},
	"segment_sums":     {launch: segmentSums},
	"conv_states":      {launch: convStates},
	"selective_states": {launch: passScans},
	"ssd_states":       {launch: passScans},
	"delta_states":     {launch: deltaStates},
})

const (
	sumChannels = 32 // of a block of segment_sums
	passRows    = 8  // that a warp of delta_states has at a time
	passWarps   = 8  // of its blocks
)

func parts(c *Call) error {
	seg, y, n, own := &c.Args[1], &c.Results[0], c.Attrs.Int("parts"), -1
	seqs := seg.Rows()
	if seqs == 0 {
		return nil
	}
	if y.Rows() < seqs*n {
		own = y.First / seqs
	}
	c.launch("parts", "parts", [3]int{1, 1, 1}, [3]int{32}, 0, y.Ptr, seg.Ptr, y.Rows(), seqs, n, own)
	return nil
}

func zeros(c *Call) error {
	y := &c.Results[0]
	if c.Attrs.Int("diagonal") == 0 {
		c.launches = append(c.launches, Zero(*y)...)
		return nil
	}
	grid, block := elementGrid(y.Rows(), y.Cols)
	c.launch("parts", "diagonal", grid, block, 0, y.Ptr, y.stride(), y.Cols, y.Dims[y.Axis], aligned(y))
	return nil
}

func segmentSums(c *Call) error {
	x, seg, y := &c.Args[0], &c.Args[1], &c.Results[0]
	c.launch("parts", "segment_sums", [3]int{seg.Rows(), ceilDiv(y.Cols, sumChannels), 1}, [3]int{1024}, 0, y.Ptr, y.stride(), x.Ptr, x.stride(), seg.Ptr, y.Cols)
	return nil
}

// partsOf is how many parts of each sequence of the segments a value has a row for.
func partsOf(x, seg *Tensor) int { return x.Rows() / max(1, seg.Rows()) }

func convStates(c *Call) error {
	u, state, seg, before := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0]
	channels, keep := u.Dims[1], u.Dims[2]
	if keep == 0 {
		return nil
	}
	c.launch("conv_"+format(state.DType), "conv1d_states", [3]int{seg.Rows(), ceilDiv(channels, convChannels), 1}, [3]int{convChannels}, 0,
		Struct{before.Ptr, before.stride(), u.Ptr, u.stride(), state.Ptr, state.stride(), seg.Ptr, seg.Rows(), partsOf(u, seg), channels, keep})
	return nil
}

// passScans is for both scans: rates are a row for each channel, or one number for each head.
func passScans(c *Call) error {
	sums, u, a, state, seg, before := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Results[0]
	if sums.Cols == 0 {
		return nil
	}
	n, each := before.Cols/sums.Cols, min(a.Cols-1, 1)
	if each == 1 && n%4 == 0 && aligned(a) {
		each = 4
	}
	grid, block := elementGrid(seg.Rows(), before.Cols)
	c.launch("scan_"+format(state.DType), "scan_states", grid, block, 0, Struct{before.Ptr, before.stride(), sums.Ptr, sums.stride(), u.Ptr, u.stride(),
		a.Ptr, a.stride(), each, state.Ptr, state.stride(), seg.Ptr, seg.Rows(), partsOf(u, seg), before.Cols, n, aligned(u, state, before)})
	return nil
}

func deltaStates(c *Call) error {
	m, u, state, seg, before := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Results[0]
	heads, n, size := u.Dims[1], u.Dims[2], u.Dims[3]
	if n > deltaMost {
		return fmt.Errorf("delta_states has heads of keys of %d; CUDA kernels take up to %d: run it on the CPU", n, deltaMost)
	}
	c.launch("delta_"+format(state.DType), "delta_states", [3]int{seg.Rows(), heads, ceilDiv(size, deltaColumns)}, [3]int{32 * min(passWarps, ceilDiv(n, passRows))}, 2*n*deltaColumns*graph.F32.Bytes(),
		Struct{before.Ptr, m.Ptr, u.Ptr, state.Ptr, seg.Ptr, before.stride(), m.stride(), u.stride(), state.stride(), seg.Rows(), partsOf(u, seg), n, size, n%4 == 0 && aligned(m)})
	return nil
}
