package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"router":  {launch: router},
	"experts": expertsKernel(true),

	"sigmoid_router":  {launch: sigmoidRouter},
	"ungated_experts": expertsKernel(false),

	"norm_router":         {launch: normRouter, parts: routerParts},
	"add_experts":         expertsKernel(true),
	"add_ungated_experts": expertsKernel(false),
})

func sigmoidRouter(c *Call) error {
	x, bias, y := &c.Args[0], &c.Args[1], &c.Results[0]
	if y.Cols == 0 {
		return nil
	}
	c.launch("experts", "sigmoid_router", [3]int{y.Rows(), 1, 1}, [3]int{128}, 0,
		Struct{y.Ptr, y.stride(), x.Ptr, x.stride(), bias.Ptr, x.Cols, c.Attrs.Int("top"), c.Attrs.Int("norm") == 1,
			c.Attrs.Int("groups"), c.Attrs.Int("kept"), float32(c.Attrs.Float("eps"))})
	return nil
}

func router(c *Call) error {
	x, y := &c.Args[0], &c.Results[0]
	if y.Cols == 0 {
		return nil
	}
	c.launch("experts", "router", [3]int{y.Rows(), 1, 1}, [3]int{128}, 0,
		y.Ptr, y.stride(), x.Ptr, x.stride(), x.Cols, c.Attrs.Int("top"), c.Attrs.Int("norm") == 1)
	return nil
}

// The tiles of experts on tensor cores.
const (
	expertsMany          = 64 // rows of an expert; with more, tiles of expertRows are faster
	fewPass, fewCols     = 32, 64
	mmaRows, mmaCols     = 128, 128
	splitRows, splitCols = 64, 128 // of numbers that are taken apart
	splitWide            = 256     // columns, by bf16
)

// routerBytes is how large a router's weight may be that a block reads for each token, and
// routerExperts how many experts it may have.
const routerBytes, routerExperts = 128 << 10, 1024

// routerParts: a norm, a product and a router are one launch where tokens are few and the weight is
// small.
func routerParts(c *Call) bool {
	w := &c.Args[2]
	return c.Options.Invariant || w.Blocks != nil || c.Results[0].Rows() > gemvRows || w.Rows()*w.Cols*w.DType.Bytes() > routerBytes || w.Rows() > routerExperts
}

func normRouter(c *Call) error {
	x, g, w, n, p := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0], &c.Results[1]
	if p.Cols == 0 || n.Cols == 0 {
		return nil
	}
	c.launch("norm_router_"+format(w.DType), "norm_router", [3]int{p.Rows(), 1, 1}, [3]int{1024}, 0,
		Struct{n.Ptr, n.stride(), p.Ptr, p.stride(), x.Ptr, x.stride(), g.Ptr, w.Ptr, w.stride(), n.Cols, p.Cols, c.Attrs.Int("top"), c.Attrs.Int("norm") == 1,
			aligned(x, w, n) && g.Ptr%16 == 0 && n.Cols%8 == 0, float32(c.Attrs.Float("eps"))})
	return nil
}

// expertActs are what experts may apply to their gate, by the numbers of kernels.
var expertActs = map[string]int{"silu": 1, "gelu": 2, "gelu_tanh": 3, "relu": 4, "relu2": 5}

// mixture is a call of experts, its sizes, and where its scratch memory lies.
type mixture struct {
	x, p, gate, up, down, y *Tensor // up is nil without a gate: the function is of up's product
	sum                     *Tensor // what is added; nil: nothing

	tokens, experts, hidden, width, cols int
	// room is how many experts of a token there is room for; step is how many
	// tokens are done at a time.
	room, step int
	by         productsBy

	counts, lists, in, units, spread, out uint64 // from the beginning of the scratch
	bytes                                 int64
}

// productsBy is how a mixture's products are computed.
type productsBy int

const (
	byPasses  productsBy = iota // few tokens: each weight is read once for eight of them
	byTiles                     // many, in f32
	byTensors                   // many, of bf16: what goes from product to product is in that format
)

// Tests make these smaller.
var (
	// anyExperts is the memory that may be spent so that a token may use all experts.
	anyExperts = 16 << 20
	// mixtureBytes is about how much memory experts may take.
	mixtureBytes = 256 << 20
)

