package cuda

import (
	"math"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/graphgen"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// cases draw calls of operations: first what stays, then, per call, what a batch
// brings.
var cases = map[string]func(d *draw) func() kernels.Call{
	"embedding":   embeddingCase,
	"select_rows": selectCase,
	"matmul":      matmulCase,
	"bias":        biasCase,
	"scale":       scaleCase,
	"add":         zipCase,
	"mul":         zipCase,
	"times":       elementCase(graph.Attrs{"by": -1.75}),
	"plus":        elementCase(graph.Attrs{"by": -1.75}),
	"head_down":   headDownCase,
	"head_up":     headUpCase,
	"concat":      concatCase,
	"silu":        elementCase(nil),
	"gelu":        elementCase(nil),
	"gelu_tanh":   elementCase(nil),
	"relu":        elementCase(nil),
	"relu2":       elementCase(nil),
	"sigmoid":     elementCase(nil),
	"tanh":        elementCase(nil),
	"softplus":    elementCase(nil),
	"neg_exp":     elementCase(nil),
	"clamp":       elementCase(graph.Attrs{"min": -0.25, "max": 0.5}),

	"rmsnorm":         normCase,
	"unit_rmsnorm":    unitNormCase,
	"group_rmsnorm":   groupNormCase,
	"head_rmsnorm":    headNormCase,
	"head_l2norm":     headL2NormCase,
	"sumsq":           sumsqCase,
	"rms_scale":       rmsScaleCase,
	"rms_rows":        rmsRowsCase,
	"group_sumsq":     groupSumsqCase,
	"group_rms_scale": groupScaleCase,

	"rotary":    rotaryCase,
	"attention": attentionCase,
	"router":    routerCase,
	"experts":   expertsCase,

	"sigmoid_router":  sigmoidRouterCase,
	"ungated_experts": ungatedCase,

	"quantize":   convertCase,
	"dequantize": convertCase,

	"conv1d":         convCase,
	"selective_scan": selectiveCase,
	"ssd_scan":       ssdCase,
	"delta_scan":     deltaCase,
	"scan_terms":     scanTermsCase,
	"scan_prefix":    scanPrefixCase,
	"scan_output":    scanOutputCase,

	"parts":            partsCase,
	"zeros":            zerosCase,
	"segment_sums":     segmentSumsCase,
	"conv_states":      convStatesCase,
	"selective_states": selectiveStatesCase,
	"ssd_states":       ssdStatesCase,
	"delta_states":     deltaStatesCase,

	"choose": chooseCase,

	"add_rmsnorm":   addNormCase,
	"conv1d_silu":   convSiluCase,
	"silu_mul":      zipCase,
	"bias_softplus": biasCase,
	"add_scaled":    addScaledCase,

	"matmul_add":               matmulAddCase,
	"norm_matmul":              normMatmulCase,
	"unbiased_conv1d_silu":     convCase,
	"norm_matmul_add":          normMatmulAddCase,
	"norm_router":              normRouterCase,
	"add_experts":              addExpertsCase,
	"add_ungated_experts":      addUngatedCase,
	"selective_scan_gated":     selectiveGatedCase,
	"selective_scan_projected": selectiveProjectedCase,
	"ssd_scan_gated":           ssdGatedCase,

	"gated_matmul":               gatedMatmulCase,
	"norm_gated_matmul":          normGatedMatmulCase,
	"rmsnorm_each":               normEachCase,
	"unit_rmsnorm_each":          unitNormEachCase,
	"selective_scan_normed":      selectiveNormedCase,
	"selective_scan_unit_normed": selectiveUnitNormedCase,
}

// TestOps draws calls of every operation: two steps, so that state is carried, against float64, or
// one that is also compared with itself ([checkRelations]). Each kernel that the operation launches
// without options is run: of cases from fixed seeds, those follow that launch one not run before.
// [TestMain] fails if kernels are left.
func TestOps(t *testing.T) {
	for _, op := range graph.Ops() {
		if op.Class != graph.Compute {
			continue
		}
		t.Run(op.Name, func(t *testing.T) {
			t.Parallel()
			check(t, op.Name, func(t *rapid.T) {
				if rapid.Bool().Draw(t, "steps") || op.Parts { // rows are not of tokens
					checkOp(t, op, Options{})
				} else {
					checkRelations(t, op)
				}
			})
			for seed, last := uint64(0), uint64(0); seed <= last+idleSeeds; seed++ {
				fresh := false
				fixed(t, seed, func(t *rapid.T) { fresh = plansNew(t, op) })
				if fresh {
					fixed(t, seed, func(t *rapid.T) { checkOp(t, op, Options{}) })
					last = seed
				}
			}
		})
	}
}

// TestSet: every operation that computes has kernels, and a case here.
func TestSet(t *testing.T) {
	n := 0
	for _, op := range graph.Ops() {
		if op.Class != graph.Compute {
			continue
		}
		n++
		if _, ok := Kernels[op.Name]; !ok {
			t.Errorf("no kernels for %s", op.Name)
		}
		if cases[op.Name] == nil {
			t.Errorf("no case for %s", op.Name)
		}
	}
	if len(Kernels) != n || len(cases) != n {
		t.Errorf("%d kernels and %d cases for %d operations", len(Kernels), len(cases), n)
	}
}

func checkOp(t *rapid.T, op *graph.Op, o Options) {
	d, dev := newDraw(t), newDevice(t)
	next := cases[op.Name](d)
	states := map[int]Tensor{}
	var held map[int]kernels.Tensor // states in float64
	for range 2 {
		c := next()
		on := dev.deviceCall(op, &c, states, d.offset)
		on.Options = o
		if held == nil {
			held = map[int]kernels.Tensor{}
			for _, p := range op.States {
				held[p.Operand] = clone(&c.Args[p.Operand])
			}
		}
		for _, p := range op.States {
			c.Args[p.Operand] = held[p.Operand]
			c.Results[p.Result] = held[p.Operand]
		}
		k := reference.Kernels[op.Name]
		k.Run(&c, 0, 1)
		dev.compute(op, on, d.rng.Uint64())
		for i := range c.Results {
			got := clone(&c.Results[i])
			dev.download(on.Results[i], &got)
			switch {
			case op.Name == "choose":
				mayChoose(t, &c, got.I32)
			case i < rowResults(op):
				same(t, "result", &got, &c.Results[i], 1e-5)
			default:
				sameKept(t, &got, &c.Results[i], 1e-5)
			}
		}
		for i, s := range states { // rounded apart, states would go on apart
			if s.DType != graph.F32 {
				state := held[i]
				dev.write(s, &state)
			}
		}
	}
}

func call(attrs graph.Attrs, results []kernels.Tensor, args ...kernels.Tensor) kernels.Call {
	return kernels.Call{Args: args, Results: results, Attrs: attrs}
}

func one(t kernels.Tensor) []kernels.Tensor { return []kernels.Tensor{t} }

// attr draws an attribute of an operation; most is the size of the letter that
// limits it.
func (d *draw) attr(op, name string, most int) any {
	for _, a := range findOp(d.T, op).Attrs {
		if a.Name == name {
			pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(d.T, name) }
			return graphgen.Attr(a, func(byte) int { return most }, pick)
		}
	}
	panic("BUG: " + op + " has no attribute " + name)
}

