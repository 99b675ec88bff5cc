package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"conv1d":         {launch: conv1d, accepts: convAccepts(3)},
	"selective_scan": {launch: selectiveScan, scratch: selectiveScratch, accepts: selectiveAccepts(2, 6, 0, 7)},
	"ssd_scan":       {launch: ssdScan, scratch: ssdScratch, accepts: ssdAccepts(5, 6, 0, 1, 3, 4, 7)},
	"conv1d_silu":    {launch: convSilu, accepts: convAccepts(4)},

	"selective_scan_gated":     {launch: selectiveGated, scratch: selectiveGatedScratch, accepts: selectiveAccepts(3, 9, 0, 7, 10)},
	"selective_scan_projected": {launch: selectiveProjected, parts: selectiveParts},
	"ssd_scan_gated":           {launch: ssdGated, scratch: ssdGatedScratch, accepts: ssdAccepts(8, 9, 0, 1, 4, 5, 7, 10)},
})

const (
	convChannels = 128 // of a block
	convTokens   = 32  // of a piece
	fastWidth    = 4   // of the filters that have a kernel of their own
	scanChannels = 32  // of a block
	scanStates   = 64  // that fit the registers of the kernel for whole segments
	bf16States   = 16  // of that for activations in bf16

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

// convAccepts: x and y, where sequences, which are operand seg, have several tokens and filters the usual width.
func convAccepts(seg int) func(c *Call) []int {
	return func(c *Call) []int {
		if c.tokenEach(seg) || c.Args[1].Cols != fastWidth {
			return nil
		}
		return c.together(0, len(c.Args))
	}
}

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
	if width == fastWidth {
		function = x.suffixed("conv1d_pieces_4")
	}
	c.launch(module, function, [3]int{pieces(t, s, convTokens), blocks, 1}, block, 0, y.Ptr, y.stride(), x.Ptr, x.stride(), w.Ptr, w.stride(),
		state.Ptr, state.stride(), seg.Ptr, s, y.Cols, width, bias)
	if width > 1 {
		c.launch(module, x.suffixed("conv1d_state"), grid, block, 0, x.Ptr, x.stride(), state.Ptr, state.stride(), seg.Ptr, y.Cols, width)
	}
	return nil
}

// gate is what is done around a scan: steps are softplus(dt + bias), and what is put out
// silu(z) · (y + u d).
type gate struct{ bias, d, z *Tensor }

// params are the gate's as the kernels take them; nil: nothing is done.
func (g *gate) params() []any {
	if g == nil {
		return []any{uint64(0), uint64(0), uint64(0), int64(0)}
	}
	return []any{g.bias.Ptr, g.d.Ptr, g.z.Ptr, g.z.stride()}
}

// selective is a selective scan: its operands, of dt either the values or what they are
// the product of, and the place of the state and the segments among the call's operands.
type selective struct {
	u, dt, x, w, a, b, c *Tensor
	state, seg           int
	gate                 *gate
}

func selectiveScan(c *Call) error {
	a := c.Args
	return c.selective(&selective{u: &a[0], dt: &a[1], a: &a[2], b: &a[3], c: &a[4], state: 5, seg: 6})
}

// selectiveGated: u dt b A B C D z h seg.
func selectiveGated(c *Call) error {
	a := c.Args
	return c.selective(&selective{u: &a[0], dt: &a[1], a: &a[3], b: &a[4], c: &a[5], state: 8, seg: 9, gate: &gate{&a[2], &a[6], &a[7]}})
}

// selectiveProjected: u x w b A B C D z h seg, of a token per sequence.
func selectiveProjected(c *Call) error {
	a := c.Args
	return c.selective(&selective{u: &a[0], x: &a[1], w: &a[2], a: &a[4], b: &a[5], c: &a[6], state: 9, seg: 10, gate: &gate{&a[3], &a[7], &a[8]}})
}

// selectiveParts: the product by itself reads its weight once for many tokens, and a
// prompt's are many.
func selectiveParts(c *Call) bool { return !c.tokenEach(10) || c.Results[0].Rows() > fewRows }

// selectiveAccepts: what comes from the convolution, what gates and what is put out, of whole segments; dt, B and
// C stay in f32. The operands a and seg are where the rates and the segments are.
func selectiveAccepts(a, seg int, which ...int) func(c *Call) []int {
	return func(c *Call) []int {
		if c.tokenEach(seg) || c.Args[a].Cols > bf16States {
			return nil
		}
		return c.together(which...)
	}
}

func (c *Call) selective(o *selective) error {
	u, state, seg, y := o.u, &c.Args[o.state], &c.Args[o.seg], &c.Results[0]
	n, s := o.a.Cols, seg.Rows()
	first, each, skip := groupsOf(&u.Tensor, &o.b.Tensor, n)
	vec := n%4 == 0 && aligned(o.a, o.b, o.c, state)
	launch := func(function string, grid [3]int, state *Tensor, steps ...any) {
		args := append([]any{y.Ptr, y.stride(), u.Ptr, u.stride()}, steps...)
		args = append(args, o.a.Ptr, o.a.stride(), o.b.Ptr, o.b.stride(), o.c.Ptr, o.c.stride(),
			state.Ptr, state.stride(), seg.Ptr, y.Cols, n, vec)
		args = append(append(args, o.gate.params()...), Struct{first, each, skip})
		c.launch("scan_"+format(state.DType), function, grid, [3]int{4 * scanChannels}, 0, args...)
	}
	bySteps := [3]int{s, ceilDiv(y.Cols, scanChannels), 1}
	if o.w != nil {
		launch("selective_scan_token_"+format(o.w.DType), bySteps, state, o.x.Ptr, o.x.stride(), o.w.Ptr, o.w.stride(), o.w.Cols, aligned(o.x, o.w))
		return nil
	}
	if c.tokenEach(o.seg) || n > scanStates {
		return c.steps(o.state, o.seg, func(state *Tensor) {
			launch("selective_scan_steps", bySteps, state, o.dt.Ptr, o.dt.stride())
		})
	}
	states := 16
	for states < n {
		states *= 2
	}
	grid := [3]int{s, o.b.Cols / n * ceilDiv(each, scanChannels), 1}
	launch(u.suffixed(fmt.Sprint("selective_scan_", states)), grid, state, o.dt.Ptr, o.dt.stride())
	return nil
}

