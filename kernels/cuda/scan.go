package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"conv1d":         {launch: conv1d},
	"selective_scan": {launch: selectiveScan, scratch: selectiveScratch},
	"ssd_scan":       {launch: ssdScan, scratch: ssdScratch},
	"conv1d_silu":    {launch: convSilu},
})

const (
	convChannels = 128 // of a block
	convTokens   = 32  // of a piece
	scanChannels = 32  // of a block
	scanStates   = 64  // that fit the registers of the kernel for whole segments

	ssdChannels  = 32  // of a block for whole segments
	ssdStates    = 256 // that fit its shared memory
	ssdStepsRows = 16  // of a block for single tokens
)

// ssdChunks are the kernels for whole segments, the fastest first: tokens of a
// chunk, and bytes of shared memory beside B, C and the state.
var ssdChunks = []struct {
	function      string
	tokens, bytes int
}{{"ssd_scan_chunks", 32, 9344}, {"ssd_scan_chunks_16", 16, 3648}}

// ssdMMAShared is the shared memory of the kernels on tensor cores, by states.
var ssdMMAShared = map[int]int{128: 54784, 256: 95744}

// pieces is how many pieces of size tokens t tokens of s sequences can make.
func pieces(t, s, size int) int { return min(t, t/size+s) }

func conv1d(c *Call) error { return c.convolve(&c.Args[2], &c.Args[3], 0) }

func convSilu(c *Call) error { return c.convolve(&c.Args[3], &c.Args[4], c.Args[2].Ptr) }

// convolve is in two steps where sequences have several tokens: blocks of one
// sequence read the old state, so that only a later launch may write the new.
// Without a bias, its address is 0.
func (c *Call) convolve(state, seg *Tensor, bias uint64) error {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	t, s, width := y.Rows(), seg.Rows(), w.Cols
	blocks, module := ceilDiv(y.Cols, convChannels), "conv_"+format(state.DType)
	grid, block := [3]int{s, blocks, 1}, [3]int{convChannels}
	if t == s {
		c.launch(module, "conv1d_update", grid, block, 0, y.Ptr, y.stride(), x.Ptr, x.stride(), w.Ptr, w.stride(),
			state.Ptr, state.stride(), seg.Ptr, y.Cols, width, bias)
		return nil
	}
	function := "conv1d_pieces"
	if width == 4 {
		function = "conv1d_pieces_4"
	}
	c.launch(module, function, [3]int{pieces(t, s, convTokens), blocks, 1}, block, 0, y.Ptr, y.stride(), x.Ptr, x.stride(), w.Ptr, w.stride(),
		state.Ptr, state.stride(), seg.Ptr, s, y.Cols, width, bias)
	if width > 1 {
		c.launch(module, "conv1d_state", grid, block, 0, x.Ptr, x.stride(), state.Ptr, state.stride(), seg.Ptr, y.Cols, width)
	}
	return nil
}

func selectiveScan(c *Call) error {
	u, dt, a, b, cc, state, seg := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], &c.Args[6]
	y, n, s := &c.Results[0], c.Args[2].Cols, c.Args[6].Rows()
	first, each, skip := groupsOf(&dt.Tensor, &b.Tensor, n)
	vec := n%4 == 0 && aligned(a, b, cc, state)
	launch := func(function string, grid [3]int, state *Tensor) {
		c.launch("scan_"+format(state.DType), function, grid, [3]int{4 * scanChannels}, 0,
			y.Ptr, y.stride(), u.Ptr, u.stride(), dt.Ptr, dt.stride(), a.Ptr, a.stride(), b.Ptr, b.stride(), cc.Ptr, cc.stride(),
			state.Ptr, state.stride(), seg.Ptr, y.Cols, n, vec, Struct{first, each, skip})
	}
	if c.tokenEach(6) || n > scanStates {
		return c.steps(5, 6, func(state *Tensor) {
			launch("selective_scan_steps", [3]int{s, ceilDiv(y.Cols, scanChannels), 1}, state)
		})
	}
	states := 16
	for states < n {
		states *= 2
	}
	grid := [3]int{s, b.Cols / n * ceilDiv(each, scanChannels), 1}
	launch(fmt.Sprint("selective_scan_", states), grid, state)
	return nil
}

