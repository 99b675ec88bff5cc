package cpu

import "github.com/krait-ml/krait/kernels"

// lanewise computes y from the elements of up to three rows, which are as long or longer, and from
// two numbers. Rows that an operation does not take are nil.
type lanewise func(y, a, b, c []float32, p, q float64)

// lanewises are what an instruction set has for operations element by element.
type lanewises struct {
	add, mul, times, addMul, addTimes, relu, relu2, clamp, norm, weigh, gelu, geluTanh, silu, siluMul, addSilu, softplus, addSoftplus, negExp lanewise
}

var _ = kernels.Register(Kernels, plainLanes.kernels())

var plainLanes = lanewises{
	add: func(y, a, b, _ []float32, _, _ float64) {
		for j := range y {
			y[j] = a[j] + b[j]
		}
	},
	mul: func(y, a, b, _ []float32, _, _ float64) {
		for j := range y {
			y[j] = a[j] * b[j]
		}
	},
	times: func(y, a, _, _ []float32, p, _ float64) {
		for j := range y {
			y[j] = a[j] * float32(p)
		}
	},
	addMul: func(y, a, b, c []float32, _, _ float64) {
		for j := range y {
			y[j] = a[j] + float32(b[j]*c[j]) // the conversion forbids a fused multiply-add
		}
	},
	addTimes: func(y, a, b, _ []float32, p, _ float64) {
		for j := range y {
			y[j] = a[j] + float32(b[j]*float32(p))
		}
	},
	clamp: func(y, a, _, _ []float32, p, q float64) {
		for j := range y {
			y[j] = min(max(a[j], float32(p)), float32(q))
		}
	},
	norm: func(y, a, _, _ []float32, p, _ float64) {
		for j := range y {
			y[j] = float32(float64(a[j]) * p)
		}
	},
	weigh: func(y, a, b, _ []float32, p, _ float64) {
		for j := range y {
			y[j] = float32(float64(b[j]) * float64(a[j]) * p)
		}
	},
	siluMul: func(y, a, b, _ []float32, _, _ float64) {
		for j := range y {
			y[j] = siluOf(a[j]) * b[j]
		}
	},
	addSilu: func(y, a, b, _ []float32, _, _ float64) {
		for j := range y {
			y[j] = siluOf(a[j] + b[j])
		}
	},
	addSoftplus: func(y, a, b, _ []float32, _, _ float64) {
		for j := range y {
			y[j] = softplusOf(a[j] + b[j])
		}
	},
	relu: ofOne(relu), relu2: ofOne(relu2), gelu: ofOne(gelu), geluTanh: ofOne(geluTanh), silu: ofOne(silu), softplus: ofOne(softplus), negExp: ofOne(negExp),
}

func ofOne(f func(y, x []float32)) lanewise {
	return func(y, a, _, _ []float32, _, _ float64) { f(y, a) }
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
		f(stretch(&c.Results[0], i, n), stretch(&c.Args[0], i, n), b, nil, p, q)
	}
}

func dense(x *kernels.Tensor) bool { return x.Stride == x.Cols }

// stretch is n elements from row i on.
func stretch(x *kernels.Tensor, i, n int) []float32 { return x.F32[i*x.Stride : i*x.Stride+n] }

// channels computes a result of rows and one number per channel.
func (f lanewise) channels(c *kernels.Call, lo, hi int) {
	b := c.Args[1].Vector()
	for i := lo; i < hi; i++ {
		f(c.Results[0].Row(i), c.Args[0].Row(i), b, nil, 0, 0)
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
			l.times(y[h*size:(h+1)*size], x[h*size:], nil, nil, float64(f), 0)
		}
	}
}

// addScaled adds to each len(row)/len(d) neighbours as many times one factor.
func (l *lanewises) addScaled(c *kernels.Call, lo, hi int) {
	d := c.Args[2].Vector()
	for i := lo; i < hi; i++ {
		y, a, x := c.Results[0].Row(i), c.Args[0].Row(i), c.Args[1].Row(i)
		if len(d) == len(y) {
			l.addMul(y, a, x, d, 0, 0)
			continue
		}
		size := len(y) / max(1, len(d))
		for h, f := range d {
			l.addTimes(y[h*size:(h+1)*size], a[h*size:], x[h*size:], nil, float64(f), 0)
		}
	}
}