func embeddingCase(d *draw) func() kernels.Call {
	v, cols := d.size("v"), d.size("d", 67, 1025)
	table := d.tensor(d.format(), v, cols)
	limit := v
	if rapid.Bool().Draw(d.T, "shard") { // two fields, of each of which the rank has a run
		a, b := d.share(v+3), d.share(5)
		table = d.tensor(table.DType, a.Len+b.Len, cols)
		table.Axis, table.Full, table.Runs = 0, v+8, []graph.Run{a, {Start: v + 3 + b.Start, Len: b.Len}}
		limit = v + 8
	}
	return func() kernels.Call {
		ids := d.ints(d.size("t"), limit)
		return call(nil, one(d.tensor(graph.F32, ids.Rows(), cols)), ids, table)
	}
}

func selectCase(d *draw) func() kernels.Call {
	return func() kernels.Call {
		t, cols := d.size("t"), d.size("d", 65)
		rows := d.ints(d.size("rows"), t)
		return call(nil, one(d.tensor(graph.F32, rows.Rows(), cols)), d.tensor(graph.F32, t, cols), rows)
	}
}

func matmulCase(d *draw) func() kernels.Call {
	n, k := d.size("n", 63, 64, 65), d.size("k", 31, 64, 65)
	shape := d.pick("shape", 0, 0, 0, 1, 2)
	switch shape {
	case 1: // deep
		n, k = d.pick("n", 1, 4, 5, 9), d.pick("k", 255, 1024, 1033)
	case 2: // wide: a block of few rows has several columns
		n, k = gemvCols*gemvBlocks+d.pick("n", -1, 0, 1, 3), d.pick("k", 1, 16, 33)
	}
	w := d.tensor(d.format(), n, k)
	return func() kernels.Call {
		t := d.size("t", 24, 31)
		switch {
		case shape == 2:
			t = d.pick("t", 1, 1, 2)
		case d.pick("many", 0, 0, 1) == 1 && k < 100:
			t = d.pick("t", 33, 127, 129)
		}
		return call(nil, one(d.tensor(graph.F32, t, n)), d.tensor(graph.F32, t, k), w)
	}
}

