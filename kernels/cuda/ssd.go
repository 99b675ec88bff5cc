package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"ssd_scan":       {launch: ssd(plainSSD), scratch: ssdScratch(plainSSD), accepts: ssdAccepts(5, 6, 0, 1, 3, 4, 7)},
	"ssd_scan_gated": {launch: ssd(gatedSSD), scratch: ssdScratch(gatedSSD), accepts: ssdAccepts(8, 9, 0, 1, 4, 5, 7, 10)},
})

const (
	ssdChannels  = 32  // of a block for whole segments
	ssdStates    = 256 // that fit its shared memory
	ssdStepsRows = 16  // of a block for single tokens
	ssdMMATokens = 64  // of a chunk in bf16 on tensor cores
	ssdTokens    = 32  // of others, where shared memory is not short
)

// ssdKernel is a kernel for whole segments: tokens of a chunk, and bytes of shared memory.
type ssdKernel struct {
	function       string
	tokens, shared int
	module         string // "": ssd, of blocks of 256 threads; others' have 128, on tensor cores
	apart          bool   // C Bᵀ is made before, once for all heads of a group
	ends           string // the kernel for what pieces of segments add
}

// ssdKernels, the fastest first, of bytes beside B, C and the state.
var ssdKernels = []ssdKernel{{function: "ssd_scan_chunks", ends: "ssd_scan_ends", tokens: ssdTokens, shared: 10240},
	{function: "ssd_scan_chunks_16", ends: "ssd_scan_ends_16", tokens: 16, shared: 5120}}

// ssdApart and ssdMMAApart are from how many tokens times blocks on C Bᵀ is made before: by count,
// it then saves as much as a launch costs. Tests make them smaller.
var ssdApart, ssdMMAApart = 24 << 10, 600 << 10

// ssdMMAShared is the shared memory of the kernels on tensor cores in bf16, by states.
var ssdMMAShared = map[int]int{128: 60416, 256: 99 << 10}

// ssdSplitStates is up to how many states scans have the accuracy of f32 on tensor cores, and
// ssdSplitShared their shared memory.
const ssdSplitStates, ssdSplitShared = 128, 69920

// ssdArgs is a scan with a rate per head, and where its state and segments are among the
// call's operands.
type ssdArgs struct {
	x, dt, a, b, c *Tensor
	state, seg     int
	gate           *gate
	least, most    float64 // of steps, with a gate
}

// plainSSD is ssd_scan: x dt A B C h seg.
func plainSSD(c *Call) *ssdArgs {
	a := c.Args
	return &ssdArgs{x: &a[0], dt: &a[1], a: &a[2], b: &a[3], c: &a[4], state: 5, seg: 6}
}

// gatedSSD: x dt b A B C D z h seg.
func gatedSSD(c *Call) *ssdArgs {
	a := c.Args
	return &ssdArgs{&a[0], &a[1], &a[3], &a[4], &a[5], 8, 9, &gate{&a[2], &a[6], &a[7]}, c.Attrs.Float("min"), c.Attrs.Float("max")}
}

// ssdAccepts: all that comes and goes with tokens, on tensor cores. What becomes a step is rounded
// with the rest of in_proj's result, of which it is a field; softplus and all that follows is in
// f32.
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

// ssdVec says what is aligned: x, B, C and the state, and for tensor cores y and z, too.
func (c *Call) ssdVec(o *ssdArgs) (vec, out bool) {
	state := &c.Args[o.state]
	vec = state.Dims[3]%4 == 0 && state.Dims[2]%4 == 0 && aligned(o.x, o.b, o.c, state)
	return vec, vec && aligned(&c.Results[0]) && (o.gate == nil || aligned(o.gate.z))
}