// mixtureOf plans a call, whose function is of a gate or of up's product. The weights come from a
// router, which leaves the top of each token; while it costs little, there is room for all.
func mixtureOf(c *Call, gated bool) mixture {
	m := mixture{x: &c.Args[0], p: &c.Args[1], gate: &c.Args[2], y: &c.Results[0]}
	rest := c.Args[3:]
	if gated {
		m.up, rest = &rest[0], rest[1:]
	}
	if m.down = &rest[0]; len(rest) > 1 {
		m.sum = &rest[1]
	}
	m.tokens, m.experts, m.hidden, m.width, m.cols = m.y.Rows(), m.p.Cols, m.gate.Dims[1], m.x.Cols, m.y.Cols
	switch {
	case c.Options.Math == BF16 && (m.tokens > gemvRows || c.Options.Invariant) && m.tensorCores():
		m.by = byTensors
	case m.tokens > fewRows || c.Options.Invariant, m.tokens > gemvRows && m.apart():
		m.by = byTiles
	}
	m.reserve(c.Attrs.Int("top"))
	return m
}

// reserve plans the scratch memory.
func (m *mixture) reserve(top int) {
	take := func(bytes int) uint64 {
		at := m.bytes
		m.bytes += int64(bytes+255) / 256 * 256
		return uint64(at)
	}
	size := m.between().Bytes()
	if m.by == byPasses {
		m.room, m.step = m.experts, m.tokens
		m.units, m.spread = take(size*m.tokens*m.experts*m.hidden), take(int(m.spreadBytes(m.tokens)))
		return
	}
	slot := size*(m.hidden+m.cols) + int(m.spreadBytes(1)/max(1, int64(m.experts)))
	if m.room = m.experts; m.tokens*m.experts*slot > anyExperts {
		m.room = min(m.experts, top)
	}
	m.step = min(m.tokens, max(1, mixtureBytes/max(1, m.room*slot)))
	slots := m.step * m.room
	m.counts, m.lists = take(4*m.experts), take(4*m.experts*m.step)
	m.units, m.spread, m.out = take(size*slots*m.hidden), take(int(m.spreadBytes(m.step))), take(size*slots*m.cols)
	if m.rounds() {
		m.in = take(size * m.step * m.width)
	}
}

// between is the format of what goes from product to product.
func (m *mixture) between() graph.DType {
	if m.by == byTensors {
		return graph.BF16
	}
	return graph.F32
}

// rounds reports whether x is rounded before it is multiplied.
func (m *mixture) rounds() bool { return m.by == byTensors && m.x.DType == graph.F32 }

// tensorCores reports whether both products may be of bf16, or of what is taken apart: not by
// weights in blocks, of which tiles have f32.
func (m *mixture) tensorCores() bool {
	return m.gate.Blocks == nil && m.down.Blocks == nil && (m.x.DType == graph.F32 || aligned(m.x)) && m.wide(m.gate) && (m.up == nil || m.wide(m.up)) && m.wide(m.down)
}

// apart reports whether both products are of activations that are taken apart, by weights in 16
// bits.
func (m *mixture) apart() bool {
	return m.x.DType == graph.F32 && m.gate.DType != graph.F32 && m.down.DType != graph.F32 && m.tensorCores()
}

// wide reports whether a weight is as tensor cores want it.
func (m *mixture) wide(w *Tensor) bool { return aligned(w) && m.columns(w)%8 == 0 }

// columns is how many columns of a weight are multiplied.
func (m *mixture) columns(w *Tensor) int {
	if !w.meets(m.operand(w)) {
		return w.blockCols()
	}
	return w.Dims[2]
}

// operand is what a weight is multiplied with: x, or the hidden units of a step.
func (m *mixture) operand(w *Tensor) *Tensor {
	if w == m.down {
		return m.unitsAt(0, m.step)
	}
	return m.x
}

// unitsAt are the hidden units of some tokens.
func (m *mixture) unitsAt(at uint64, tokens int) *Tensor {
	t := &Tensor{Ptr: at}
	t.DType, t.Cols, t.Stride = m.between(), m.hidden, m.hidden
	t.Dims = [graph.MaxRank]int{tokens * m.room, m.hidden, 1, 1}
	return t
}

// line is the distance of the lines of a weight, as kernels take it.
func (m *mixture) line(w *Tensor) int64 {
	if w.Blocks != nil {
		return int64(LineBytes(w.Blocks))
	}
	return int64(w.Dims[2])
}

