package gorgonia_test

import (
	"maps"
	"math"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/cpu"
	G "gorgonia.org/gorgonia"
	"pgregory.net/rapid"
)

// oracle is an operation in Gorgonia: it builds krait's graph of the case, and
// evaluates the same there. After the result come the new states.
type oracle func(c *opCase) [][]float64

// oracles has every operation that computes, with its oracle or with the reason
// why Gorgonia cannot express it.
var oracles = map[string]struct {
	run oracle
	why string
}{
	"embedding":   {run: embedding},
	"select_rows": {run: selectRows},

	"matmul": {run: matmul},
	"bias":   {run: bias},
	"scale":  {run: scale},
	"add":    {run: pairs(G.Add)},
	"mul":    {run: pairs(G.HadamardProd)},

	"times":     {run: multiply},
	"plus":      {run: addNumber},
	"head_down": {run: headProduct},
	"head_up":   {run: headProduct},
	"concat":    {run: concat},

	"silu":      {run: each(silu)},
	"gelu":      {run: each(gelu)},
	"gelu_tanh": {run: each(geluTanh)},
	"relu":      {run: each(relu)},
	"relu2":     {run: each(func(x *G.Node) *G.Node { return G.Must(G.Square(relu(x))) })},
	"sigmoid":   {run: each(func(x *G.Node) *G.Node { return G.Must(G.Sigmoid(x)) })},
	"tanh":      {run: each(func(x *G.Node) *G.Node { return G.Must(G.Tanh(x)) })},
	"softplus":  {run: each(func(x *G.Node) *G.Node { return G.Must(G.Softplus(x)) })},
	"neg_exp":   {run: each(func(x *G.Node) *G.Node { return G.Must(G.Neg(G.Must(G.Exp(x)))) })},
	"clamp":     {run: clamp},

	"rmsnorm":       {run: rmsNorm},
	"unit_rmsnorm":  {run: unitRMSNorm},
	"group_rmsnorm": {run: groupRMSNorm},
	"head_rmsnorm":  {run: headRMSNorm},
	"head_l2norm":   {run: headL2Norm},
	"sumsq":         {run: sumSquares},
	"rms_scale":     {run: rmsScale},
	"rms_rows":      {run: rmsRows},

	"group_sumsq":     {run: groupSumSquares},
	"group_rms_scale": {run: groupRMSScale},

	"conv1d":         {run: conv1d},
	"selective_scan": {run: selectiveScan},
	"ssd_scan":       {run: ssdScan},
	"delta_scan":     {run: deltaScan},
	"scan_terms":     {run: scanTerms},
	"scan_prefix":    {run: scanPrefix},
	"scan_output":    {run: scanOutput},

	"add_rmsnorm":   {run: addRMSNorm},
	"conv1d_silu":   {run: convSilu},
	"silu_mul":      {run: pairs(func(x, y *G.Node) (*G.Node, error) { return G.HadamardProd(silu(x), y) })},
	"bias_softplus": {run: biasSoftplus},
	"add_scaled":    {run: addScaled},

	"rotary":    {run: rotary},
	"attention": {run: attention},
	"router":    {run: router},
	"experts":   {run: experts},

	"sigmoid_router":  {run: sigmoidRouter},
	"ungated_experts": {run: experts},

	"unbiased_conv1d_silu":       {run: unbiasedConvSilu},
	"matmul_add":                 {why: composed},
	"norm_matmul":                {why: composed},
	"norm_matmul_add":            {why: composed},
	"gated_matmul":               {why: composed},
	"norm_gated_matmul":          {why: composed},
	"rmsnorm_each":               {why: composed},
	"unit_rmsnorm_each":          {why: composed},
	"selective_scan_normed":      {why: composed},
	"selective_scan_unit_normed": {why: composed},
	"selective_scan_gated":       {why: composed},
	"selective_scan_projected":   {why: composed},
	"ssd_scan_gated":             {why: composed},
	"norm_router":                {why: composed},
	"add_experts":                {why: composed},
	"add_ungated_experts":        {why: composed},

	"parts":            {why: ofParts},
	"zeros":            {why: ofParts},
	"segment_sums":     {why: ofParts},
	"conv_states":      {why: ofParts},
	"selective_states": {why: ofParts},
	"ssd_states":       {why: ofParts},
	"delta_states":     {why: ofParts},

	"choose": {why: "Gorgonia draws nothing, and selects nothing by its order"},

	"quantize":   {why: narrow},
	"dequantize": {why: narrow},
}

