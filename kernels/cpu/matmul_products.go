//go:build amd64 || arm64

package cpu

import "github.com/krait-ml/krait/kernels"

// kernels are the operations that are products of rows.
func (p *products) kernels(short *shortProducts) kernels.Set {
	heads := kernels.Kernel{Units: headUnits, Run: p.heads}
	return kernels.Set{
		"head_down": heads, "head_up": heads,
		"matmul": {Units: p.units, Run: byDepth(short.matmul, p.matmul), Before: p.panels.before(), Scratch: p.panels.scratch},
	}
}

// matmulGrid cuts the columns of the result into groups of rows of the weight.
func matmulGrid(c *kernels.Call) grid {
	return gridOf((c.Args[1].Rows()+groupRows-1)/groupRows, c.Args[0].Rows())
}

func (p *products) units(c *kernels.Call) int {
	switch {
	case shortSums(c):
		return matmulUnits(c)
	case p.panels.serve(c):
		return p.panelGrid(c).units()
	}
	return matmulGrid(c).units()
}

// matmul is x wᵀ.
func (p *products) matmul(c *kernels.Call, lo, hi int) {
	if p.panels.serve(c) {
		p.matmulInPanels(c, lo, hi)
		return
	}
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	matmulGrid(c).each(lo, hi, func(from, to, first, last int) {
		from, to = from*groupRows, min(to*groupRows, w.Rows())
		p.multiply(&product{
			w: w, at: from * w.Stride, ws: w.Stride, rows: to - from, k: w.Cols,
			x: x.F32[first*x.Stride:], xs: x.Stride, tokens: last - first,
			y: y.F32[first*y.Stride+from:], ys: y.Stride,
		})
	})
}

// headSizes are the channels and the results of a head, the first head of which the rank
// has results, and how many there are.
func headSizes(c *kernels.Call) (size, each, first, n int) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	if y.Cols == 0 {
		return
	}
	size = max(1, w.Cols)
	each = y.Full / (x.Full / size)
	first = y.Start() / each
	return size, each, first, (y.Start()+y.Cols-1)/each - first + 1
}

func headUnits(c *kernels.Call) int {
	_, _, _, n := headSizes(c)
	return gridOf(n, c.Args[0].Rows()).units()
}

// heads: y[t, h n] = Σ_k w[h n, k] x[t, h k], of what the rank has of the head's channels.
func (p *products) heads(c *kernels.Call, lo, hi int) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	size, each, first, n := headSizes(c)
	gridOf(n, x.Rows()).each(lo, hi, func(from, to, token, last int) {
		for h := first + from; h < first+to; h++ {
			j, end := max(0, h*each-y.Start()), min(y.Cols, (h+1)*each-y.Start())
			k, held := kernels.Held(x, h*size, size)
			row, _ := w.HeldRow(y.Start() + j)
			p.multiply(&product{
				w: w, at: row*w.Stride + x.Start() + k - h*size, ws: w.Stride, rows: end - j, k: held - k,
				x: x.F32[token*x.Stride+k:], xs: x.Stride, tokens: last - token,
				y: y.F32[token*y.Stride+j:], ys: y.Stride,
			})
		}
	})
}