// expertsKernel multiplies the rows of each expert with its weights, and adds up by token: x
// weights gate up down, up if the experts are gated, and an operand to add, if given. For few
// tokens the kernels find by themselves which token uses which expert; for many that is listed
// first. x may be in bf16 where it is rounded anyway.
func expertsKernel(gated bool) Kernel {
	return Kernel{
		scratch: func(c *Call) int64 {
			m := mixtureOf(c, gated)
			return m.bytes
		},
		accepts: func(c *Call) []int {
			if m := mixtureOf(c, gated); m.by == byTensors {
				return []int{0}
			}
			return nil
		},
		launch: func(c *Call) error {
			m := mixtureOf(c, gated)
			if m.up != nil && m.up.DType != m.gate.DType {
				return fmt.Errorf("gate and up of experts are in %s and %s; kernels read them in one format: convert the checkpoint (krait convert)", m.gate.DType, m.up.DType)
			}
			if m.by == byPasses {
				m.passes(c)
				return nil
			}
			for from := 0; from < m.tokens; from += m.step {
				m.launch(c, from, min(m.step, m.tokens-from))
			}
			return nil
		},
	}
}

// passes launches the products of few tokens, eight at a time.
func (m *mixture) passes(c *Call) {
	pass, rows, cols := ceilDiv(m.tokens, gemvRows), gemvRows, m.gate.passCols()
	switch { // of fewer rows kernels are smaller, and take fewer registers
	case m.tokens == 1:
		rows = 1
	case m.tokens <= 4 && m.gate.Blocks == nil && m.down.Blocks == nil:
		rows = 4
	}
	if m.up != nil {
		cols /= 2
	}
	launch := func(name string, w *Tensor, grid [3]int, args Struct) {
		f := format(w.DType)
		c.launch("experts_tile_"+f, fmt.Sprint(name, f, "_", rows), grid, gemvThreads(m.columns(w)), 0, args)
	}
	x, units := m.spreadOver(c, m.x, m.gate), m.zeroUnits(c, m.tokens)
	used := min(m.experts, rows*c.Attrs.Int("top")) // more take turns
	vec := alignment(aligned(x) && m.loads(m.gate) && (m.up == nil || m.loads(m.up)), false)
	launch("expert_hidden_", m.gate, [3]int{pass, ceilDiv(m.hidden, cols), used},
		m.product(units, x, m.gate, m.up, nil, vec, m.of(c, m.p, m.gate, m.tokens, 1, true)))
	units = m.spreadOver(c, units, m.down)
	vec = alignment(m.loads(m.down) && units.Cols%4 == 0, false)
	launch("expert_output_", m.down, [3]int{pass, ceilDiv(m.cols, m.down.passCols()), 1},
		m.product(m.y, units, m.down, nil, m.sum, vec, m.of(c, m.p, m.down, m.tokens, 1, false)))
}

// loads reports whether a weight may be loaded 16 bytes at a time.
func (m *mixture) loads(w *Tensor) bool { return aligned(w) && w.DType.Bytes()*w.Dims[2]%16 == 0 }

// spreadBytes is the memory for what is spread over the blocks of a weight, for some tokens: x, and
// later their hidden units.
func (m *mixture) spreadBytes(tokens int) (n int64) {
	if !m.gate.meets(m.operand(m.gate)) {
		n = spreadBytes(tokens, m.gate)
	}
	if !m.down.meets(m.operand(m.down)) {
		n = max(n, spreadBytes(tokens*m.room, m.down))
	}
	return n
}

// spreadOver returns x as the columns of a weight lie.
func (m *mixture) spreadOver(c *Call, x, w *Tensor) *Tensor {
	if w.meets(m.operand(w)) {
		return x
	}
	return c.spread(c.Scratch+m.spread, x, w)
}

// zeroUnits returns the memory of some tokens' hidden units. Those of experts that a token does not
// use are 0 if they will be spread.
func (m *mixture) zeroUnits(c *Call, tokens int) *Tensor {
	t := m.unitsAt(c.Scratch+m.units, tokens)
	if !m.down.meets(t) {
		c.launches = append(c.launches, Zero(*t)...)
	}
	return t
}

// added is what is added, as kernels take it.
func (m *mixture) added(sum *Tensor) Struct { return (&product{sum: sum}).added() }