// ssdKernel is the fastest kernel whose shared memory a block may have; without a function, where
// each sequence has one token or there is none: the one that goes token by token.
func (c *Call) ssdKernel(o *ssdArgs) ssdKernel {
	dims := &c.Args[o.state].Dims
	n := dims[3]
	vec, _ := c.ssdVec(o)
	work := c.Results[0].Rows() * o.dt.Cols * ceilDiv(dims[2], ssdChannels)
	if c.Options.Invariant {
		work = 0 // C Bᵀ is not apart for its number
	}
	switch {
	case c.tokenEach(o.seg) || n > ssdStates || n == 0:
		return ssdKernel{}
	case c.ssdMMA(n, vec):
		states := ssdMMAStates(n)
		return ssdKernel{function: o.x.suffixed(fmt.Sprint("ssd_mma_", states)), ends: o.x.suffixed(fmt.Sprint("ssd_mma_ends_", states)),
			tokens: ssdMMATokens, shared: ssdMMAShared[states], module: "ssd_mma", apart: work >= ssdMMAApart}
	case vec && n <= ssdSplitStates && c.fits(ssdSplitShared):
		return ssdKernel{function: "ssd_split", ends: "ssd_split_ends", tokens: ssdTokens, shared: ssdSplitShared, module: "ssd_split", apart: true}
	}
	for _, k := range ssdKernels {
		k.apart = work >= ssdApart
		if k.shared += (2*k.tokens + ssdChannels) * 4 * (ceilDiv(n, 4)*4 + 4); c.fits(k.shared) {
			return k
		}
	}
	return ssdKernel{}
}

func ssd(of func(c *Call) *ssdArgs) func(c *Call) error {
	return func(c *Call) error { return c.ssd(of(c)) }
}

func (c *Call) ssd(o *ssdArgs) error {
	x, dt, state, seg, y := o.x, o.dt, &c.Args[o.state], &c.Args[o.seg], &c.Results[0]
	s, heads, size, n := seg.Rows(), dt.Cols, state.Dims[2], state.Dims[3]
	first, each, skip := groupsOf(&dt.Tensor, &o.b.Tensor, n)
	k := c.ssdKernel(o)
	scores, apart := c.ssdScores(o, k)
	p := c.ssdPieces(o, k)
	launch := func(module, function string, grid, block [3]int, shared, vec int, state *Tensor) {
		args := Struct{y.Ptr, x.Ptr, dt.Ptr, o.a.Ptr, o.b.Ptr, o.c.Ptr, state.Ptr, seg.Ptr,
			y.stride(), x.stride(), dt.stride(), o.b.stride(), o.c.stride(), state.stride(), size, n, Struct{first, each, skip}, vec, float32(o.least), float32(o.most)}
		args = append(append(args, o.gate.params()...), scores, apart, p.starts, p.decays, p.tokens, s, heads)
		c.launch(module+"_"+format(state.DType), function, grid, block, shared, args)
	}
	vec, out := c.ssdVec(o)
	if k.function == "" {
		return c.steps(o.state, o.seg, func(state *Tensor) { // which need no shared memory
			launch("ssd", "ssd_scan_steps", [3]int{s, heads, ceilDiv(size, ssdStepsRows)}, [3]int{128}, 0, alignment(vec, false), state)
		})
	}
	module, grid, block, bits := "ssd", [3]int{s, heads, ceilDiv(size, ssdChannels)}, [3]int{256}, alignment(vec, false)
	if k.module != "" {
		module, block, bits = k.module, [3]int{128}, alignment(vec, out)
	}
	if p.count > 0 {
		grid[0] = p.count
		launch(module, k.ends, grid, block, k.shared, bits, state)
		launch("ssd", "ssd_scan_starts", [3]int{s, heads, ceilDiv(size*n, 128)}, [3]int{128}, 0, bits, state)
	}
	launch(module, k.function, grid, block, k.shared, bits, state)
	return nil
}

// ssdPiece is how many tokens a piece of a segment has, a multiple of a chunk's, or twice as many
// where these fill a large GPU, of scanFull multiprocessors: the fewer, the more often states are
// read and written, which are large. Tests change both.
var ssdPiece, scanFull = 256, 132

// ssdBlocks is how many blocks are enough. By count, pieces take 1.7 times as many instructions as
// whole segments, so that they gain where blocks of these are on less than 1 / 1.7 of the 132
// multiprocessors of large GPUs. On tensor cores pieces take 2.4 times as long as whole segments
// would on all of a GPU.
const ssdBlocks, ssdMMABlocks = 77, 54

