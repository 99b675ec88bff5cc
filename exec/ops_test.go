package exec_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/choices"
	"github.com/krait-ml/krait/internal/graphgen"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	kernelscpu "github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lowering"
	"pgregory.net/rapid"
)

// sizes are those at which tilings go wrong: one, primes, and around the tiles
// of 4 columns, 64 channels and 512 elements.
var sizes = []int{1, 2, 3, 4, 5, 7, 8, 9, 13, 31, 63, 64, 65, 67}

// TestOps runs every operation of the table through a schedule, with the fast
// kernels and the float64 ones, over batches of random shape, twice in a row so
// that state is carried, and each sequence again by itself. Where states are kept in
// 16 bits, nearly equal numbers may be rounded apart: all resume from
// those of the float64 kernels then, so that results are held to the same tolerance.
func TestOps(t *testing.T) {
	for _, op := range graph.Ops() {
		if op.Class == graph.Compute && op.Rule != nil {
			t.Run(op.Name, func(t *testing.T) {
				prop.Check(t, func(t *rapid.T) { checkOp(t, op) })
			})
		}
	}
}

// opCase is one operation on drawn shapes, and its data.
type opCase struct {
	op     *graph.Op
	graph  *graph.Graph
	params map[string]graph.Array
	inputs []string
	field  func() bool // draws whether an input is a field of a wider one; nil: none is
	rng    *rand.Rand
	width  int // the attribute
	deep   int // what a sum over k has
}

