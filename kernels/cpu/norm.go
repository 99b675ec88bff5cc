package cpu

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, (&norms{squares, &plainLanes}).kernels())

// norms have the parts of the norms of an instruction set: a sum of squares, whose order is that
// of the row alone, and what is made of it. Norms compute in float64 and round once: it costs
// nothing next to the memory traffic and keeps wide rows exact.
type norms struct {
	squares func(x []float32) float64
	lanes   *lanewises
}

func squares(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

func (m *norms) kernels() kernels.Set {
	set := kernels.Set{}
	for op, run := range map[string]func(c *kernels.Call, lo, hi int){
		"rmsnorm": m.rmsnorm, "add_rmsnorm": m.addRMSNorm, "unit_rmsnorm": m.unitRMSNorm, "group_rmsnorm": m.groupRMSNorm,
		"head_rmsnorm": m.headRMSNorm, "head_l2norm": m.headL2Norm,
		"sumsq": m.sumsq, "rms_scale": m.rmsScale, "rms_rows": m.rmsRows, "group_sumsq": m.groupSumsq, "group_rms_scale": m.groupRMSScale,
	} {
		set[op] = kernels.Kernel{Units: kernels.RowUnits, Run: run}
	}
	return set
}

// inverse is 1 / sqrt(sum / width + eps): a NaN where the sum overflowed, as one that goes between
// ranks in float32 may, since a factor of 0 would be a wrong norm without an error.
func inverse(sum float64, width int, eps float64) float64 {
	if math.IsInf(sum, 1) {
		return math.NaN()
	}
	return 1 / math.Sqrt(sum/float64(width)+eps)
}

func (m *norms) normalise(y, x, w []float32, eps float64) {
	m.lanes.weigh(y, x, w, nil, inverse(m.squares(x), len(x), eps), 0)
}

func (m *norms) rmsnorm(c *kernels.Call, lo, hi int) {
	w, eps := c.Args[1].Vector(), c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		m.normalise(c.Results[0].Row(i), c.Args[0].Row(i), w, eps)
	}
}

func (m *norms) addRMSNorm(c *kernels.Call, lo, hi int) {
	w, eps := c.Args[2].Vector(), c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		sum := c.Results[0].Row(i)
		m.lanes.add(sum, c.Args[0].Row(i), c.Args[1].Row(i), nil, 0, 0)
		m.normalise(c.Results[1].Row(i), sum, w, eps)
	}
}

func (m *norms) unitRMSNorm(c *kernels.Call, lo, hi int) {
	eps := c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		x := c.Args[0].Row(i)
		m.lanes.norm(c.Results[0].Row(i), x, nil, nil, inverse(m.squares(x), len(x), eps), 0)
	}
}

func (m *norms) groupRMSNorm(c *kernels.Call, lo, hi int) {
	w, eps := c.Args[1].Vector(), c.Attrs.Float("eps")
	size := c.Args[1].Full / c.Attrs.Int("groups")
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for g := 0; g < len(w); g += size {
			m.normalise(y[g:g+size], x[g:g+size], w[g:g+size], eps)
		}
	}
}

func (m *norms) headRMSNorm(c *kernels.Call, lo, hi int) {
	w, eps := c.Args[1].Vector(), c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for h := 0; h < len(y); h += len(w) {
			m.normalise(y[h:h+len(w)], x[h:h+len(w)], w, eps)
		}
	}
}

func (m *norms) headL2Norm(c *kernels.Call, lo, hi int) {
	size, eps := c.Args[0].Unit, c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for h := 0; h < len(y); h += size {
			head := x[h : h+size]
			m.lanes.norm(y[h:h+size], head, nil, nil, inverse(m.squares(head), 1, eps), 0)
		}
	}
}

// sumsq is the first half of rmsnorm, rmsScale the second.
func (m *norms) sumsq(c *kernels.Call, lo, hi int) {
	for i := lo; i < hi; i++ {
		c.Results[0].F32[i*c.Results[0].Stride] = float32(m.squares(c.Args[0].Row(i)))
	}
}

func (m *norms) rmsScale(c *kernels.Call, lo, hi int) {
	w := c.Args[2].Vector()
	for i := lo; i < hi; i++ {
		m.lanes.weigh(c.Results[0].Row(i), c.Args[0].Row(i), w, nil, rowFactor(c, i), 0)
	}
}

// rmsRows is the factor of rmsScale alone.
func (m *norms) rmsRows(c *kernels.Call, lo, hi int) {
	for i := lo; i < hi; i++ {
		m.lanes.norm(c.Results[0].Row(i), c.Args[0].Row(i), nil, nil, rowFactor(c, i), 0)
	}
}

// rowFactor is 1 / sqrt(sum / width + eps) of row i.
func rowFactor(c *kernels.Call, i int) float64 {
	return inverse(float64(c.Args[1].F32[i*c.Args[1].Stride]), c.Attrs.Int("width"), c.Attrs.Float("eps"))
}

// groupSumsq is sumsq of each group. A rank that has a part of a group adds up that part.
func (m *norms) groupSumsq(c *kernels.Call, lo, hi int) {
	x, y := &c.Args[0], &c.Results[0]
	size := max(1, x.Full/c.Attrs.Int("groups"))
	for i := lo; i < hi; i++ {
		for g := range y.Cols {
			from, to := kernels.Held(x, (y.Start()+g)*size, size)
			y.F32[i*y.Stride+g] = float32(m.squares(x.Row(i)[from:to]))
		}
	}
}

func (m *norms) groupRMSScale(c *kernels.Call, lo, hi int) {
	x, sums, w := &c.Args[0], &c.Args[1], c.Args[2].Vector()
	width, eps := c.Attrs.Int("width"), c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		y, row := c.Results[0].Row(i), x.Row(i)
		for g := range sums.Cols {
			from, to := kernels.Held(x, (sums.Start()+g)*width, width)
			m.lanes.weigh(y[from:to], row[from:to], w[from:to], nil, inverse(float64(sums.F32[i*sums.Stride+g]), width, eps), 0)
		}
	}
}
