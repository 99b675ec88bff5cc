package cuda

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"conv1d":         {launch: conv1d, accepts: convAccepts(3)},
	"selective_scan": {launch: selective(plainSelective), scratch: selectiveScratch(plainSelective), accepts: selectiveAccepts(2, 6, 0, 7), pieces: selectiveInPieces(plainSelective)},
	"conv1d_silu":    {launch: convSilu, accepts: convAccepts(4)},

	"unbiased_conv1d_silu": {launch: unbiasedConvSilu, accepts: convAccepts(3)},

	"selective_scan_gated":       {launch: selective(gatedSelective), scratch: selectiveScratch(gatedSelective), accepts: selectiveAccepts(3, 9, 0, 7, 10), pieces: selectiveInPieces(gatedSelective)},
	"selective_scan_projected":   {launch: selective(projectedSelective), parts: selectiveParts(4, 10)},
	"selective_scan_normed":      {launch: selective(normedSelective), parts: selectiveParts(5, 13)},
	"selective_scan_unit_normed": {launch: selective(unitNormedSelective), parts: selectiveParts(4, 10)},
})

const (
	convChannels = 128 // of a block
	convTokens   = 32  // of a piece
	fastWidth    = 4   // of the filters that have a kernel of their own
	scanChannels = 32  // of a block
	manyChannels = 64  // of a block where a thread has a channel
	scanStates   = 64  // that fit the registers of the kernel for whole segments
	fewStates    = 16  // of the kernels for single tokens, for activations in bf16 and for pieces
	scanEach     = 4   // sequences of a block of the kernel for single tokens

	scanProjected = 8 // sequences up to which a kernel also computes the product of the steps

	scanPiece = 128 // tokens of a piece of a segment
)

// pieces is how many pieces of size tokens t tokens of s sequences can make.
func pieces(t, s, size int) int { return min(t, (t+s*(size-1))/size) }

func conv1d(c *Call) error { return c.convolve(&c.Args[2], &c.Args[3], false, 0) }

func convSilu(c *Call) error { return c.convolve(&c.Args[3], &c.Args[4], true, c.Args[2].Ptr) }

func unbiasedConvSilu(c *Call) error { return c.convolve(&c.Args[2], &c.Args[3], true, 0) }