const composed = "on the CPU it is the operations that it stands for, which are held against Gorgonia"

const ofParts = "Gorgonia knows no parts of sequences; TestParts of exec holds it against float64"

const narrow = "Gorgonia's smallest float has 32 bits"

// tolerance is a share of the largest magnitude, which counts as at least 1: what
// the f32 sums of both sides may be apart where three of them are multiplied.
const tolerance = 3e-5

// TestOracles holds the fast kernels against Gorgonia. For each drawn case it
// also spoils the kernel, to see that it would notice.
func TestOracles(t *testing.T) {
	for _, op := range graph.Ops() {
		if op.Class != graph.Compute {
			continue
		}
		t.Run(op.Name, func(t *testing.T) {
			o := oracles[op.Name]
			if (o.run == nil) == (o.why == "") {
				t.Fatalf("the table oracles must say how Gorgonia computes %s, or why it cannot", op.Name)
			}
			if o.run != nil {
				prop.Check(t, func(t *rapid.T) { checkOracle(newCase(t, op), o.run) })
			}
		})
	}
}

func checkOracle(c *opCase, run oracle) {
	want := run(c)
	got := c.run(cpu.Kernels)
	if len(got) != len(want) {
		c.t.Fatalf("%d results, want %d", len(got), len(want))
	}
	for i := range want {
		if off := distance(got[i], want[i]); !(off <= tolerance) {
			c.t.Errorf("result %d is off by %g of its largest magnitude", i, off)
		}
		if len(want[i]) == 0 {
			continue // the state of a convolution of width 1
		}
		if spoilt := c.run(spoil(c.op.Name, i)); distance(spoilt[i], want[i]) <= tolerance {
			c.t.Errorf("a wrong result %d is not noticed", i)
		}
	}
}

// distance is the largest difference as a share of the largest magnitude.
func distance(got []float32, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	off, largest := 0.0, 1.0
	for i, w := range want {
		off = max(off, math.Abs(float64(got[i])-w)) // a NaN stays one
		largest = max(largest, math.Abs(w))
	}
	return off / largest
}

// spoil is the fast kernels but for one, whose result number i is wrong in one
// element by three times the tolerance.
func spoil(op string, i int) kernels.Set {
	set := maps.Clone(cpu.Kernels)
	right := set[op]
	set[op] = kernels.Kernel{
		Units: func(*kernels.Call) int { return 1 },
		Run: func(c *kernels.Call, _, _ int) {
			right.Prepare(c)
			right.Run(c, 0, right.Units(c))
			rows := rowsOf
			if op == "attention" && i > 0 {
				rows = cached
			}
			v := largest(rows(c, &c.Results[i]))
			*v += float32(3 * tolerance * max(1, math.Abs(float64(*v))))
		},
	}
	return set
}

func rowsOf(_ *kernels.Call, r *kernels.Tensor) (rows [][]float32) {
	for i := range r.Rows() {
		rows = append(rows, r.Row(i))
	}
	return rows
}

// cached are the rows that a cache has of the tokens of the batch, and those before.
func cached(c *kernels.Call, r *kernels.Tensor) (rows [][]float32) {
	seg, past := &c.Args[5], c.Args[6].I32
	for s := range seg.Rows() {
		_, tokens, slot := seg.Segment(s)
		for t := range int(past[s]) + tokens {
			in, at, _ := r.Cached(s, slot, t)
			rows = append(rows, in.F32[at:at+r.Cols])
		}
	}
	return rows
}