func checkOp(t *rapid.T, op *graph.Op) {
	c := drawOp(t, op, func() bool { return rapid.Bool().Draw(t, "field") })
	const slots = 4
	set, err := kernelscpu.ForISA(rapid.SampledFrom(kernelscpu.ISAs()).Draw(t, "instruction set"))
	if err != nil {
		t.Fatal(err)
	}
	fast, plain := c.engine(t, set, slots), c.engine(t, reference.Kernels, slots)
	alone := c.engine(t, set, slots)
	defer fast.Close()
	defer plain.Close()
	defer alone.Close()
	for _, e := range []*stepper{fast, plain, alone} {
		for range slots {
			if _, err := e.Alloc(); err != nil {
				t.Fatal(err)
			}
		}
	}
	order := c.rng.Perm(slots)
	for range 2 {
		var b exec.Batch
		for i := range rapid.IntRange(1, slots).Draw(t, "sequences") {
			q := exec.Sequence{Slot: order[i], Len: rapid.SampledFrom(c.lengths()).Draw(t, "tokens"), Rows: []int{}}
			for range rapid.IntRange(0, 3).Draw(t, "rows") {
				q.Rows = append(q.Rows, c.rng.IntN(q.Len))
			}
			b.Sequences = append(b.Sequences, q)
		}
		c.fill(&b)
		step(t, fast, &b)
		step(t, plain, &b)
		share := 1e-5
		if c.op.Gives == graph.I32 {
			share = 0
		}
		same(t, "result", output(t, fast), output(t, plain), share)
		if c.op.Parts { // whose inputs have a row per part, not per token
			step(t, alone, &b)
		} else {
			c.checkAlone(t, alone, &b, output(t, fast))
		}
		for _, n := range c.graph.Leaves("state") {
			for slot := range slots {
				got, want, one := stateOf(t, fast, slot, n.Name()), stateOf(t, plain, slot, n.Name()), stateOf(t, alone, slot, n.Name())
				sameKept(t, n.Name(), n.Results[0].Type.DType, got, want, 1e-5)
				same(t, n.Name()+" alone", got, one, 0)
				for _, e := range []*stepper{fast, alone} {
					if n.Results[0].Type.DType == graph.F32 {
						break
					}
					if err := e.SetState(slot, n.Name(), want); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// lengths are those of sequences: around the tiles of what works by chunks.
func (c *opCase) lengths() []int {
	lengths := []int{1, 1, 2, 3, 5, 9}
	if slices.Contains([]string{"ssd_scan", "delta_scan", "attention"}, c.op.Name) {
		lengths = append(lengths, 7, 8, 15, 16, 17, 24, 33, 127, 130)
	}
	if c.op.Parts {
		lengths = append(lengths, 64, 65, 127, 130, 200)
	}
	return lengths
}

// checkAlone runs each sequence of the batch by itself: the rows must be the same to the last bit.
func (c *opCase) checkAlone(t *rapid.T, e *stepper, b *exec.Batch, all []float32) {
	width := 0
	if rows := totalRows(c.graph, b.Sequences); rows > 0 {
		width = len(all) / rows
	}
	token, row := 0, 0
	for i, q := range b.Sequences {
		one := exec.Batch{Sequences: b.Sequences[i : i+1], Inputs: map[string]graph.Array{}}
		for name, a := range b.Inputs {
			one.Inputs[name] = a
			first, n := token, q.Len
			v, _ := c.graph.Value(name)
			switch v.Type.Dims[0].Sym {
			case graph.Rows:
				first, n = row, len(q.Rows)
				fallthrough
			case graph.Tokens:
				line := len(a.Data) / max(1, a.Shape[0])
				a.Shape = append([]int{n}, a.Shape[1:]...)
				a.Data = a.Data[first*line : (first+n)*line]
				one.Inputs[name] = a
			}
		}
		step(t, e, &one)
		n := totalRows(c.graph, one.Sequences)
		same(t, fmt.Sprintf("sequence %d alone", i), output(t, e), all[row*width:(row+n)*width], 0)
		token, row = token+q.Len, row+n
	}
}

// totalRows is the size of the result's first axis.
func totalRows(g *graph.Graph, sequences []exec.Sequence) int {
	n := 0
	for _, q := range sequences {
		if g.Outputs[0].Value.Type.Dims[0].Sym == graph.Rows {
			n += len(q.Rows)
		} else {
			n += q.Len
		}
	}
	return n
}

// drawOp draws a size for each letter of the rule and makes a graph of the
// operation alone. Weights and vectors are parameters, the rest inputs.
func drawOp(t *rapid.T, op *graph.Op, field func() bool) *opCase {
	c := &opCase{op: op, field: field, params: map[string]graph.Array{}, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
	letters := map[byte]int{'f': 3}
	size := func(l byte) int {
		if n, ok := letters[l]; ok {
			return n
		}
		n := rapid.SampledFrom(sizes).Draw(t, string(rune(l)))
		switch {
		case l == 'm' && op.Name == "delta_states":
			n = letters['n']
		case l == 'r': // decays of delta_scan, whose n came before
			n = rapid.SampledFrom([]int{1, letters['n']}).Draw(t, "decays")
		case l == 'k' && !strings.Contains(op.Rule.String(), "(") && rapid.IntRange(0, 9).Draw(t, "deep") == 0:
			n = rapid.SampledFrom([]int{511, 512, 513, 1025}).Draw(t, "k")
		case strings.IndexByte("gqhpnei", l) >= 0:
			n = min(n, 9)
		case l == 'w':
			n = min(n, 5)
		}
		letters[l] = n
		if l == 'k' {
			c.deep = n
		}
		if l == 'w' {
			letters['m'] = n - 1
		}
		return n
	}
	if op.Name == "choose" {
		letters['b'] = graph.SeenWords(size('v'))
		letters['c'] = graph.ChoiceType().Dims[1].Len()
	}
	left, _, _ := strings.Cut(op.Rule.String(), "->")
	b := graph.New("op")
	packed := map[byte]graph.Dim{}
	kept := graph.NoDType
	if op.States != nil {
		kept = rapid.SampledFrom(op.States[0].Kind.Formats()).Draw(t, "kept")
	}
	var args []*graph.Value
	for i, list := range strings.Split(strings.ReplaceAll(left, "*", "t d"), ",") {
		dims := drawDims(list, size)
		c.pack(t, list, dims, packed)
		if op.Name == "choose" && i == 1 {
			dims = graph.ChoiceType().Dims
		}
		kind := op.Operands[i]
		d := map[byte]graph.DType{'a': graph.F32, 'f': graph.F32, 'i': graph.I32, 's': kept}[kind]
		if kind == 'w' {
			d = rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16, graph.F16, graph.Q8, graph.Q4_0, graph.IQ4_XS, graph.Q5_K}).Draw(t, "format")
		}
		if op.Name == "dequantize" {
			d = rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16, graph.F16}).Draw(t, "format")
		}
		args = append(args, c.leaf(b, i, list, graph.TypeOf(d, dims...)))
	}
	attrs := graph.Attrs{}
	for _, a := range op.Attrs {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, a.Name) }
		attrs[a.Name] = graphgen.Attr(a, func(letter byte) int { return letters[letter] }, pick)
	}
	for l, name := range op.Sizes {
		attrs[name] = letters[l]
		c.width = letters[l]
	}
	if _, ok := attrs["width"]; ok && op.Sizes == nil {
		c.width = letters['d']
		attrs["width"] = c.width
	}
	for i, v := range b.Apply("y", op.Name, attrs, args...) {
		if v != nil && !slices.ContainsFunc(op.States, func(p graph.StatePair) bool { return p.Result == i }) {
			b.Output(v.Name, v)
		}
	}
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	c.graph = g
	return c
}

