package cpu

import (
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Wide is a product that is faster than others for many tokens, with other bits. The bits of a row
// do not depend on how many rows come with it.
type Wide struct {
	kernels.Kernel
	Serves func(c *kernels.Call) bool // by the weight alone
	All    bool                       // for all rows, wherever they are
}

// longBF16 reports whether the weight is in bf16 and sums are not in float64.
func longBF16(c *kernels.Call) bool { return longSums(c, graph.BF16) }

// longF32 is longBF16 for f32.
func longF32(c *kernels.Call) bool { return longSums(c, graph.F32) }

func longSums(c *kernels.Call, format graph.DType) bool {
	return c.Args[1].DType == format && c.Args[1].Cols >= kernels.ShortDepth
}

// ByPosition is a product of x and a weight that gives rows in whole blocks of a prompt
// ([kernels.Call.Wide]) to a wide kernel, where that serves the weight, and other rows to a narrow
// one. So the bits of a row depend on the token's position, and not on other rows. One for all rows
// gets all of those weights.
func ByPosition(narrow kernels.Kernel, w Wide) kernels.Kernel {
	p := &byPosition{of: [2]*kernels.Kernel{&narrow, &w.Kernel}, serves: w.Serves, all: w.All}
	k := *p.stage(p.of)
	k.Scratch = func(c *kernels.Call) (n int) {
		for r := p.rows(c); r.next(); {
			n += r.scratch
		}
		return n
	}
	return k
}

type byPosition struct {
	of     [2]*kernels.Kernel // narrow and wide
	serves func(c *kernels.Call) bool
	all    bool
}

// stage is what runs a stage of both kernels after those before it; nil: there is none.
func (p *byPosition) stage(of [2]*kernels.Kernel) *kernels.Kernel {
	var before [2]*kernels.Kernel
	none := true
	for i, k := range of {
		if k != nil {
			before[i], none = k.Before, false
		}
	}
	if none {
		return nil
	}
	return &kernels.Kernel{
		Units: func(c *kernels.Call) (n int) {
			for r := p.rows(c); r.next(); {
				n += r.units(of)
			}
			return n
		},
		Run: func(c *kernels.Call, lo, hi int) {
			first := 0
			for r := p.rows(c); r.next(); {
				n := r.units(of)
				if from, to := max(lo-first, 0), min(hi-first, n); from < to {
					of[r.kind].Run(r.call, from, to)
				}
				first += n
			}
		},
		Before: p.stage(before),
	}
}

// rows goes over the runs of rows of a call that one kernel takes. It must go to the end.
type rows struct {
	*byPosition
	whole   *kernels.Call
	cut     *cutCall
	call    *kernels.Call // of the run
	kind    int           // which kernel takes it
	scratch int           // bytes that the run has
	row     int           // the next
	wide    []graph.Run   // that follow
	used    int           // scratch memory, up to the next run
	ended   bool
}

func (p *byPosition) rows(c *kernels.Call) rows {
	r := rows{byPosition: p, whole: c}
	switch {
	case !p.serves(c):
	case p.all:
		r.kind = 1
	case len(c.Wide) > 0:
		r.wide, r.cut = c.Wide, cutCalls.Get().(*cutCall)
	}
	return r
}

// next goes on to the next run, and reports whether there is one.
func (r *rows) next() bool {
	rest := r.whole.Args[0].Rows() - r.row
	switch {
	case r.ended || r.cut != nil && rest == 0:
		if r.cut != nil {
			cutCalls.Put(r.cut)
		}
		return false
	case r.cut == nil: // all rows, also none
		r.call, r.ended = r.whole, true
	default:
		n := rest
		if r.kind = 0; len(r.wide) > 0 {
			if n = r.wide[0].Start - r.row; n == 0 {
				r.kind, n, r.wide = 1, r.wide[0].Len, r.wide[1:]
			}
		}
		r.cut.take(r.whole, r.row, n, r.used)
		r.call, r.row = &r.cut.Call, r.row+n
	}
	r.scratch = 0
	if size := r.of[r.kind].Scratch; size != nil {
		r.scratch = (size(r.call) + 63) &^ 63
	}
	r.used += r.scratch
	return true
}

// units are those of the run in a stage.
func (r *rows) units(of [2]*kernels.Kernel) int {
	if of[r.kind] == nil {
		return 0
	}
	return of[r.kind].Units(r.call)
}

// cutCall is a call of a product with some of its rows.
type cutCall struct {
	kernels.Call
	args    [2]kernels.Tensor
	results [1]kernels.Tensor
	wide    [1]graph.Run
}

var cutCalls = sync.Pool{New: func() any { return new(cutCall) }}

// take makes it n rows of a call, with its scratch memory from a byte on.
func (c *cutCall) take(of *kernels.Call, first, n, scratch int) {
	c.args = [2]kernels.Tensor{of.Args[0].Cut(first, n), of.Args[1]}
	c.results[0] = of.Results[0].Cut(first, n)
	c.Call = kernels.Call{Args: c.args[:], Results: c.results[:], Attrs: of.Attrs, Scratch: of.Scratch[min(scratch, len(of.Scratch)):]}
}