func biasCase(d *draw) func() kernels.Call { return channelCase(d, d.size("n", 67, 1027), 1) }

func scaleCase(d *draw) func() kernels.Call { return channelCase(d, d.size("h"), d.size("p")) }

func channelCase(d *draw, h, p int) func() kernels.Call {
	return func() kernels.Call {
		t, width := d.size("t"), h*p
		return call(nil, one(d.tensor(graph.F32, t, width)), d.tensor(graph.F32, t, width), d.packed(graph.F32, h))
	}
}

func zipCase(d *draw) func() kernels.Call {
	return func() kernels.Call {
		t, width := d.size("t"), d.size("d", 67, 1027)
		return call(nil, one(d.tensor(graph.F32, t, width)), d.tensor(graph.F32, t, width), d.tensor(graph.F32, t, width))
	}
}

func elementCase(attrs graph.Attrs) func(d *draw) func() kernels.Call {
	return func(d *draw) func() kernels.Call {
		return func() kernels.Call {
			t, width := d.size("t"), d.size("d", 67, 1027)
			return call(attrs, one(d.tensor(graph.F32, t, width)), d.tensor(graph.F32, t, width))
		}
	}
}

func convertCase(d *draw) func() kernels.Call {
	return func() kernels.Call {
		t, width, to := d.size("t"), d.size("d", 67, 1027), d.format()
		return call(graph.Attrs{"to": to.String()}, one(d.tensor(to, t, width)), d.tensor(d.format(), t, width))
	}
}

func concatCase(d *draw) func() kernels.Call {
	return func() kernels.Call {
		t, format, width := d.size("t"), d.format(), 0
		var args []kernels.Tensor
		for range d.pick("values", 2, 3) {
			x := d.tensor(format, t, d.size("d", 65))
			args = append(args, x)
			width += x.Cols
		}
		return call(nil, one(d.tensor(format, t, width)), args...)
	}
}

// headDownCase: a rank has a run of all channels, and the results of the heads
// that they are of.
func headDownCase(d *draw) func() kernels.Call {
	h, k, n := d.size("h"), d.size("k", 17, 64, 65), d.size("n")
	x := d.share(h * k)
	heads := cover(x, k)
	w := part(d.tensor(d.format(), heads.Len*n, k), 0, h*n, n, heads.Start*n)
	return func() kernels.Call {
		t := d.size("t")
		return call(nil, one(part(d.tensor(graph.F32, t, heads.Len*n), 1, h*n, n, heads.Start*n)), part(d.tensor(graph.F32, t, x.Len), 1, h*k, 1, x.Start), w)
	}
}

// headUpCase: a rank has a run of all results, and what the heads have that they
// are of.
func headUpCase(d *draw) func() kernels.Call {
	h, k, n := d.size("h"), d.size("k"), d.size("n", 65)
	y := d.share(h * n)
	heads := cover(y, n)
	w := part(d.tensor(d.format(), y.Len, k), 0, h*n, 1, y.Start)
	return func() kernels.Call {
		t := d.size("t")
		return call(nil, one(part(d.tensor(graph.F32, t, y.Len), 1, h*n, 1, y.Start)), part(d.tensor(graph.F32, t, heads.Len*k), 1, h*k, k, heads.Start*k), w)
	}
}

func normCase(d *draw) func() kernels.Call {
	width := d.size("d", 65, 127, 513)
	if d.pick("wide", 0, 0, 0, 0, 0, 0, 0, 1) == 1 {
		width = 4100
	}
	w := d.packed(graph.F32, width)
	return func() kernels.Call {
		t := d.size("t")
		if width > 4096 {
			t = 1
		}
		return call(graph.Attrs{"eps": 0.5}, one(d.tensor(graph.F32, t, width)), d.tensor(graph.F32, t, width), w)
	}
}

func unitNormCase(d *draw) func() kernels.Call {
	next := normCase(d)
	return func() kernels.Call {
		c := next()
		c.Args = c.Args[:1]
		return c
	}
}

func groupNormCase(d *draw) func() kernels.Call {
	g, e := d.size("g"), d.size("e", 65)
	held := d.share(g)
	width := held.Len * e
	shard := func(t kernels.Tensor, axis int) kernels.Tensor { return part(t, axis, g*e, e, held.Start*e) }
	w := shard(d.packed(graph.F32, width), 0)
	return func() kernels.Call {
		t := d.size("t")
		return call(graph.Attrs{"groups": g, "eps": 0.5}, one(shard(d.tensor(graph.F32, t, width), 1)), shard(d.tensor(graph.F32, t, width), 1), w)
	}
}

