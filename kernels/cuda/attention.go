package cuda

import (
	"fmt"
	"math"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"rotary":    {launch: rotary},
	"attention": {launch: attention, scratch: attentionScratch},
})

const (
	splitKeys    = 128 // keys of a split
	splitSize    = 512 // channels of a head at most
	flashQueries = 32  // tokens of a block for many tokens
	flashSize    = 256 // channels of a head at most
	coreQueries  = 64  // tokens of a block on tensor cores
	rotaryHeads  = 4   // heads of a block
)

func rotary(c *Call) error {
	x, seg, past, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0]
	dims := c.Attrs.Int("dims")
	exponent := -2 * math.Log2(c.Attrs.Float("theta")) / float64(max(1, dims))
	size := max(1, x.Unit)
	y.runs(func(run graph.Run, row int) {
		c.launch("rotary", "rotary", [3]int{run.Len, ceilDiv(y.Cols, rotaryHeads*size), 1}, [3]int{128}, 0,
			Struct{y.offset(row * y.Stride), y.stride(), x.offset(row * x.Stride), x.stride(), seg.Ptr, past.Ptr, seg.Rows(), y.Cols, size, dims, run.Start, exponent})
	})
	return nil
}

// heads is how a rank's heads of attention lie.
type heads struct {
	size, each         int // channels of a head, heads of a group
	held               int // heads of the rank
	firstHead          int
	firstGroup, groups int // of the caches, and how many groups the heads are in
	splits             int // of what a sequence may have
}

func headsOf(c *Call) heads {
	q, k, keys := &c.Args[0], &c.Args[1], &c.Args[3]
	h := heads{size: max(1, q.Unit), each: max(1, q.Full/max(1, k.Full)), splits: ceilDiv(keys.Dims[1], splitKeys)}
	h.held, h.firstHead, h.firstGroup = q.Cols/h.size, q.Start()/h.size, keys.Start()/h.size
	if h.held > 0 {
		h.groups = (h.firstHead+h.held-1)/h.each - h.firstHead/h.each + 1
	}
	return h
}

// split reports whether the keys of a token are looked at by many blocks: where
// every sequence has one token, and for very wide heads.
func (h *heads) split(c *Call) bool {
	return c.Options.Decode || c.Args[1].Rows() == c.Args[5].Rows() || h.size > flashSize
}

// attentionScratch is for what splits find: sums, the largest score, the sum of
// weights.
func attentionScratch(c *Call) int64 {
	h := headsOf(c)
	if !h.split(c) || h.splits == 1 {
		return 0
	}
	return int64(c.Args[1].Rows()) * int64(h.held*h.splits*(h.size+2)*4)
}

func attention(c *Call) error {
	q, k, v, keys, values, seg, past, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], &c.Args[6], &c.Results[0]
	h := headsOf(c)
	if h.size > splitSize {
		return fmt.Errorf("heads of %d channels; the attention kernels take up to %d", h.size, splitSize)
	}
	t, s := k.Rows(), seg.Rows()
	// The caches' first channel may not be that of k and v.
	newKeys, newValues := *k, *v
	newKeys.Ptr, newValues.Ptr = k.offset(keys.Start()-k.Start()), v.offset(values.Start()-v.Start())
	cached := keys.Cols
	pages := Struct{keys.Ptr, int64(keys.InPage), int64(values.InPage), keys.stride(), ceilDiv(keys.Dims[1], keys.Pages.Tokens), keys.Pages.Tokens}
	whole := keys.Stride%4 == 0 && keys.InPage%16 == 0 && values.InPage%16 == 0
	vec := whole && aligned(&newKeys, &newValues)
	grid, block := elementGrid(t, cached)
	module := "attention_" + format(keys.DType)
	c.launch(module, "attention_append", grid, block, 0, Struct{newKeys.Ptr, k.stride(), newValues.Ptr, v.stride(),
		seg.Ptr, past.Ptr, s, cached, vec, pages})
	if h.held == 0 || y.Rows() == 0 {
		return nil
	}
	vec = whole && h.size%4 == 0 && aligned(q, y)
	q.runs(func(run graph.Run, row int) { // kernels count the tokens of the batch
		first := row - run.Start
		params := Struct{y.offset(first * y.Stride), c.Scratch, q.offset(first * q.Stride), seg.Ptr, past.Ptr, pages, y.stride(), q.stride(), s,
			h.size, h.each, h.held, h.firstHead, h.firstGroup, vec, h.splits, run.Start, run.End(), float32(c.Attrs.Float("scale"))}
		c.attend(&h, t, s, module, params)
	})
	return nil
}

// attend launches what looks at the caches, for the queries of a run of tokens.
func (c *Call) attend(h *heads, t, s int, module string, params Struct) {
	if !h.split(c) {
		if size, shared := h.onCores(c.Args[3].DType); c.Options.Math == BF16 && c.fits(shared) {
			c.launch(strings.Replace(module, "_", "_mma_", 1), fmt.Sprint("attention_mma_", size), [3]int{pieces(t, s, coreQueries), h.held, 1}, [3]int{128}, shared, params)
			return
		}
		fours := 2
		for 32*fours < h.size {
			fours *= 2
		}
		shared := 4 * (2*flashQueries*(32*fours+4) + flashQueries*(flashQueries+1))
		c.launch(module, fmt.Sprint("attention_flash_", fours), [3]int{pieces(t, s, flashQueries), h.held, 1}, [3]int{128}, shared, params)
		return
	}
	perBlock, wide := h.perBlock()
	blocks := h.groups * ceilDiv(h.each, perBlock)
	c.launch(module, fmt.Sprint("attention_split_", perBlock, "_", wide), [3]int{t, h.splits, blocks}, [3]int{128}, 0, params)
	if h.splits > 1 {
		c.launch(module, "attention_join", [3]int{t, h.held, 1}, [3]int{128}, 0, params)
	}
}

// onCores returns for how many channels of a head the kernel on tensor cores is that does them, and
// its shared memory, by the format of the caches.
func (h *heads) onCores(d graph.DType) (size, shared int) {
	keys, pieces := 64, 2 // bf16 of a number of the caches
	for size = 64; size < h.size; size *= 2 {
	}
	if size == flashSize {
		keys = 16
	}
	if d == graph.BF16 || d == graph.F8 {
		pieces = 1
	}
	return size, 2 * (2*coreQueries + 2*pieces*keys) * (size + 8)
}

// perBlock is how many heads of a group a block serves, and how many times 128
// channels a head may have there.
func (h *heads) perBlock() (heads, wide int) {
	switch {
	case h.size > 256:
		return 1, 4
	case h.size > 128 && h.each == 1:
		return 1, 2
	case h.size > 128:
		return 4, 2
	case h.each == 1:
		return 1, 1
	case h.each <= 4:
		return 4, 1
	}
	return 8, 1
}
