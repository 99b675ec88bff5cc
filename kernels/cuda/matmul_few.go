package cuda

import "github.com/krait-ml/krait/graph"

// Products of few rows on tensor cores: matmul_few.cu.
const (
	fewMost    = 8 // rows
	fewThreads = 128
	fewNarrow  = 512 // columns up to which tiles have 16
	fewDeep    = 128 // along k, that a block's warps take in a step
	fewBlocks  = 3   // that a multiprocessor has room for
)

// isFew reports whether weights stream through registers to tensor cores.
func (c *Call) isFew(p *product) bool {
	t := p.y.Rows()
	return !c.Options.Invariant && t > 1 && t <= fewMost && c.inPieces(p) && (p.norm == nil || p.norm.Ptr%16 == 0)
}

// fewTile has columns on which the result does not depend.
func fewTile(p *product) tile {
	t := tile{rows: fewMost, cols: 32}
	switch {
	case p.columns() <= fewNarrow:
		t.cols = 16
	case p.w.DType == graph.BF16:
		t.cols = 64
	}
	t.deep = fewSlice(p, t.cols)
	return t
}

// fewSlice is how deep the slices are into which a product's k is cut. It depends on the shape of
// the weight alone, and so do the bits of a row: as many slices as let the slowest multiprocessor
// end first, where a block takes the time of 256 numbers along k to begin and end, and adding up a
// slice that of 64.
func fewSlice(p *product, cols int) int {
	tiles, k := ceilDiv(p.columns(), cols), p.w.Cols
	best, least := 0, 0
	for slices := 1; slices == 1 || slices <= mmaSlices && slices*fewDeep < k+fewDeep && tiles <= MaxArrivals; slices++ {
		depth := ceilDiv(ceilDiv(k, slices), fewDeep) * fewDeep
		waves := ceilDiv(tiles*ceilDiv(k, depth), fewBlocks*multiprocessors)
		if takes := waves*(depth+256) + 64*slices; best == 0 || takes < least {
			best, least = depth, takes
		}
	}
	return best
}

// few launches a product of few rows on tensor cores.
func (c *Call) few(p *product) {
	t := fewTile(p)
	name := "few_" + format(p.w.DType)
	if t.cols == 16 {
		name += "_narrow"
	}
	c.tiles(p, t, "matmul_few_", name, fewThreads, 0)
}