func headNormCase(d *draw) func() kernels.Call {
	size := d.size("p", 65, 130)
	w, next := d.packed(graph.F32, size), headsCase(d, size)
	return func() kernels.Call {
		c := next()
		c.Args = append(c.Args, w)
		return c
	}
}

func headL2NormCase(d *draw) func() kernels.Call { return headsCase(d, d.size("p", 65, 130)) }

// headsCase is a function of heads of a size.
func headsCase(d *draw, size int) func() kernels.Call {
	h := d.size("h")
	held := d.share(h)
	heads := func(t int) kernels.Tensor {
		return part(d.tensor(graph.F32, t, held.Len*size), 1, h*size, size, held.Start*size)
	}
	return func() kernels.Call {
		t := d.size("t")
		return call(graph.Attrs{"eps": 0.5}, one(heads(t)), heads(t))
	}
}

func sumsqCase(d *draw) func() kernels.Call {
	return func() kernels.Call {
		t := d.size("t")
		return call(nil, one(d.packed(graph.F32, t)), d.tensor(graph.F32, t, d.size("d", 65, 1027)))
	}
}

// sums are squares of a width, far from 0.
func (d *draw) sums(t kernels.Tensor, width int) kernels.Tensor {
	d.fill(&t, func(v float64) float64 { return float64(width) * (0.5 + positive(v)) })
	return t
}

func rmsScaleCase(d *draw) func() kernels.Call {
	width := d.size("d", 65, 1027)
	attrs := graph.Attrs{"width": 2 * width, "eps": 0.5}
	return func() kernels.Call {
		t := d.size("t")
		return call(attrs, one(d.tensor(graph.F32, t, width)), d.tensor(graph.F32, t, width), d.sums(d.packed(graph.F32, t), 2*width), d.packed(graph.F32, width))
	}
}

func rmsRowsCase(d *draw) func() kernels.Call {
	next := rmsScaleCase(d)
	return func() kernels.Call {
		c := next()
		c.Args = c.Args[:2]
		return c
	}
}

// groupSumsqCase: a rank has a run of all channels, and sums of the groups that
// they are of.
func groupSumsqCase(d *draw) func() kernels.Call {
	g, e := d.size("g"), d.size("e", 65)
	x := d.share(g * e)
	groups := cover(x, e)
	return func() kernels.Call {
		t := d.size("t")
		return call(graph.Attrs{"groups": g}, one(part(d.tensor(graph.F32, t, groups.Len), 1, g, 1, groups.Start)), part(d.tensor(graph.F32, t, x.Len), 1, g*e, 1, x.Start))
	}
}

func groupScaleCase(d *draw) func() kernels.Call {
	g, e := d.size("g"), d.size("e", 65)
	x := d.share(g * e)
	groups := cover(x, e)
	shard := func(t kernels.Tensor, axis int) kernels.Tensor { return part(t, axis, g*e, 1, x.Start) }
	w := shard(d.packed(graph.F32, x.Len), 0)
	return func() kernels.Call {
		t := d.size("t")
		sums := part(d.sums(d.tensor(graph.F32, t, groups.Len), e), 1, g, 1, groups.Start)
		return call(graph.Attrs{"width": e, "eps": 0.5}, one(shard(d.tensor(graph.F32, t, x.Len), 1)), shard(d.tensor(graph.F32, t, x.Len), 1), sums, w)
	}
}

func convCase(d *draw) func() kernels.Call {
	cols, w := d.size("c", 63, 127, 129), d.pick("w", 1, 2, 3, 4, 4, 4, 5)
	filter, state := d.tensor(graph.F32, cols, w), d.packed(d.kept("conv1d"), slots, cols, w-1)
	return func() kernels.Call {
		seg, _, t := d.batch()
		return call(nil, []kernels.Tensor{d.tensor(graph.F32, t, cols), state}, d.tensor(graph.F32, t, cols), filter, state, seg)
	}
}

// scanShape draws groups of channels or heads, of which a rank has a run, and
// the groups of B and C that they read.
func (d *draw) scanShape(each ...int) (heads, held, groups graph.Run, per int) {
	g := d.pick("g", 1, 1, 2, 3)
	per = d.pick("q", each...)
	heads = graph.Run{Start: 0, Len: g * per}
	held = d.share(heads.Len)
	if d.oneGroup {
		return heads, held, graph.Run{Start: 0, Len: 1}, heads.Len
	}
	return heads, held, cover(held, per), per
}