// largest is the element of the largest magnitude.
func largest(rows [][]float32) *float32 {
	at := &rows[0][0]
	for _, row := range rows {
		for j := range row {
			if math.Abs(float64(row[j])) > math.Abs(float64(*at)) {
				at = &row[j]
			}
		}
	}
	return at
}

func mul(x, y *G.Node) *G.Node { return G.Must(G.HadamardProd(x, y)) }

// times multiplies by a number, plus adds one.
func times(x *G.Node, v float64) *G.Node { return mul(x, G.NewConstant(v)) }
func plus(x *G.Node, v float64) *G.Node  { return G.Must(G.Add(x, G.NewConstant(v))) }

// each is an operation with one operand, element by element.
func each(f func(x *G.Node) *G.Node) oracle {
	return func(c *opCase) [][]float64 {
		x := c.inputOf(graph.Size(c.size("d")), func(int, int) float64 { return 16*c.rng.Float64() - 8 })
		c.apply(nil, x)
		return [][]float64{evaluate(func(n []*G.Node) *G.Node { return f(n[0]) }, x.matrix)}
	}
}

// pairs is an operation with two operands, element by element.
func pairs(f func(x, y *G.Node) (*G.Node, error)) oracle {
	return func(c *opCase) [][]float64 {
		d := graph.Size(c.size("d"))
		x, y := c.input(d), c.input(d)
		c.apply(nil, x, y)
		return [][]float64{evaluate(func(n []*G.Node) *G.Node { return G.Must(f(n[0], n[1])) }, x.matrix, y.matrix)}
	}
}

func silu(x *G.Node) *G.Node { return mul(x, G.Must(G.Sigmoid(x))) }
func relu(x *G.Node) *G.Node { return G.Must(G.Rectify(x)) }

// gelu is x Φ(x) with Φ(x) = 1/2 + φ(x) (x + x³/3 + x⁵/(3·5) + …), Marsaglia
// 2004, since Gorgonia has no erf. The sum is good for x from -8 to 8.
func gelu(x *G.Node) *G.Node {
	square := G.Must(G.Square(x))
	term, sum := x, x
	for k := 3; k < 150; k += 2 {
		term = times(mul(term, square), 1/float64(k))
		sum = G.Must(G.Add(sum, term))
	}
	density := times(G.Must(G.Exp(times(square, -0.5))), 1/math.Sqrt(2*math.Pi))
	return mul(x, plus(mul(density, sum), 0.5))
}

func geluTanh(x *G.Node) *G.Node {
	inner := G.Must(G.Add(x, times(G.Must(G.Cube(x)), 0.044715)))
	return times(mul(x, plus(G.Must(G.Tanh(times(inner, math.Sqrt(2/math.Pi)))), 1)), 0.5)
}

func clamp(c *opCase) [][]float64 {
	const lo, hi = -0.25, 0.5
	x := c.input(graph.Size(c.size("d")))
	c.apply(graph.Attrs{"min": lo, "max": hi}, x)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		return G.Must(G.MinBetween(G.Must(G.MaxBetween(n[0], n[1])), n[2]))
	}, x.matrix, x.filled(lo), x.filled(hi))}
}

func multiply(c *opCase) [][]float64 {
	x, by := c.input(graph.Size(c.size("d"))), c.normal(0, 0)
	c.apply(graph.Attrs{"by": by}, x)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node { return times(n[0], by) }, x.matrix)}
}

func addNumber(c *opCase) [][]float64 {
	x, by := c.input(graph.Size(c.size("d"))), c.normal(0, 0)
	c.apply(graph.Attrs{"by": by}, x)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node { return plus(n[0], by) }, x.matrix)}
}