// selectiveScratch is for [Call.steps].
func selectiveScratch(c *Call) int64 { return c.selectiveScratch(2, 5, 6) }

func selectiveGatedScratch(c *Call) int64 { return c.selectiveScratch(3, 8, 9) }

func (c *Call) selectiveScratch(rates, state, seg int) int64 {
	if c.Args[rates].Cols <= scanStates {
		return 0
	}
	return c.stepsScratch(state, seg)
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

// ssd is a scan with a rate per head, and where its state and segments are among the
// call's operands.
type ssd struct {
	x, dt, a, b, c *Tensor
	state, seg     int
	gate           *gate
	least, most    float64 // of steps, with a gate
}

func ssdScan(c *Call) error {
	a := c.Args
	return c.ssd(&ssd{x: &a[0], dt: &a[1], a: &a[2], b: &a[3], c: &a[4], state: 5, seg: 6})
}

// ssdGated: x dt b A B C D z h seg.
func ssdGated(c *Call) error {
	a := c.Args
	return c.ssd(&ssd{&a[0], &a[1], &a[3], &a[4], &a[5], 8, 9, &gate{&a[2], &a[6], &a[7]}, c.Attrs.Float("min"), c.Attrs.Float("max")})
}

// ssdAccepts: all that comes and goes with tokens, on tensor cores. What becomes a step is rounded
// with the rest of in_proj's result, of which it is a field; softplus and all that follows is in f32.
func ssdAccepts(state, seg int, which ...int) func(c *Call) []int {
	return func(c *Call) []int {
		x, b, cc, kept := c.value(which[0]), c.value(which[2]), c.value(which[3]), &c.Args[state]
		size, n := kept.Dims[2], kept.Dims[3]
		if c.tokenEach(seg) || size%8 != 0 || n%8 != 0 || !c.ssdMMA(n, aligned(x, b, cc, kept)) {
			return nil
		}
		return c.together(which...)
	}
}

// ssdMMA reports whether the scan of whole segments is done on tensor cores.
func (c *Call) ssdMMA(n int, vec bool) bool {
	return c.Options.Math == BF16 && vec && n <= ssdStates && c.fits(ssdMMAShared[ssdMMAStates(n)])
}

// ssdMMAStates is for how many states the kernel is that does n.
func ssdMMAStates(n int) int {
	if n > 128 {
		return 256
	}
	return 128
}

func (c *Call) ssd(o *ssd) error {
	x, dt, state, seg, y := o.x, o.dt, &c.Args[o.state], &c.Args[o.seg], &c.Results[0]
	s, heads, size, n := seg.Rows(), dt.Cols, state.Dims[2], state.Dims[3]
	first, each, skip := groupsOf(&dt.Tensor, &o.b.Tensor, n)
	vec := n%4 == 0 && size%4 == 0 && aligned(x, o.b, o.c, state)
	launch := func(module, function string, grid, block [3]int, shared int, state *Tensor) {
		args := Struct{y.Ptr, x.Ptr, dt.Ptr, o.a.Ptr, o.b.Ptr, o.c.Ptr, state.Ptr, seg.Ptr,
			y.stride(), x.stride(), dt.stride(), o.b.stride(), o.c.stride(), state.stride(), size, n, Struct{first, each, skip}, vec, float32(o.least), float32(o.most)}
		c.launch(module+"_"+format(state.DType), function, grid, block, shared, append(args, o.gate.params()...))
	}
	grid := [3]int{s, heads, ceilDiv(size, ssdChannels)}
	function, shared := c.ssdChunk(n)
	switch {
	case c.tokenEach(o.seg):
	case c.ssdMMA(n, vec):
		states := ssdMMAStates(n)
		launch("ssd_mma", x.suffixed(fmt.Sprint("ssd_mma_", states)), grid, [3]int{128}, ssdMMAShared[states], state)
		return nil
	case function != "":
		launch("ssd", function, grid, [3]int{256}, shared, state)
		return nil
	}
	return c.steps(o.state, o.seg, func(state *Tensor) { // which need no shared memory
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
func ssdScratch(c *Call) int64 { return c.ssdScratch(5, 6) }

func ssdGatedScratch(c *Call) int64 { return c.ssdScratch(8, 9) }

func (c *Call) ssdScratch(state, seg int) int64 {
	if function, _ := c.ssdChunk(c.Args[state].Dims[3]); function != "" {
		return 0
	}
	return c.stepsScratch(state, seg)
}

// fits reports whether a block may have so much shared memory.
func (c *Call) fits(shared int) bool { return c.Options.Shared == 0 || shared <= c.Options.Shared }