// product is a product as kernels take it.
func (m *mixture) product(y, x, w, w1, sum *Tensor, vec int, of Struct) Struct {
	second := uint64(0)
	if w1 != nil {
		second = w1.Ptr
	}
	return Struct{y.Ptr, y.stride(), x.Ptr, x.stride(), w.Ptr, second, m.line(w), w.Dims[1], m.columns(w), vec, m.added(sum), of}
}

// of is which rows the experts have, and what comes behind their sums, as kernels take it.
func (m *mixture) of(c *Call, p, w *Tensor, tokens, share int, hidden bool) Struct {
	act, both := 0, false
	if hidden {
		act, both = expertActs[c.Attrs.Text("act")], m.up != nil
	}
	return Struct{c.Scratch + m.counts, c.Scratch + m.lists, p.Ptr, p.stride(), w.stride(), m.experts, tokens, m.room, share, act, both}
}

// launch launches what some of many tokens need.
func (m *mixture) launch(c *Call, from, tokens int) {
	x, p, y := *m.x, *m.p, *m.y
	parts := []*Tensor{&x, &p, &y}
	var sum *Tensor
	if m.sum != nil {
		of := *m.sum
		sum = &of
		parts = append(parts, sum)
	}
	for _, t := range parts {
		t.Ptr = t.offset(from * t.Stride)
	}
	c.launch("experts", "experts_lists", [3]int{m.experts, 1, 1}, [3]int{256}, 0, c.Scratch+m.counts, c.Scratch+m.lists, p.Ptr, p.stride(), tokens, m.room)
	if m.rounds() {
		to := x
		to.DType, to.Ptr, to.Stride, to.Dims[0] = graph.BF16, c.Scratch+m.in, m.width, tokens
		_ = c.convert(&to, &x)
		x = to
	}
	in, units := m.spreadOver(c, &x, m.gate), m.zeroUnits(c, tokens)
	vec := alignment(aligned(in) && m.loads(m.gate) && (m.up == nil || m.loads(m.up)), m.hidden%4 == 0)
	m.multiply(c, m.gate, tokens, vec, m.product(units, in, m.gate, m.up, nil, vec, m.of(c, &p, m.gate, tokens, m.room, true)))
	units = m.spreadOver(c, units, m.down)
	vec = alignment(m.loads(m.down) && units.Cols%4 == 0, m.cols%4 == 0)
	out := Tensor{Ptr: c.Scratch + m.out, Tensor: kernels.Tensor{Stride: m.cols}}
	m.multiply(c, m.down, tokens, vec, m.product(&out, units, m.down, nil, nil, vec, m.of(c, &p, m.down, tokens, 1, false)))

	name := "experts_sum"
	if m.by == byTensors {
		name += "_bf16"
	}
	grid, block := elementGrid(tokens, m.cols)
	vectors := aligned(&y) && m.cols%4 == 0 && (sum == nil || aligned(sum))
	c.launch("experts", name, grid, block, 0, append(Struct{y.Ptr, y.stride(), c.Scratch + m.out, p.Ptr, p.stride(), m.experts, m.room, m.cols, vectors}, m.added(sum)...))
}

// multiply launches a product of many tokens.
func (m *mixture) multiply(c *Call, w *Tensor, tokens, vec int, args Struct) {
	name, n := format(w.DType), w.Dims[1]
	grid := func(rows, cols int) [3]int {
		if w == m.gate && m.up != nil {
			cols /= 2
		}
		return [3]int{ceilDiv(tokens, rows), ceilDiv(n, cols), m.experts}
	}
	average := tokens * c.Attrs.Int("top") / m.experts // rows of an expert
	switch {
	case m.by == byTensors && average > expertsMany && !c.Options.Invariant:
		c.launch("experts_mma_"+name, "expert_mma_tile_"+name, grid(mmaRows, mmaCols), [3]int{mmaThreads}, 0, args)
	case m.by == byTensors:
		c.launch("experts_mma_"+name, "expert_mma_few_"+name, grid(fewPass, fewCols), [3]int{mmaThreads}, 0, args)
	case w.DType != graph.F32 && w.Blocks == nil && vec&1 != 0 && w.Dims[2]%8 == 0:
		cols := splitCols
		if w.DType == graph.BF16 {
			cols = splitWide
		}
		c.launch("experts_split_"+name, "expert_mma_split_"+name, grid(splitRows, cols), [3]int{mmaThreads}, 0, args)
	default:
		c.launch("experts_tile_"+name, "expert_matmul_"+name, grid(tileRows, tileCols), [3]int{128}, 0, args)
	}
}