func concat(c *opCase) [][]float64 {
	var values []operand
	var parts []matrix
	for range rapid.IntRange(2, 4).Draw(c.t, "operands") {
		values = append(values, c.input(graph.Size(c.size("d"))))
		parts = append(parts, values[len(values)-1].matrix)
	}
	c.apply(graph.Attrs{"names": "a|b|c|d"[:2*len(values)-1]}, values...)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node { return G.Must(G.Concat(1, n...)) }, parts...)}
}

// product is x times y in Gorgonia.
func product(x, y matrix) []float64 {
	return evaluate(func(n []*G.Node) *G.Node { return G.Must(G.Mul(n[0], n[1])) }, x, y)
}

func matmul(c *opCase) [][]float64 {
	k := c.size("k")
	x, w := c.input(graph.Size(k)), c.weight(c.size("n"), k)
	c.apply(nil, x, w)
	return [][]float64{product(x.matrix, w.transposed())}
}

// oneHot has a 1 per row; a product with it selects rows.
func oneHot(rows []int, n int) matrix {
	return matrixOf(len(rows), n, func(i, j int) float64 {
		if rows[i] == j {
			return 1
		}
		return 0
	})
}

func embedding(c *opCase) [][]float64 {
	table := c.weight(c.size("v"), c.size("d"))
	var all []int
	for i := range c.batch.Sequences {
		q := &c.batch.Sequences[i]
		for range q.Len {
			q.Tokens = append(q.Tokens, c.rng.IntN(table.rows))
		}
		all = append(all, q.Tokens...)
	}
	ids := operand{value: c.b.Input("ids", graph.TypeOf(graph.I32, graph.Symbol(graph.Tokens)))}
	c.apply(nil, ids, table)
	return [][]float64{product(oneHot(all, table.rows), table.matrix)}
}

func selectRows(c *opCase) [][]float64 {
	x := c.input(graph.Size(c.size("d")))
	var all []int
	start := 0
	for i := range c.batch.Sequences {
		q := &c.batch.Sequences[i]
		for range c.few("o") {
			q.Rows = append(q.Rows, c.rng.IntN(q.Len))
			all = append(all, start+q.Rows[len(q.Rows)-1])
		}
		start += q.Len
	}
	rows := operand{value: c.b.Input("rows", graph.TypeOf(graph.I32, graph.Symbol(graph.Rows)))}
	c.apply(nil, x, rows)
	return [][]float64{product(oneHot(all, c.tokens), x.matrix)}
}

func bias(c *opCase) [][]float64 {
	d := graph.Size(c.size("n"))
	x, b := c.input(d), c.param(c.normal, d)
	c.apply(nil, x, b)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		return G.Must(G.BroadcastAdd(n[0], n[1], nil, []byte{0}))
	}, x.matrix, b.matrix)}
}

func scale(c *opCase) [][]float64 {
	h, p := c.few("h"), c.size("p")
	x, d := c.input(graph.Units(h*p, p)), c.param(c.normal, graph.Size(h))
	c.apply(nil, x, d)
	perChannel := matrixOf(1, h*p, func(_, j int) float64 { return d.at(0, j/p) })
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		return G.Must(G.BroadcastHadamardProd(n[0], n[1], nil, []byte{0}))
	}, x.matrix, perChannel)}
}

const eps = 0.5 // large enough to matter

// normalised is each row of x by its root mean square.
func normalised(x *G.Node) *G.Node {
	rms := G.Must(G.Sqrt(plus(G.Must(G.Mean(G.Must(G.Square(x)), 1)), eps)))
	return G.Must(G.BroadcastHadamardDiv(x, rms, nil, []byte{1}))
}

func unitRMSNorm(c *opCase) [][]float64 {
	x := c.input(graph.Size(c.size("d")))
	c.apply(graph.Attrs{"eps": eps}, x)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node { return normalised(n[0]) }, x.matrix)}
}

func rmsNorm(c *opCase) [][]float64 {
	d := graph.Size(c.size("d"))
	x, w := c.input(d), c.param(c.normal, d)
	c.apply(graph.Attrs{"eps": eps}, x, w)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		return G.Must(G.BroadcastHadamardProd(normalised(n[0]), n[1], nil, []byte{0}))
	}, x.matrix, w.matrix)}
}