// drawDims reads one axis list of a rule.
func drawDims(list string, size func(byte) int) []graph.Dim {
	var dims []graph.Dim
	for _, axis := range splitAxes(list) {
		n, unit := 1, 1
		for j := 0; j < len(axis); j++ {
			if axis[j] < 'a' {
				continue
			}
			n *= size(axis[j])
			if j+1 < len(axis) && axis[j+1] == '!' && strings.HasPrefix(axis, "(") {
				unit *= size(axis[j])
			}
		}
		switch axis[0] {
		case 'l':
			dims = append(dims, graph.Symbol(graph.Cached))
		case 't', 's', 'o':
			dims = append(dims, graph.Symbol(graph.Sym(axis[0])))
		case 'z': // parts of sequences
			dims = append(dims, graph.Dim{Sym: graph.Seqs, Times: 3})
		case 'u': // tokens, too, under another letter
			dims = append(dims, graph.Symbol(graph.Tokens))
		default:
			dims = append(dims, graph.Units(n, unit))
		}
	}
	return dims
}

// pack makes several fields of some axes that one letter walks everywhere.
func (c *opCase) pack(t *rapid.T, list string, dims []graph.Dim, known map[byte]graph.Dim) {
	for i, axis := range splitAxes(list) {
		l := axis[0]
		if len(axis) > 1 || dims[i].Sym != 0 || strings.ContainsAny(c.op.Rule.String(), "(") || strings.Contains(c.op.Rule.String(), string(l)+"!") {
			continue
		}
		if _, ok := known[l]; !ok {
			n := dims[i].Len()
			cut := rapid.IntRange(0, n).Draw(t, "cut")
			known[l] = graph.Units(n, 1)
			if rapid.Bool().Draw(t, "packed") {
				known[l] = graph.Pack(graph.Field{Name: "a", Size: cut, Unit: 1}, graph.Field{Name: "b", Size: n - cut, Unit: 1})
			}
		}
		dims[i] = known[l]
	}
}

func splitAxes(list string) []string {
	var axes []string
	for w := range strings.FieldsSeq(list) {
		if n := len(axes); n > 0 && strings.Count(axes[n-1], "(") > strings.Count(axes[n-1], ")") {
			axes[n-1] += " " + w
		} else {
			axes = append(axes, w)
		}
	}
	return axes
}