func selectiveCase(d *draw) func() kernels.Call {
	return selectiveOf(d, d.pick("n", 1, 3, 4, 16, 16, 17, 33, 65))
}

func selectiveOf(d *draw, n int) func() kernels.Call {
	all, held, groups, per := d.scanShape(1, 2, 5, 31, 32, 33, 65)
	channels := func(t kernels.Tensor, axis int) kernels.Tensor { return part(t, axis, all.Len, 1, held.Start) }
	shared := func(t kernels.Tensor) kernels.Tensor { return part(t, 1, all.Len/per*n, n, groups.Start*n) }
	a := d.tensor(graph.F32, held.Len, n)
	d.fill(&a, negative)
	a, state := channels(a, 0), channels(d.packed(d.kept("selective_scan"), slots, held.Len, n), 1)
	return func() kernels.Call {
		seg, _, t := d.batch()
		dt := d.tensor(graph.F32, t, held.Len)
		d.fill(&dt, positive)
		b, c := d.tensor(graph.F32, t, groups.Len*n), d.tensor(graph.F32, t, groups.Len*n)
		return call(nil, []kernels.Tensor{channels(d.tensor(graph.F32, t, held.Len), 1), state},
			channels(d.tensor(graph.F32, t, held.Len), 1), channels(dt, 1), a, shared(b), shared(c), state, seg)
	}
}

// stepCase draws what the steps of a scan have in common: channels, of which a rank has a
// run, n states of each, and the groups of B and C.
func stepCase(d *draw) (held, n, groups int, channels func(t kernels.Tensor, axis int) kernels.Tensor, shared func(t kernels.Tensor) kernels.Tensor) {
	n = d.pick("n", 1, 3, 16, 17)
	all, own, covered, per := d.scanShape(1, 2, 5, 33)
	return own.Len, n, covered.Len, func(t kernels.Tensor, axis int) kernels.Tensor { return part(t, axis, all.Len, 1, own.Start) },
		func(t kernels.Tensor) kernels.Tensor { return part(t, 1, all.Len/per*n, n, covered.Start*n) }
}

func scanTermsCase(d *draw) func() kernels.Call {
	held, n, groups, channels, shared := stepCase(d)
	a := d.tensor(graph.F32, held, n)
	d.fill(&a, negative)
	a = channels(a, 0)
	return func() kernels.Call {
		_, _, t := d.batch()
		dt := d.tensor(graph.F32, t, held)
		d.fill(&dt, positive)
		made := func() kernels.Tensor { return channels(d.tensor(graph.F32, t, held, n), 1) }
		return call(nil, []kernels.Tensor{made(), made()}, channels(d.tensor(graph.F32, t, held), 1), channels(dt, 1), a, shared(d.tensor(graph.F32, t, groups*n)))
	}
}

func scanPrefixCase(d *draw) func() kernels.Call {
	held, n, _, channels, _ := stepCase(d)
	return func() kernels.Call {
		seg, _, t := d.batch()
		made := func() kernels.Tensor { return channels(d.tensor(graph.F32, t, held, n), 1) }
		decay := made()
		multiply(decay.F32, 0.5)
		return call(nil, []kernels.Tensor{made(), made()}, decay, made(), seg)
	}
}

func scanOutputCase(d *draw) func() kernels.Call {
	held, n, groups, channels, shared := stepCase(d)
	state := channels(d.packed(d.kept("scan_output"), slots, held, n), 1)
	return func() kernels.Call {
		seg, _, t := d.batch()
		made := func() kernels.Tensor { return channels(d.tensor(graph.F32, t, held, n), 1) }
		return call(nil, []kernels.Tensor{channels(d.tensor(graph.F32, t, held), 1), state}, made(), made(), shared(d.tensor(graph.F32, t, groups*n)), state, seg)
	}
}

func ssdCase(d *draw) func() kernels.Call {
	return ssdOf(d, d.pick("p", 1, 4, 5, 16, 17, 33, 64), d.pick("n", 1, 3, 4, 16, 17, 65, 129))
}

