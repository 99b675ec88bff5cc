package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"router":  {launch: router},
	"experts": {launch: experts, scratch: expertsScratch},

	"sigmoid_router":  {launch: sigmoidRouter},
	"ungated_experts": {launch: experts, scratch: expertsScratch},
})

func sigmoidRouter(c *Call) error {
	x, bias, y := &c.Args[0], &c.Args[1], &c.Results[0]
	if y.Cols == 0 {
		return nil
	}
	c.launch("experts", "sigmoid_router", [3]int{y.Rows(), 1, 1}, [3]int{128}, 0,
		y.Ptr, y.stride(), x.Ptr, x.stride(), bias.Ptr, x.Cols, c.Attrs.Int("top"), c.Attrs.Int("norm") == 1)
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

// mixture is the sizes of a call of experts, and where its scratch memory lies.
type mixture struct {
	tokens, experts, hidden, width, cols int
	// room is how many experts of a token there is room for; step is how many
	// tokens are done at a time.
	room, step int

	counts, lists, gate, up, out uint64 // from the beginning of the scratch
	bytes                        int64
}

// Tests make these smaller.
var (
	// anyExperts is the memory that may be spent so that a token may use all experts.
	anyExperts = 16 << 20
	// mixtureBytes is about how much memory experts may take.
	mixtureBytes = 256 << 20
)

// mixtureOf plans a call. The weights come from a router, which leaves the top of
// each token; while it costs little, there is room for all.
func mixtureOf(c *Call) mixture {
	x, p, gate, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0]
	m := mixture{tokens: y.Rows(), experts: p.Cols, hidden: gate.Dims[1], width: x.Cols, cols: y.Cols}
	slot := 4 * ((len(c.Args)-3)*m.hidden + m.cols)
	if m.room = m.experts; m.tokens*m.experts*slot > anyExperts {
		m.room = min(m.experts, c.Attrs.Int("top"))
	}
	m.step = min(m.tokens, max(1, mixtureBytes/max(1, m.room*slot)))
	slots := m.step * m.room
	take := func(words int) uint64 {
		at := m.bytes
		m.bytes += int64(words+63) / 64 * 256
		return uint64(at)
	}
	m.counts, m.lists = take(m.experts), take(m.experts*m.step)
	m.gate, m.out = take(slots*m.hidden), take(slots*m.cols)
	if len(c.Args) > 4 {
		m.up = take(slots * m.hidden)
	}
	return m
}

func expertsScratch(c *Call) int64 {
	m := mixtureOf(c)
	return m.bytes
}

// experts lists who uses which expert, multiplies the rows of each with its
// weights, and adds up by token.
func experts(c *Call) error {
	m := mixtureOf(c)
	for from := 0; from < m.tokens; from += m.step {
		m.launch(c, from, min(m.step, m.tokens-from))
	}
	return nil
}

func (m *mixture) launch(c *Call, from, tokens int) {
	x, p, gate, down, y := c.Args[0], c.Args[1], &c.Args[2], &c.Args[len(c.Args)-1], c.Results[0]
	for _, t := range []*Tensor{&x, &p, &y} {
		t.Ptr = t.offset(from * t.Stride)
	}
	weights := []any{p.Ptr, p.stride(), m.experts, m.room}
	c.launch("experts", "experts_lists", [3]int{m.experts, 1, 1}, [3]int{256}, 0, c.Scratch+m.counts, c.Scratch+m.lists, p.Ptr, p.stride(), tokens, m.room)

	in, both := [2]*Tensor{gate}, [2]uint64{c.Scratch + m.gate}
	ready := aligned(&x, gate) && gate.DType.Bytes()*m.width%16 == 0
	if len(c.Args) > 4 { // otherwise there is no gate: the function is of up's product
		in[1], both[1] = &c.Args[3], c.Scratch+m.up
		ready = ready && aligned(in[1])
	}
	vec := alignment(ready, m.hidden%4 == 0)
	c.products(m, tokens, both, m.hidden, x.Ptr, x.Stride, in, m.width, m.room, vec)
	grid, block := elementGrid(tokens*m.room, m.hidden)
	c.launch("experts", "experts_"+c.Attrs.Text("act"), grid, block, 0,
		append(append([]any{both[0], both[1]}, weights...), m.hidden, m.hidden%4 == 0)...)

	vec = alignment(aligned(down) && down.DType.Bytes()*m.hidden%16 == 0 && m.hidden%4 == 0, m.cols%4 == 0)
	c.products(m, tokens, [2]uint64{c.Scratch + m.out}, m.cols, c.Scratch+m.gate, m.hidden, [2]*Tensor{down, nil}, m.hidden, 1, vec)
	grid, block = elementGrid(tokens, m.cols)
	c.launch("experts", "experts_sum", grid, block, 0,
		append(append([]any{y.Ptr, y.stride(), c.Scratch + m.out}, weights...), m.cols, aligned(&y) && m.cols%4 == 0)...)
}

// products multiplies the slots of each expert, which share rows of x, with one
// weight of it or two.
func (c *Call) products(m *mixture, tokens int, y [2]uint64, n int, x uint64, stride int, w [2]*Tensor, k, share, vec int) {
	both, second := 1, uint64(0)
	if w[1] != nil {
		both, second = 2, w[1].Ptr
	}
	args := []any{y[0], y[1], int64(n), x, int64(stride), w[0].Ptr, second, w[0].stride(), int64(k), n, k, both == 2, vec,
		Struct{c.Scratch + m.counts, c.Scratch + m.lists, tokens, share}}
	name := format(w[0].DType)
	grid := func(rows, cols int) [3]int { return [3]int{ceilDiv(tokens, rows), ceilDiv(n, cols), m.experts * both} }
	tensorCores := c.Options.Math == BF16 && vec&1 != 0 && k%8 == 0
	average := tokens * c.Attrs.Int("top") / m.experts // rows of an expert
	switch {
	case tensorCores && average > mmaFew:
		c.launch("matmul_mma_"+name, "expert_mma_tile_"+name, grid(mmaRows, mmaCols), [3]int{mmaThreads}, 0, args...)
	case tensorCores && tokens > gemvRows:
		c.launch("matmul_mma_"+name, "expert_mma_few_"+name, grid(fewPass, fewCols), [3]int{mmaThreads}, 0, args...)
	case tokens > fewRows:
		c.launch("matmul_"+name, "expert_matmul_"+name, grid(tileRows, tileCols), [3]int{128}, 0, args...)
	case tokens > 1:
		c.launch("matmul_"+name, fmt.Sprint("expert_gemv_", name, "_", gemvRows), grid(gemvRows, gemvCols), gemvThreads(k), 0, args...)
	default:
		c.launch("matmul_"+name, fmt.Sprint("expert_gemv_", name, "_1"), grid(1, gemvCols), gemvThreads(k), 0, args...)
	}
}