// piecesOf is pieces of segments, of a number of tokens each, and where their states and decays
// are.
type piecesOf struct {
	count, tokens  int
	starts, decays uint64
}

// ssdPieces are those that are scanned beside each other, where whole segments are too few blocks
// for a GPU; none: whole ones are. See [Call.selectivePieces].
func (c *Call) ssdPieces(o *ssdArgs, k ssdKernel) piecesOf {
	t, s, dims := c.Results[0].Rows(), c.Args[o.seg].Rows(), &c.Args[o.state].Dims
	heads, size, n := o.dt.Cols, dims[2], dims[3]
	blocks, few := heads*ceilDiv(size, ssdChannels), ssdBlocks
	if k.module == "ssd_mma" {
		few = ssdMMABlocks
	}
	if c.Options.Invariant || k.function == "" || t < scanPieces*ssdPiece*s || s*blocks >= few {
		return piecesOf{}
	}
	p := piecesOf{tokens: ssdPiece, starts: c.Scratch + uint64(c.ssdScoreBytes(o, k))}
	if t/(2*ssdPiece)*blocks >= scanFull {
		p.tokens *= 2
	}
	p.count = pieces(t, s, p.tokens)
	p.decays = p.starts + 4*uint64(p.count*heads*size*n)
	return p
}

// ssdScores makes C Bᵀ of the tokens of chunks where that is done apart, and says where it is and
// how far apart its rows are: a row is a token's, and has for each group those with the tokens of
// its chunk, and what ssd_split.h adds to them.
func (c *Call) ssdScores(o *ssdArgs, k ssdKernel) (at uint64, apart int64) {
	if !k.apart {
		return 0, 0
	}
	seg, n := &c.Args[o.seg], c.Args[o.state].Dims[3]
	groups := o.b.Cols / n
	apart = int64(groups * k.scoreCols(n))
	grid := [3]int{pieces(c.Results[0].Rows(), seg.Rows(), k.tokens), groups, 1}
	vec, _ := c.ssdVec(o)
	args := Struct{c.Scratch, apart, o.b.Ptr, o.b.stride(), o.c.Ptr, o.c.stride(), seg.Ptr, seg.Rows(), n, vec}
	switch k.module {
	case "ssd_mma":
		c.launch("ssd_mma_scores", o.x.suffixed("ssd_mma_scores"), grid, [3]int{128}, 0, args)
	case "ssd_split":
		c.launch("ssd_split_scores", "ssd_split_scores", grid, [3]int{128}, 0, args)
	default:
		c.launch("ssd_scores", fmt.Sprint("ssd_scores_", k.tokens), grid, [3]int{256}, 0, args)
	}
	return c.Scratch, apart
}

// ssdScratch is for C Bᵀ and the states and decays of pieces, or for [Call.steps].
func ssdScratch(of func(c *Call) *ssdArgs) func(c *Call) int64 {
	return func(c *Call) int64 {
		o := of(c)
		k := c.ssdKernel(o)
		if k.function == "" {
			return c.stepsScratch(o.state, o.seg)
		}
		dims := &c.Args[o.state].Dims
		return c.ssdScoreBytes(o, k) + 4*int64(c.ssdPieces(o, k).count)*int64(o.dt.Cols)*int64(dims[2]*dims[3]+1)
	}
}

// ssdScoreBytes is how many bytes C Bᵀ takes.
func (c *Call) ssdScoreBytes(o *ssdArgs, k ssdKernel) int64 {
	if !k.apart {
		return 0
	}
	n := c.Args[o.state].Dims[3]
	return 4 * int64(c.Results[0].Rows()) * int64(o.b.Cols/n*k.scoreCols(n))
}

// scoreCols is how many floats a token and a group have in the scratch for C Bᵀ: with the tokens of
// a chunk, and of the kernels in f32 on tensor cores (ssd_split.h) four more, and two f16 for each
// number of B and C.
func (k *ssdKernel) scoreCols(n int) int {
	if k.module == "ssd_split" {
		return k.tokens + 4 + 2*16*ceilDiv(n, 16)
	}
	return k.tokens
}

// fits reports whether a block may have so much shared memory.
func (c *Call) fits(shared int) bool { return c.Options.Shared == 0 || shared <= c.Options.Shared }