func ssdOf(d *draw, size, n int) func() kernels.Call {
	all, held, groups, per := d.scanShape(1, 2, 3)
	if size*n > 1000 {
		all.Len, held, d.most = per, graph.Run{Start: 0, Len: 1}, 2
		groups = cover(held, per)
	}
	heads := func(t kernels.Tensor, axis int) kernels.Tensor { return part(t, axis, all.Len, 1, held.Start) }
	channels := func(t kernels.Tensor) kernels.Tensor { return part(t, 1, all.Len*size, size, held.Start*size) }
	shared := func(t kernels.Tensor) kernels.Tensor { return part(t, 1, all.Len/per*n, n, groups.Start*n) }
	a := d.packed(graph.F32, held.Len)
	d.fill(&a, negative)
	far := d.pick("far", 0, 0, 0, 1) == 1 // rates so large that most tokens' steps are tiny, and after some all is gone
	if far {
		multiply(a.F32, 1e30)
	}
	a, state := heads(a, 0), heads(d.packed(d.kept("ssd_scan"), slots, held.Len, size, n), 1)
	return func() kernels.Call {
		seg, _, t := d.batch()
		dt := d.tensor(graph.F32, t, held.Len)
		d.fill(&dt, positive)
		for i := 0; far && i < len(dt.F32); i++ {
			if d.rng.IntN(8) > 0 {
				dt.F32[i] *= 1e-30
			}
		}
		b, c := d.tensor(graph.F32, t, groups.Len*n), d.tensor(graph.F32, t, groups.Len*n)
		return call(nil, []kernels.Tensor{channels(d.tensor(graph.F32, t, held.Len*size)), state},
			channels(d.tensor(graph.F32, t, held.Len*size)), heads(dt, 1), a, shared(b), shared(c), state, seg)
	}
}

func deltaCase(d *draw) func() kernels.Call {
	n, size := d.pick("n", 1, 3, 16, 31, 32, 33, 65), d.pick("p", 1, 4, 17, 32, 33, 64)
	return drawDelta(d, n, size, d.pick("decays", 1, n), 1)
}

// drawDelta draws keys of length 1 or so, betas that are often near 0 or 1, and log decays of a
// size.
func drawDelta(d *draw, n, size, decays int, decay float64) func() kernels.Call {
	all, held, groups, per := d.scanShape(1, 2, 3)
	if size*n > 1000 {
		all.Len, held, d.most = per, graph.Run{Start: 0, Len: 1}, min(d.most, 2)
		groups = cover(held, per)
	}
	heads := func(t kernels.Tensor, unit int) kernels.Tensor {
		return part(t, 1, all.Len*unit, unit, held.Start*unit)
	}
	shared := func(t kernels.Tensor) kernels.Tensor { return part(t, 1, all.Len/per*n, n, groups.Start*n) }
	state := heads(d.packed(d.kept("delta_scan"), slots, held.Len, n, size), 1)
	return func() kernels.Call {
		seg, _, t := d.batch()
		g, beta := d.tensor(graph.F32, t, held.Len*decays), d.tensor(graph.F32, t, held.Len)
		d.fill(&g, func(v float64) float64 { return decay * negative(v) })
		d.fill(&beta, func(v float64) float64 { return 1 / (1 + math.Exp(-4*v)) })
		q, k := d.tensor(graph.F32, t, groups.Len*n), d.tensor(graph.F32, t, groups.Len*n)
		d.fill(&k, func(v float64) float64 { return v / math.Sqrt(float64(2*n)) }) // or what is known grows
		return call(graph.Attrs{"scale": 0.5}, []kernels.Tensor{heads(d.tensor(graph.F32, t, held.Len*size), size), state},
			shared(q), shared(k), heads(d.tensor(graph.F32, t, held.Len*size), size), heads(g, decays), heads(beta, 1), state, seg)
	}
}

func multiply(x []float32, by float32) {
	for i := range x {
		x[i] *= by
	}
}

func rotaryCase(d *draw) func() kernels.Call {
	h, p := d.size("h"), d.size("p", 64)
	dims := d.attr("rotary", "dims", p)
	for i := range d.past {
		d.past[i] = d.pick("past", 0, 1, 100, 100_000)
	}
	return func() kernels.Call {
		seg, past, t := d.batch()
		x, y := d.tensor(graph.F32, t, h*p), d.tensor(graph.F32, t, h*p)
		x.Unit, y.Unit = p, p
		return call(graph.Attrs{"theta": 10000.0, "dims": dims}, one(y), x, seg, past)
	}
}