// leaf declares operand i: the segment table, a state, a parameter or an input, which
// may be a field of a wider one, so that its rows do not lie one after the other.
func (c *opCase) leaf(b *graph.Builder, i int, list string, typ graph.Type) *graph.Value {
	name := fmt.Sprint("x", i)
	switch {
	case slices.ContainsFunc(c.op.States, func(p graph.StatePair) bool { return p.Operand == i }):
		return b.State(name, typ)
	case strings.Contains(list, "f!"):
		return b.Input("seg", typ)
	case typ.DType == graph.I32 && typ.Dims[0].Sym == graph.Seqs:
		return b.Input("past", typ)
	case typ.Dims[0].Sym == graph.Rows && len(typ.Dims) == 1:
		return b.Input("rows", typ)
	case typ.Dims[0].Sym == 0:
		shape := make([]int, len(typ.Dims))
		for j, d := range typ.Dims {
			shape[j] = d.Len()
		}
		a, err := graph.ArrayOf(c.values(graph.Array{Shape: shape}.Elems(), i), shape...).Convert(typ.DType)
		if err != nil {
			panic(err)
		}
		c.params[name] = a
		return b.Param(name, typ, nil)
	}
	c.inputs = append(c.inputs, name)
	last := len(typ.Dims) - 1
	if last != 1 || len(typ.Dims[last].Fields) != 1 || !typ.DType.Float() || c.field == nil || !c.field() {
		return b.Input(name, typ)
	}
	f := typ.Dims[last].Fields[0]
	f.Name = "it"
	typ.Dims[last] = graph.Pack(graph.Field{Name: "before", Size: 3}, f, graph.Field{Name: "after", Size: 2})
	return b.Fields(name+"_it", "it", b.Input(name, typ))
}

// values are random; for scans, steps are positive and rates negative, and sums
// of squares are positive.
func (c *opCase) values(n, operand int) []float32 {
	out := make([]float32, n)
	if c.op.Name == "choose" && operand == 1 {
		for row := range slices.Chunk(out, graph.ChoiceType().Dims[1].Len()) {
			how := choices.DrawChoice(c.rng)
			how.Uniform = c.rng.Float64() // away from the ends, where rounding decides
			how.Put(row)
		}
		return out
	}
	is := func(operands map[string]int) bool { return operand > 0 && operands[c.op.Name] == operand }
	steps := strings.HasSuffix(c.op.Name, "_scan") && operand == 1
	weights := is(map[string]int{"selective_scan_projected": 2, "selective_scan_normed": 3, "selective_scan_unit_normed": 2})
	squares := strings.Contains(c.op.Name, "rms_") && operand == 1
	experts := strings.HasSuffix(c.op.Name, "experts") && (operand == 2 || operand == 3 && strings.Count(c.op.Operands, "w") == 3)
	rates := is(map[string]int{"selective_scan": 2, "ssd_scan": 2, "selective_scan_gated": 3, "ssd_scan_gated": 3, "selective_scan_projected": 4,
		"selective_scan_normed": 5, "selective_scan_unit_normed": 4})
	deep := float32(math.Sqrt(float64(c.deep)))
	for i := range out {
		x := float32(c.rng.NormFloat64())
		positive := float32(math.Abs(float64(x)))
		switch {
		case c.op.Name == "choose":
			x = choices.DrawLogit(c.rng)
		case c.op.Name == "delta_scan":
			x = deltaValue(x, operand)
		case steps:
			x = positive / 4
		case weights:
			x /= deep
		case squares:
			x = float32(c.width) * (0.5 + positive)
		case experts:
			x /= 2 * deep // sums that activations and products do not blow up
		case rates:
			x = -positive
		}
		out[i] = x
	}
	return out
}

// deltaValue makes of a normal number an element of an operand of delta_scan: keys are short, so
// that what a key reads of a state fades, decays at most 0, betas between 0 and 1.
func deltaValue(x float32, operand int) float32 {
	switch a := float32(math.Abs(float64(x))); operand {
	case 1:
		return x / 3
	case 3:
		return -a * a
	case 4:
		return a / (1 + a)
	}
	return x
}