// groupRMSNorm has a row per token and group.
func groupRMSNorm(c *opCase) [][]float64 {
	g, e := c.few("g"), c.size("e")
	x, w := c.input(graph.Units(g*e, e)), c.param(c.normal, graph.Units(g*e, e))
	c.apply(graph.Attrs{"groups": g, "eps": eps}, x, w)
	groups := matrix{c.tokens * g, e, x.v}
	weights := matrixOf(groups.rows, e, func(i, j int) float64 { return w.at(0, i%g*e+j) })
	return [][]float64{evaluate(func(n []*G.Node) *G.Node { return mul(normalised(n[0]), n[1]) }, groups, weights)}
}

// sumsq is the sum of squares of each row of x.
func sumsq(x *G.Node) *G.Node { return G.Must(G.Sum(G.Must(G.Square(x)), 1)) }

func sumSquares(c *opCase) [][]float64 {
	x := c.input(graph.Size(c.size("d")))
	c.apply(nil, x)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node { return sumsq(n[0]) }, x.matrix)}
}

func groupSumSquares(c *opCase) [][]float64 {
	g, e := c.few("g"), c.size("e")
	x := c.input(graph.Size(g * e))
	c.apply(graph.Attrs{"groups": g}, x)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node { return sumsq(n[0]) }, matrix{c.tokens * g, e, x.v})}
}

// byRMS is each row of x by its root mean square, given the sum of the squares of width channels.
func byRMS(x, sum *G.Node, width int) *G.Node {
	rms := G.Must(G.Sqrt(plus(times(sum, 1/float64(width)), eps)))
	return G.Must(G.BroadcastHadamardDiv(x, rms, nil, []byte{1}))
}

// sumOver draws values of the size of a sum of width squares.
func (c *opCase) sumOver(width int) func(int, int) float64 {
	return func(int, int) float64 { return float64(width) * c.rng.ExpFloat64() }
}

func rmsRows(c *opCase) [][]float64 {
	d := c.size("d")
	width := d * c.few("ranks")
	x, sum := c.input(graph.Size(d)), c.perToken(c.sumOver(width))
	c.apply(graph.Attrs{"width": width, "eps": eps}, x, sum)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node { return byRMS(n[0], n[1], width) }, x.matrix, sum.matrix)}
}

// rmsScale has a part of a row of width channels, and the sum over all of it.
func rmsScale(c *opCase) [][]float64 {
	d := c.size("d")
	width := d * c.few("ranks")
	x, w := c.input(graph.Size(d)), c.param(c.normal, graph.Size(d))
	sum := c.perToken(c.sumOver(width))
	c.apply(graph.Attrs{"width": width, "eps": eps}, x, sum, w)
	return [][]float64{evaluate(func(n []*G.Node) *G.Node {
		return G.Must(G.BroadcastHadamardProd(byRMS(n[0], n[1], width), n[2], nil, []byte{0}))
	}, x.matrix, sum.matrix, w.matrix)}
}

// groupRMSScale has a row per token and group.
func groupRMSScale(c *opCase) [][]float64 {
	g, e := c.few("g"), c.size("e")
	x, w := c.input(graph.Size(g*e)), c.param(c.normal, graph.Size(g*e))
	sum := c.inputOf(graph.Size(g), c.sumOver(e))
	c.apply(graph.Attrs{"width": e, "eps": eps}, x, sum, w)
	groups := matrix{c.tokens * g, e, x.v}
	weights := matrixOf(groups.rows, e, func(i, j int) float64 { return w.at(0, i%g*e+j) })
	return [][]float64{evaluate(func(n []*G.Node) *G.Node { return mul(byRMS(n[0], n[1], e), n[2]) },
		groups, matrix{groups.rows, 1, sum.v}, weights)}
}