// selectiveScratch is for [Call.steps].
func selectiveScratch(c *Call) int64 {
	if c.Args[2].Cols <= scanStates {
		return 0
	}
	return c.stepsScratch(5, 6)
}

// tokenEach reports whether each sequence of the segments, which are operand seg, has
// one token.
func (c *Call) tokenEach(seg int) bool { return c.Results[0].Rows() == c.Args[seg].Rows() }

// steps launches a kernel that does token by token with the state in memory. Of a
// prompt it gets the states of all slots in f32: kept in 16 bits, they would be rounded
// at every token.
func (c *Call) steps(state, seg int, launch func(state *Tensor)) error {
	kept := &c.Args[state]
	if c.stepsScratch(state, seg) == 0 {
		launch(kept)
		return nil
	}
	wide := *kept
	wide.DType, wide.Stride, wide.Ptr = graph.F32, kept.Cols, c.Scratch
	if err := c.convert(&wide, kept); err != nil {
		return err
	}
	launch(&wide)
	return c.convert(kept, &wide)
}

func (c *Call) stepsScratch(state, seg int) int64 {
	if kept := &c.Args[state]; kept.DType != graph.F32 && !c.tokenEach(seg) {
		return 4 * int64(kept.Rows()) * int64(kept.Cols)
	}
	return 0
}

func ssdScan(c *Call) error {
	x, dt, a, b, cc, state, seg := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], &c.Args[6]
	y, s := &c.Results[0], c.Args[6].Rows()
	heads, size, n := dt.Cols, state.Dims[2], state.Dims[3]
	first, each, skip := groupsOf(&dt.Tensor, &b.Tensor, n)
	vec := n%4 == 0 && size%4 == 0 && aligned(x, b, cc, state)
	launch := func(module, function string, grid, block [3]int, shared int, state *Tensor) {
		c.launch(module+"_"+format(state.DType), function, grid, block, shared, Struct{y.Ptr, x.Ptr, dt.Ptr, a.Ptr, b.Ptr, cc.Ptr, state.Ptr, seg.Ptr,
			y.stride(), x.stride(), dt.stride(), b.stride(), cc.stride(), state.stride(), size, n, Struct{first, each, skip}, vec})
	}
	states := 128
	if n > states {
		states = 256
	}
	grid := [3]int{s, heads, ceilDiv(size, ssdChannels)}
	function, shared := c.ssdChunk(n)
	switch {
	case c.tokenEach(6):
	case c.Options.Math == BF16 && vec && n <= ssdStates && c.fits(ssdMMAShared[states]):
		launch("ssd_mma", fmt.Sprint("ssd_mma_", states), grid, [3]int{128}, ssdMMAShared[states], state)
		return nil
	case function != "":
		launch("ssd", function, grid, [3]int{256}, shared, state)
		return nil
	}
	return c.steps(5, 6, func(state *Tensor) { // which need no shared memory
		launch("ssd", "ssd_scan_steps", [3]int{s, heads, ceilDiv(size, ssdStepsRows)}, [3]int{128}, 0, state)
	})
}

// ssdChunk is the fastest kernel for whole segments whose shared memory a block may
// have, and how much that is; "": none.
func (c *Call) ssdChunk(n int) (function string, shared int) {
	for _, k := range ssdChunks {
		if shared := k.bytes + (2*k.tokens+ssdChannels)*4*(ceilDiv(n, 4)*4+4); n <= ssdStates && c.fits(shared) {
			return k.function, shared
		}
	}
	return "", 0
}

// ssdScratch is for [Call.steps].
func ssdScratch(c *Call) int64 {
	if function, _ := c.ssdChunk(c.Args[5].Dims[3]); function != "" {
		return 0
	}
	return c.stepsScratch(5, 6)
}

// fits reports whether a block may have so much shared memory.
func (c *Call) fits(shared int) bool { return c.Options.Shared == 0 || shared <= c.Options.Shared }