// fill gives the batch its inputs.
func (c *opCase) fill(b *exec.Batch) {
	var err error
	tokens, rows := 0, 0
	for _, q := range b.Sequences {
		tokens += q.Len
		rows += len(q.Rows)
	}
	b.Inputs = map[string]graph.Array{}
	for _, name := range c.inputs {
		v, _ := c.graph.Value(name)
		shape := []int{tokens}
		if v.Type.Dims[0].Sym == graph.Rows {
			shape[0] = rows
		} else if parts := v.Type.Dims[0].Times; parts > 0 {
			shape[0] = parts * len(b.Sequences)
		}
		for _, d := range v.Type.Dims[1:] {
			shape = append(shape, d.Len())
		}
		var operand int
		fmt.Sscanf(name, "x%d", &operand)
		a := graph.ArrayOf(c.values(graph.Array{Shape: shape}.Elems(), operand), shape...)
		if v.Type.DType == graph.I32 {
			a = c.integers(shape)
		} else if a, err = a.Convert(v.Type.DType); err != nil {
			panic(err)
		}
		b.Inputs[name] = a
	}
}

// integers are rows of the table, which is operand 1; of choose, the bits of tokens.
func (c *opCase) integers(shape []int) graph.Array {
	a := graph.Array{DType: graph.I32, Shape: shape}
	a.Data = make([]byte, 4*a.Elems())
	if c.op.Name == "choose" {
		for i := range a.Data {
			a.Data[i] = byte(c.rng.Uint32())
		}
		return a
	}
	for i := range shape[0] {
		a.Data[4*i] = byte(c.rng.IntN(c.params["x1"].Shape[0]))
	}
	return a
}

func (c *opCase) engine(t *rapid.T, set kernels.Set, slots int) *stepper {
	return c.engineOf(t, c.graph, set, slots)
}

func (c *opCase) engineOf(t *rapid.T, g *graph.Graph, set kernels.Set, slots int) *stepper {
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	e := newStepper(t, s, func(name string) (graph.Array, error) { return c.params[name], nil }, exec.Options{Device: &cpu.Device{Kernels: set, Workers: 3}, Slots: slots})
	return e
}

func step(t *rapid.T, e *stepper, b *exec.Batch) {
	if err := e.Step(context.Background(), b); err != nil {
		t.Fatal(err)
	}
}

// output is the rows of the result, each followed by that of the second result, if any.
func output(t *rapid.T, e *stepper) []float32 {
	out, err := e.Output("y")
	if err != nil {
		t.Fatal(err)
	}
	results := []kernels.Tensor{out}
	if second, err := e.Output("y_1"); err == nil {
		results = append(results, second)
	}
	all := []float32{}
	for i := range out.Rows() {
		for _, r := range results {
			row := make([]float32, r.Cols)
			r.Read(row, i*r.Stride)
			all = append(all, row...)
		}
	}
	return all
}

func stateOf(t *rapid.T, e *stepper, slot int, name string) []float32 {
	s, err := e.State(slot, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sameKept is same for what is rounded to a format: one place apart is the same.
func sameKept(t *rapid.T, what string, d graph.DType, got, want []float32, share float64) {
	place := map[graph.DType]float64{graph.F16: 0x1p-10, graph.BF16: 0x1p-7, graph.F8: 0x1p-3}[d]
	if place == 0 || len(got) != len(want) {
		same(t, what, got, want, share)
		return
	}
	apart := 0
	for i, w := range want {
		switch off := math.Abs(float64(got[i]) - float64(w)); {
		case !(off <= place*math.Abs(float64(w))+share):
			t.Fatalf("%s: element %d is %g, want %g in %s", what, i, got[i], w, d)
		case off > 0:
			apart++
		}
	}
	if apart > 2+len(want)/50 { // as often as numbers lie next to a border, some 1 of 1000
		t.Fatalf("%s: %d of %d elements are rounded otherwise", what, apart, len(want))
	}
}

// same compares within a share of the largest magnitude; a share of 0 means to the last bit.
func same(t *rapid.T, what string, got, want []float32, share float64) {
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	scale := 1.0
	for _, v := range want {
		scale = math.Max(scale, math.Abs(float64(v)))
	}
	for i := range want {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= share*scale) {
			t.Fatalf("%s: element %d is %g, want %g (off by %g of %g)", what, i, got[i], want[i], d, scale)
		}
	}
}