func attentionCase(d *draw) func() kernels.Call {
	all, held, groups, per := d.scanShape(1, 2, 3, 5, 9)
	size := d.pick("p", 1, 4, 5, 31, 65, 132, 132, 132, 260)
	d.lens = []int{1, 2, 5, 33}
	if size > 30 {
		all.Len, held, d.most = per, graph.Run{Start: held.Start % per, Len: min(held.Len, per-held.Start%per, 2)}, 2
		groups = cover(held, per)
	}
	if size > 256 {
		d.lens = []int{1, 2, 5}
	}
	room, pasts := 128, []int{0, 3, 40} // one split
	if d.pick("splits", 1, 1, 3) > 1 {
		room, pasts = 300, []int{0, 63, 127, 200}
	}
	queries := func(t kernels.Tensor) kernels.Tensor { return part(t, 1, all.Len*size, size, held.Start*size) }
	shared := func(t kernels.Tensor, axis int) kernels.Tensor {
		return part(t, axis, all.Len/per*size, size, groups.Start*size)
	}
	kept := d.kept("attention")
	cache := func() kernels.Tensor {
		c := shared(d.packed(kept, slots, room, groups.Len*size), 2)
		c.Cols, c.Stride = groups.Len*size, groups.Len*size
		return c
	}
	keys, values := cache(), cache()
	for i := range d.past { // as if there had been a prompt
		d.past[i] = d.pick("past", pasts...)
	}
	whole := rapid.Bool().Draw(d.T, "whole keys") // more than the caches keep here
	return func() kernels.Call {
		seg, past, t := d.batch()
		k, v := shared(d.tensor(graph.F32, t, groups.Len*size), 1), shared(d.tensor(graph.F32, t, groups.Len*size), 1)
		if whole {
			k, v = d.tensor(graph.F32, t, all.Len/per*size), d.tensor(graph.F32, t, all.Len/per*size)
			k.Unit, v.Unit = size, size
		}
		return call(graph.Attrs{"scale": 0.5}, []kernels.Tensor{queries(d.tensor(graph.F32, t, held.Len*size)), keys, values},
			queries(d.tensor(graph.F32, t, held.Len*size)), k, v, keys, values, seg, past)
	}
}

func routerCase(d *draw) func() kernels.Call {
	e := d.size("e", 64, 129)
	attrs := graph.Attrs{"top": d.attr("router", "top", e), "norm": d.attr("router", "norm", e)}
	return func() kernels.Call {
		t := d.size("t")
		x := d.tensor(graph.F32, t, e)
		if d.pick("ties", 0, 1) == 1 {
			d.fill(&x, func(v float64) float64 { return float64(int(v)) })
		}
		return call(attrs, one(d.tensor(graph.F32, t, e)), x)
	}
}

// sigmoidRouterCase: scores and biases are multiples of what keeps sums that are not equal
// apart.
func sigmoidRouterCase(d *draw) func() kernels.Call {
	groups := d.pick("groups", 1, 1, 2, 5, 64)
	e := groups * d.size("e", 64/groups+1, 129/groups+1)
	attrs := graph.Attrs{"top": d.attr("sigmoid_router", "top", e/groups), "norm": d.attr("sigmoid_router", "norm", e),
		"groups": groups, "kept": d.attr("sigmoid_router", "kept", groups), "eps": d.attr("sigmoid_router", "eps", e)}
	step := func(by float64) func(v float64) float64 {
		return func(v float64) float64 { return math.Round(v*by) / by }
	}
	bias := d.packed(graph.F32, e)
	d.fill(&bias, step(64))
	return func() kernels.Call {
		t := d.size("t")
		x := d.tensor(graph.F32, t, e)
		d.fill(&x, step(4))
		if groups > 1 { // sigmoids of v and -v sum up to 1, rounded in several ways
			d.fill(&x, math.Abs)
		}
		return call(attrs, one(d.tensor(graph.F32, t, e)), x, bias)
	}
}

// ungatedCase is the case of experts without up, whose place the gate takes.
func ungatedCase(d *draw) func() kernels.Call {
	next := expertsCase(d)
	return func() kernels.Call {
		c := next()
		return call(c.Attrs, c.Results, c.Args[0], c.Args[1], c.Args[2], c.Args[4])
	}
}

func expertsCase(d *draw) func() kernels.Call {
	return expertsOf(d, d.pick("e", 1, 2, 3, 5), d.size("i", 65), d.size("k", 33), d.size("n", 65), d.format())
}

func expertsOf(d *draw, e, i, k, n int, format graph.DType) func() kernels.Call {
	gate, up, down := d.packed(format, e, i, k), d.packed(format, e, i, k), d.packed(format, e, n, i)
	if d.pick("apart", 0, 1) == 1 { // as parts of one tensor lie
		gate.Stride *= 2
		up.Stride *= 2
	}
	for _, w := range []*kernels.Tensor{&gate, &up} {
		d.fill(w, func(v float64) float64 { return v / 4 })
	}
	attrs := graph.Attrs{"act": d.attr("experts", "act", e), "top": d.attr("experts", "top", e)}
	return func() kernels.Call {
		t := d.size("t", 40)
		if e*i*k*n < 500 {
			t = d.pick("many", t, 300)
		}
		weights := d.tensor(graph.F32, t, e)
		zeros := d.pick("zeros", 0, 50, 90)
		d.fill(&weights, func(v float64) float64 {
			if d.rng.IntN(100) < zeros {
				return 0
			}
			return v
		})
		return call(attrs, one(d.tensor(graph.F32, t, n)), d.tensor(graph.F32, t, k), weights, gate, up, down)
	}
}