// convAccepts: x and y, where sequences, which are operand seg, have several tokens and filters the
// usual width.
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
func (c *Call) convolve(state, seg *Tensor, silu bool, bias uint64) error {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	t, s, width := y.Rows(), seg.Rows(), w.Cols
	blocks, module := ceilDiv(y.Cols, convChannels), "conv_"+format(state.DType)
	grid, block := [3]int{s, blocks, 1}, [3]int{convChannels}
	args := Struct{y.Ptr, y.stride(), x.Ptr, x.stride(), w.Ptr, w.stride(), state.Ptr, state.stride(), seg.Ptr, s, y.Cols, width, bias, silu}
	if c.oneEach(seg) {
		c.launch(module, "conv1d_update", grid, block, 0, args)
		return nil
	}
	function := "conv1d_pieces"
	if width == fastWidth {
		function = x.suffixed("conv1d_pieces_4")
	}
	c.launch(module, function, [3]int{pieces(t, s, convTokens), blocks, 1}, block, 0, args)
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

// scanNorms are the norms of x, B and C where they are fused with a scan; without weights nil.
type scanNorms struct{ x, b, c *Tensor }

// weights are the addresses of x's, B's and C's; 0: without.
func (n *scanNorms) weights() (x, b, c uint64) {
	if n == nil || n.x == nil {
		return 0, 0, 0
	}
	return n.x.Ptr, n.b.Ptr, n.c.Ptr
}

// aligned reports whether the weights are, as far as there are any.
func (n *scanNorms) aligned() bool {
	x, b, c := n.weights()
	return (x|b|c)%16 == 0
}

// params are the norms as the kernel takes them; nil: there are none.
func (n *scanNorms) params(attrs graph.Attrs) Struct {
	if n == nil {
		return Struct{uint64(0), uint64(0), uint64(0), float32(0), false}
	}
	x, b, c := n.weights()
	return Struct{x, b, c, float32(attrs.Float("eps")), true}
}

// selectiveArgs is a selective scan: its operands, of dt either the values or what they are
// the product of, and the place of the state and the segments among the call's operands.
type selectiveArgs struct {
	u, dt, x, w, a, b, c *Tensor
	state, seg           int
	gate                 *gate
	norms                *scanNorms
}

// plainSelective is selective_scan: u dt A B C h seg.
func plainSelective(a []Tensor) *selectiveArgs {
	return &selectiveArgs{u: &a[0], dt: &a[1], a: &a[2], b: &a[3], c: &a[4], state: 5, seg: 6}
}

// gatedSelective: u dt b A B C D z h seg.
func gatedSelective(a []Tensor) *selectiveArgs {
	return &selectiveArgs{u: &a[0], dt: &a[1], a: &a[3], b: &a[4], c: &a[5], state: 8, seg: 9, gate: &gate{&a[2], &a[6], &a[7]}}
}

// projectedSelective: u x w b A B C D z h seg, of a token per sequence.
func projectedSelective(a []Tensor) *selectiveArgs {
	return &selectiveArgs{u: &a[0], x: &a[1], w: &a[2], a: &a[4], b: &a[5], c: &a[6], state: 9, seg: 10, gate: &gate{&a[3], &a[7], &a[8]}}
}

// normedSelective: u x v w b A B p C q D z h seg.
func normedSelective(a []Tensor) *selectiveArgs {
	return &selectiveArgs{u: &a[0], x: &a[1], w: &a[3], a: &a[5], b: &a[6], c: &a[8], state: 12, seg: 13, gate: &gate{&a[4], &a[10], &a[11]},
		norms: &scanNorms{&a[2], &a[7], &a[9]}}
}

// unitNormedSelective: u x w b A B C D z h seg.
func unitNormedSelective(a []Tensor) *selectiveArgs {
	o := projectedSelective(a)
	o.norms = &scanNorms{}
	return o
}

// selectiveParts reports whether the product and the norms are launches of their own: for many
// sequences and for prompts, where the product then reads its weight once, for weights in blocks,
// and for more states than a channel's lanes have. The rates are operand a, the segments seg.
func selectiveParts(a, seg int) func(c *Call) bool {
	return func(c *Call) bool {
		blocks := slices.ContainsFunc(c.Args, func(t Tensor) bool { return t.Blocks != nil })
		return c.Options.Invariant || blocks || !c.tokenEach(seg) || c.Args[a].Cols > fewStates || c.Args[seg].Rows() > scanProjected
	}
}

// selectiveAccepts: what comes from the convolution, what gates and what is put out, of whole
// segments; dt, B and C stay in f32. The operands a and seg are where the rates and the segments
// are.
func selectiveAccepts(a, seg int, which ...int) func(c *Call) []int {
	return func(c *Call) []int {
		if c.tokenEach(seg) || c.Args[a].Cols > fewStates {
			return nil
		}
		return c.together(which...)
	}
}

func selective(of func(args []Tensor) *selectiveArgs) func(c *Call) error {
	return func(c *Call) error { return c.selective(of(c.Args)) }
}

func (c *Call) selective(o *selectiveArgs) error {
	state, seg := &c.Args[o.state], &c.Args[o.seg]
	each := c.tokenEach(o.seg)
	launch := func(function string, each int, state *Tensor, arg Struct) {
		grid := [3]int{ceilDiv(seg.Rows(), each), ceilDiv(c.Results[0].Cols, scanChannels), 1}
		c.launch("scan_"+format(state.DType), function, grid, [3]int{4 * scanChannels}, 0, arg)
	}
	switch n := o.a.Cols; {
	case o.w != nil:
		launch("selective_scan_token_"+format(o.w.DType), 1, state, Struct{c.scan(o, state, 0, 0), o.x.Ptr, o.x.stride(), o.w.Ptr, o.w.stride(), o.w.Cols,
			aligned(o.x, o.w) && o.norms.aligned(), o.norms.params(c.Attrs)})
	case each && n <= fewStates && o.inFours(state):
		launch("selective_scan_each", scanEach, state, c.scan(o, state, 0, 0))
	case each || n > scanStates:
		return c.steps(o.state, o.seg, func(state *Tensor) { launch("selective_scan_steps", 1, state, c.scan(o, state, 0, 0)) })
	default:
		c.wholeSegments(o)
	}
	return nil
}

// inFours reports whether states, and what goes with them, are aligned fours.
func (o *selectiveArgs) inFours(state *Tensor) bool {
	return o.a.Cols%4 == 0 && aligned(o.a, o.b, o.c, state) && o.norms.aligned()
}

// scan is what all kernels of the scan are given, with the states of pieces and their sums of
// steps; 0: there are no pieces.
func (c *Call) scan(o *selectiveArgs, state *Tensor, starts, sums uint64) Struct {
	y, seg, n, dt := &c.Results[0], &c.Args[o.seg], o.a.Cols, o.dt
	if dt == nil {
		dt = &Tensor{}
	}
	first, each, skip := groupsOf(&o.u.Tensor, &o.b.Tensor, n)
	arg := Struct{y.Ptr, y.stride(), o.u.Ptr, o.u.stride(), dt.Ptr, dt.stride(), o.a.Ptr, o.a.stride(), o.b.Ptr, o.b.stride(), o.c.Ptr, o.c.stride(),
		state.Ptr, state.stride(), seg.Ptr, seg.Rows(), y.Cols, n, o.inFours(state)}
	return append(append(arg, o.gate.params()...), starts, sums, Struct{first, each, skip})
}

// wholeSegments launches scans of segments, or of their pieces.
func (c *Call) wholeSegments(o *selectiveArgs) {
	state, seg, n, cols := &c.Args[o.state], &c.Args[o.seg], o.a.Cols, c.Results[0].Cols
	states, kind, grid, block := 16, "", [3]int{seg.Rows(), o.scanBlocks(scanChannels), 1}, [3]int{4 * scanChannels}
	for states < n {
		states *= 2
	}
	p := c.selectivePieces(o)
	if p > 0 || n <= fewStates && seg.Rows()*o.scanBlocks(manyChannels) >= scanEnough {
		kind, grid[1], block = "thread_", o.scanBlocks(manyChannels), [3]int{manyChannels}
	}
	starts, sums := uint64(0), uint64(0)
	if p > 0 {
		starts, sums, grid[0] = c.Scratch, c.Scratch+uint64(4*p*cols*n), p
	}
	function, arg := o.u.suffixed(fmt.Sprint("selective_scan_", kind, states)), c.scan(o, state, starts, sums)
	if y := &c.Results[0]; y.InPieces {
		function += "_apart"
		arg[1] = int64(y.Rows() * cols)
	}
	module := "scan_" + format(state.DType)
	if p > 0 {
		c.launch(module, o.u.suffixed("selective_scan_ends_16"), grid, block, 0, arg)
		c.launch(module, "selective_scan_starts", [3]int{seg.Rows(), ceilDiv(cols*n, 128), 1}, [3]int{128}, 0, arg)
	}
	c.launch(module, function, grid, block, 0, arg)
}

// selectiveInPieces: kernels of whole segments and pieces of up to fewStates states give theirs in
// rows of eights.
func selectiveInPieces(of func(args []Tensor) *selectiveArgs) func(c *Call) []int {
	return func(c *Call) []int {
		if o := of(c.Args); c.Results[0].Cols%8 == 0 && !c.tokenEach(o.seg) && o.a.Cols <= fewStates {
			return []int{len(c.Args)}
		}
		return nil
	}
}

// scanBlocks is how many blocks a whole segment has, of the given number of channels.
func (o *selectiveArgs) scanBlocks(channels int) int {
	n := o.a.Cols
	_, each, _ := groupsOf(&o.u.Tensor, &o.b.Tensor, n)
	return o.b.Cols / n * ceilDiv(each, channels)
}

// scanEnough is how many blocks of a thread per channel are enough: two warps for each scheduler of
// the 132 multiprocessors of large GPUs. With fewer, segments are scanned in pieces, which reads
// steps, inputs and B twice, or by four lanes per channel. Tests change it.
var scanEnough = 4 * 132

// scanPieces is how many pieces segments must have on average for two more launches to be worth it,
// and twice as many for selective scans, whose pieces are short. Tests make it smaller.
var scanPieces = 4

// selectivePieces is how many pieces the segments can have that are scanned beside each other,
// where whole ones are too few blocks for a GPU; 0: whole ones are.
func (c *Call) selectivePieces(o *selectiveArgs) int {
	n, t, s := o.a.Cols, c.Results[0].Rows(), c.Args[o.seg].Rows()
	if c.Options.Invariant || n > fewStates || n == 0 || t < 2*scanPieces*scanPiece*s {
		return 0
	}
	if s*o.scanBlocks(manyChannels) >= scanEnough {
		return 0
	}
	return pieces(t, s, scanPiece)
}

// selectiveScratch is for the states and the steps of pieces, or for [Call.steps].
func selectiveScratch(of func(args []Tensor) *selectiveArgs) func(c *Call) int64 {
	return func(c *Call) int64 {
		o := of(c.Args)
		if o.a.Cols > scanStates {
			return c.stepsScratch(o.state, o.seg)
		}
		return 4 * int64(c.selectivePieces(o)) * int64(c.Results[0].Cols) * int64(o.a.Cols+1)
	}
}

// tokenEach reports whether each sequence of the segments, which are operand seg, has
// one token.
func (c *Call) tokenEach(seg int) bool { return c.Options.Decode || c.oneEach(&c.Args[seg]) }

// oneEach reports whether tokens as many as sequences are one of each: of parts of sequences, a
// rank may have several of one and none of others.
func (c *Call) oneEach(seg *Tensor) bool {
	y := &c.Results[0]
	return y.Rows() == seg.Rows() && !slices.ContainsFunc(y.Parts, func(r graph.Run) bool { return r.Len > 1 })
}

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
