package cpu

import "github.com/krait-ml/krait/kernels"

var (
	_ = kernels.Register(avx2, lanesAVX2.kernels())
	_ = kernels.Register(avx512, lanesAVX512.kernels())
)

// lanewise computes n elements of y from those of up to three rows and from two
// numbers; see the generator in gen. Elements do not mind where in a vector they are.
type lanewise func(y, a, b, c *float32, n int, p, q float64)

// lanewises are what an instruction set has for operations element by element.
type lanewises struct {
	add, mul, times, addMul, addTimes, relu, relu2, clamp, norm, weigh, gelu, geluTanh, silu, siluMul, addSilu, softplus, addSoftplus, negExp lanewise
}

var lanesAVX2 = lanewises{
	add:         addAVX2,
	mul:         mulAVX2,
	times:       timesAVX2,
	addMul:      addMulAVX2,
	addTimes:    addTimesAVX2,
	relu:        reluAVX2,
	relu2:       relu2AVX2,
	clamp:       clampAVX2,
	norm:        normAVX2,
	weigh:       weighAVX2,
	gelu:        geluAVX2,
	geluTanh:    geluTanhAVX2,
	silu:        siluAVX2,
	siluMul:     siluMulAVX2,
	addSilu:     addSiluAVX2,
	softplus:    softplusAVX2,
	addSoftplus: addSoftplusAVX2,
	negExp:      negExpAVX2,
}

var lanesAVX512 = lanewises{
	add:         addAVX512,
	mul:         mulAVX512,
	times:       timesAVX512,
	addMul:      addMulAVX512,
	addTimes:    addTimesAVX512,
	relu:        reluAVX512,
	relu2:       relu2AVX512,
	clamp:       clampAVX512,
	norm:        normAVX512,
	weigh:       weighAVX512,
	gelu:        geluAVX512,
	geluTanh:    geluTanhAVX512,
	silu:        siluAVX512,
	siluMul:     siluMulAVX512,
	addSilu:     addSiluAVX512,
	softplus:    softplusAVX512,
	addSoftplus: addSoftplusAVX512,
	negExp:      negExpAVX512,
}

func (l *lanewises) kernels() kernels.Set {
	rows := func(run func(c *kernels.Call, lo, hi int)) kernels.Kernel {
		return kernels.Kernel{Units: kernels.RowUnits, Run: run}
	}
	return kernels.Set{
		"add":       rows(l.add.rows),
		"mul":       rows(l.mul.rows),
		"silu":      rows(l.silu.rows),
		"silu_mul":  rows(l.siluMul.rows),
		"relu":      rows(l.relu.rows),
		"relu2":     rows(l.relu2.rows),
		"softplus":  rows(l.softplus.rows),
		"neg_exp":   rows(l.negExp.rows),
		"gelu":      rows(l.gelu.rows),
		"gelu_tanh": rows(l.geluTanh.rows),
		"times": rows(func(c *kernels.Call, lo, hi int) {
			l.times.with(c, lo, hi, c.Attrs.Float("by"), 0)
		}),
		"clamp": rows(func(c *kernels.Call, lo, hi int) {
			l.clamp.with(c, lo, hi, c.Attrs.Float("min"), c.Attrs.Float("max"))
		}),
		"bias":          rows(l.add.channels),
		"bias_softplus": rows(l.addSoftplus.channels),
		"scale":         rows(l.scale),
		"add_scaled":    rows(l.addScaled),
	}
}

// on computes y from rows that are at least as long; those that are nil are not asked for.
func (f lanewise) on(y, a, b, c []float32, p, q float64) {
	if n := len(y); n > 0 {
		f(&y[0], first(a, n), first(b, n), first(c, n), n, p, q)
	}
}

// first is where the first of n elements is: the assembly checks no bounds.
func first(x []float32, n int) *float32 {
	if x == nil {
		return nil
	}
	return &x[:n][0]
}

// rows computes a result of one or two operands of its shape.
func (f lanewise) rows(c *kernels.Call, lo, hi int) { f.with(c, lo, hi, 0, 0) }

// with is rows with two numbers. Rows that touch each other are one.
func (f lanewise) with(c *kernels.Call, lo, hi int, p, q float64) {
	rows, n := hi-lo, c.Results[0].Cols
	if dense(&c.Results[0]) && dense(&c.Args[0]) && (len(c.Args) == 1 || dense(&c.Args[1])) {
		rows, n = 1, rows*n
	}
	for i := lo; i < lo+rows; i++ {
		var b []float32
		if len(c.Args) > 1 {
			b = stretch(&c.Args[1], i, n)
		}
		f.on(stretch(&c.Results[0], i, n), stretch(&c.Args[0], i, n), b, nil, p, q)
	}
}

func dense(x *kernels.Tensor) bool { return x.Stride == x.Cols }

// stretch is n elements from row i on.
func stretch(x *kernels.Tensor, i, n int) []float32 { return x.F32[i*x.Stride : i*x.Stride+n] }

// channels computes a result of rows and one number per channel.
func (f lanewise) channels(c *kernels.Call, lo, hi int) {
	b := c.Args[1].Vector()
	for i := lo; i < hi; i++ {
		f.on(c.Results[0].Row(i), c.Args[0].Row(i), b, nil, 0, 0)
	}
}

// scale multiplies each len(row)/len(d) neighbours by one factor.
func (l *lanewises) scale(c *kernels.Call, lo, hi int) {
	d := c.Args[1].Vector()
	if len(d) == c.Results[0].Cols {
		l.mul.channels(c, lo, hi)
		return
	}
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		size := len(y) / max(1, len(d))
		for h, f := range d {
			l.times.on(y[h*size:(h+1)*size], x[h*size:], nil, nil, float64(f), 0)
		}
	}
}

// addScaled adds to each len(row)/len(d) neighbours as many times one factor.
func (l *lanewises) addScaled(c *kernels.Call, lo, hi int) {
	d := c.Args[2].Vector()
	for i := lo; i < hi; i++ {
		y, a, x := c.Results[0].Row(i), c.Args[0].Row(i), c.Args[1].Row(i)
		if len(d) == len(y) {
			l.addMul.on(y, a, x, d, 0, 0)
			continue
		}
		size := len(y) / max(1, len(d))
		for h, f := range d {
			l.addTimes.on(y[h*size:(h+1)*size], a[h*size:], x[h*size:], nil, float64(f), 0)
		}
	}
}