func addNormCase(d *draw) func() kernels.Call {
	next := normCase(d)
	return func() kernels.Call {
		c := next()
		x, w := c.Args[0], c.Args[1]
		more := func() kernels.Tensor { return d.tensor(graph.F32, x.Rows(), x.Cols) }
		return call(c.Attrs, []kernels.Tensor{more(), c.Results[0]}, x, more(), w)
	}
}

func convSiluCase(d *draw) func() kernels.Call {
	next := convCase(d)
	var b kernels.Tensor
	return func() kernels.Call {
		c := next()
		if b.F32 == nil {
			b = d.packed(graph.F32, c.Args[1].Rows())
		}
		return call(nil, c.Results, c.Args[0], c.Args[1], b, c.Args[2], c.Args[3])
	}
}

func addScaledCase(d *draw) func() kernels.Call {
	next := scaleCase(d)
	return func() kernels.Call {
		c := next()
		return call(nil, c.Results, d.tensor(graph.F32, c.Args[0].Rows(), c.Args[0].Cols), c.Args[0], c.Args[1])
	}
}

func matmulAddCase(d *draw) func() kernels.Call {
	next := matmulCase(d)
	return func() kernels.Call {
		c := next()
		return call(nil, c.Results, c.Args[0], c.Args[1], d.tensor(graph.F32, c.Results[0].Rows(), c.Results[0].Cols))
	}
}

func normMatmulCase(d *draw) func() kernels.Call {
	next := matmulCase(d)
	var g kernels.Tensor
	return func() kernels.Call {
		c := next()
		if g.F32 == nil {
			g = d.packed(graph.F32, c.Args[0].Cols)
		}
		return call(graph.Attrs{"eps": 0.5}, c.Results, c.Args[0], g, c.Args[1])
	}
}

func normMatmulAddCase(d *draw) func() kernels.Call {
	next := normMatmulCase(d)
	return func() kernels.Call {
		c := next()
		c.Args = append(c.Args, d.tensor(graph.F32, c.Results[0].Rows(), c.Results[0].Cols))
		return c
	}
}

func selectiveGatedCase(d *draw) func() kernels.Call {
	return gatedCase(d, selectiveOf(d, d.pick("n", 1, 3, 4, 16, 16, 17, 33, 65)), nil)
}

// gatedCase is a scan with what is fused with it: biases, D and z, which is a row like y.
func gatedCase(d *draw, next func() kernels.Call, attrs graph.Attrs) func() kernels.Call {
	var b, skip kernels.Tensor
	return func() kernels.Call {
		c := next()
		y, a := c.Results[0], c.Args
		d.fill(&a[1], func(v float64) float64 { return v })
		if b.F32 == nil {
			whole := a[1]
			vector := part(d.packed(graph.F32, whole.Cols), 0, whole.Full, whole.Unit, whole.Start())
			b, skip = vector, clone(&vector)
			d.fill(&skip, func(v float64) float64 { return v })
		}
		z := part(d.tensor(graph.F32, y.Rows(), y.Cols), 1, y.Full, y.Unit, y.Start())
		return call(attrs, c.Results, a[0], a[1], b, a[2], a[3], a[4], skip, z, a[5], a[6])
	}
}

// selectiveProjectedCase has a product of few terms in place of the steps.
func selectiveProjectedCase(d *draw) func() kernels.Call {
	return projectedCase(d, selectiveGatedCase(d))
}

func projectedCase(d *draw, next func() kernels.Call) func() kernels.Call {
	depth, format := d.size("k", 31, 40, 160), d.format()
	var w kernels.Tensor
	return func() kernels.Call {
		c := next()
		dt := c.Args[1]
		if w.Cols == 0 {
			w = part(d.tensor(format, dt.Cols, depth), 0, dt.Full, 1, dt.Start())
			d.fill(&w, func(v float64) float64 { return v / math.Sqrt(float64(depth)) })
		}
		c.Args = append([]kernels.Tensor{c.Args[0], d.tensor(graph.F32, dt.Rows(), depth), w}, c.Args[2:]...)
		return c
	}
}

func ssdGatedCase(d *draw) func() kernels.Call {
	attrs := graph.Attrs{"min": 0.0, "max": math.Inf(1)}
	if d.pick("clamp", 0, 1) == 1 {
		attrs = graph.Attrs{"min": 0.25, "max": 0.75}
	}
	return gatedCase(d, ssdCase(d), attrs)
}
