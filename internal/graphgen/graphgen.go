// Package graphgen draws random graphs for tests: operations of the whole table on axes with odd
// units, groups that are larger and smaller than units, packed fields, states, blocks. Graphs come
// from a seed, so that a failure is repeated by its number.
package graphgen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Options say what is drawn.
type Options struct {
	Ops    []string // operations to choose from; nil: all that a source may have
	Nodes  int      // operations, without those that make their operands; 0: 1 to 5
	Blocks bool     // some nodes are in blocks
	Square bool     // more weights with units on both axes
	Plain  bool     // more values without units
}

// Source draws the graph of a model: a few operations, each on values that are
// there or that a matmul makes, and outputs of what is left over.
func Source(seed uint64, o Options) *graph.Graph {
	for try := uint64(0); ; try++ {
		if d := source(seed, try, o); graph.Check(d.g) == nil { // states of an operation that was refused stand alone
			return d.g
		}
	}
}

func source(seed, try uint64, o Options) *drawer {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, try)), o: o, g: graph.NewGraph("random", graph.ModelStage, 1), inputs: map[string]*graph.Value{}}
	if d.o.Ops == nil {
		d.o.Ops = sourceOps()
	}
	if d.o.Nodes == 0 {
		d.o.Nodes = 1 + d.IntN(5)
	}
	for i := range 1 + d.IntN(2) {
		d.values = append(d.values, d.leaf("input", fmt.Sprint("x", i), graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), d.dim())))
	}
	for range d.o.Nodes {
		if d.o.Blocks && d.IntN(3) == 0 {
			d.block++
		}
		d.op(d.o.Ops[d.IntN(len(d.o.Ops))])
	}
	d.outputs()
	return d
}

// sourceOps are the operations of a graph that is not partitioned yet; some weigh
// more, as they do in models. The last steps of a scan come with the first; what is fused
// for devices where launches cost no source has, and what is over parts the pass context writes.
func sourceOps() []string {
	list := []string{"field", "matmul", "matmul", "matmul", "matmul", "add", "add"}
	for _, op := range graph.Ops() {
		if op.Class == graph.Compute && !op.Launches && !op.Parts && !slices.Contains([]string{"quantize", "dequantize", "scan_prefix", "scan_output"}, op.Name) {
			list = append(list, op.Name)
		}
	}
	return list
}

type drawer struct {
	*rand.Rand
	o      Options
	g      *graph.Graph
	inputs map[string]*graph.Value
	values []*graph.Value // activations of all tokens
	block  int            // 0: outside of blocks
	last   int            // number of the last name
}

// name is a new name in the present block.
func (d *drawer) name(what string) string {
	d.last++
	name := fmt.Sprint(what, d.last)
	if d.block > 0 {
		name = fmt.Sprintf("layers.%d.%s", d.block-1, name)
	}
	return name
}

func (d *drawer) leaf(kind, name string, t graph.Type) *graph.Value {
	v, err := d.g.AddLeaf(kind, name, t, nil)
	if err != nil {
		panic(fmt.Sprintf("BUG: %s: %v", name, err))
	}
	return v
}

// input is the batch's input of that name.
func (d *drawer) input(name string, t graph.Type) *graph.Value {
	if d.inputs[name] == nil {
		d.inputs[name] = d.leaf("input", name, t)
	}
	return d.inputs[name]
}

// dims are axes that are drawn: with units and without, one unit, more units than
// ranks and fewer, packed.
var dims = []graph.Dim{
	graph.Size(4), graph.Size(3), graph.Units(4, 1), graph.Units(8, 1), graph.Units(8, 1), graph.Units(6, 2), graph.Units(6, 1), graph.Units(12, 4), graph.Units(12, 2),
	graph.Units(12, 1), graph.Units(12, 3), graph.Units(5, 1), graph.Units(3, 3), graph.Units(18, 3), graph.Units(1, 1), graph.Size(1),
	graph.Pack(graph.Field{Name: "a", Size: 4, Unit: 1}, graph.Field{Name: "b", Size: 2, Unit: 1}),
	graph.Pack(graph.Field{Name: "a", Size: 6, Unit: 2}, graph.Field{Name: "b", Size: 3}, graph.Field{Name: "c", Size: 4, Unit: 2}),
}

func (d *drawer) dim() graph.Dim {
	if d.o.Square && d.IntN(2) == 0 {
		return graph.Units(8, 1)
	}
	if d.o.Plain && d.IntN(2) == 0 {
		return graph.Size(6)
	}
	return dims[d.IntN(len(dims))]
}

func (d *drawer) pick() *graph.Value { return d.values[d.IntN(len(d.values))] }

// add adds a node; what its rule refuses as a whole is not added.
func (d *drawer) add(op string, a graph.Attrs, args ...*graph.Value) *graph.Value {
	row, _ := graph.Lookup(op)
	n, err := d.g.Add(op, a, row.ResultNames(d.name("v")), args...)
	if err != nil {
		return nil
	}
	return n.Results[0]
}

// with gives a value of that axis: one that is there, or a matmul of one.
func (d *drawer) with(dim graph.Dim) *graph.Value {
	var fit []*graph.Value
	for _, v := range d.values {
		if graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), dim).Equal(v.Type) {
			fit = append(fit, v)
		}
	}
	if len(fit) > 0 && d.IntN(4) > 0 {
		return fit[d.IntN(len(fit))]
	}
	x := d.pick()
	w := d.leaf("param", d.name("w"), graph.TypeOf(graph.F32, dim, x.Type.Dims[1]))
	v := d.add("matmul", nil, x, w)
	d.values = append(d.values, v)
	return v
}

// outputs makes values without users outputs, the last one always.
func (d *drawer) outputs() {
	used := map[*graph.Value]bool{}
	for _, n := range d.g.Nodes {
		for _, v := range n.Args {
			used[v] = true
		}
	}
	for i, v := range d.values {
		if last := i == len(d.values)-1; last || !used[v] && v.Def.Op.Class != graph.Leaf || d.IntN(12) == 0 && v.Def.Op.Class != graph.Leaf {
			out := v
			if d.IntN(6) == 0 {
				out = d.add("select_rows", nil, v, d.input("rows", graph.TypeOf(graph.I32, graph.Symbol(graph.Rows))))
			}
			if err := d.g.AddOutput(fmt.Sprint("out", i), out); err != nil {
				panic("BUG: " + err.Error())
			}
		}
	}
}

// op adds an operation with operands of shapes that its rule takes.
func (d *drawer) op(name string) {
	row, _ := graph.Lookup(name)
	switch name {
	case "field":
		d.field()
		return
	case "concat":
		d.concat()
		return
	case "select_rows":
		return // of outputs only: what is made of rows does not meet tokens again
	case "choose":
		d.choose()
		return
	case "scan_terms", "scan_prefix", "scan_output":
		d.scanInSteps()
		return
	}
	s := d.shapes(row)
	args := make([]*graph.Value, len(row.Operands))
	for i, kind := range row.Operands {
		args[i] = d.operand(row, i, byte(kind), s, args)
	}
	if v := d.add(name, d.attrs(row, s), args...); v != nil && len(v.Type.Dims) == 2 {
		d.values = append(d.values, v)
	}
}

func (d *drawer) field() {
	var packed []*graph.Value
	for _, v := range d.values {
		if len(v.Type.Dims[1].Fields) > 1 {
			packed = append(packed, v)
		}
	}
	if len(packed) == 0 {
		packed = []*graph.Value{d.with(dims[len(dims)-1])}
	}
	v := packed[d.IntN(len(packed))]
	f := v.Type.Dims[1].Fields
	d.values = append(d.values, d.add("field", graph.Attrs{"name": f[d.IntN(len(f))].Name}, v))
}

func (d *drawer) concat() {
	plain := slices.DeleteFunc(slices.Clone(d.values), func(v *graph.Value) bool { return len(v.Type.Dims[1].Fields) > 1 })
	if len(plain) == 0 {
		plain = []*graph.Value{d.with(graph.Units(6, 2))}
	}
	x, y := plain[d.IntN(len(plain))], plain[d.IntN(len(plain))]
	if v := d.add("concat", graph.Attrs{"names": "p|q"}, x, y); v != nil {
		d.values = append(d.values, v)
	}
}

// scanInSteps makes a scan of its steps.
func (d *drawer) scanInSteps() {
	row, _ := graph.Lookup("selective_scan")
	s, args := d.shapes(row), make([]*graph.Value, len(row.Operands))
	for i, kind := range row.Operands {
		args[i] = d.operand(row, i, byte(kind), s, args)
	}
	args[1] = d.add("softplus", nil, args[1]) // steps are positive, or decays would be growth
	terms := d.add("scan_terms", nil, args[:4]...)
	if terms == nil {
		return
	}
	prefix := d.add("scan_prefix", nil, terms, terms.Def.Results[1], args[6])
	if y := d.add("scan_output", nil, prefix, prefix.Def.Results[1], args[4], args[5], args[6]); y != nil {
		d.values = append(d.values, y)
	}
}

// choose makes an output of tokens, of rows of a value.
func (d *drawer) choose() {
	logits := d.add("select_rows", nil, d.pick(), d.input("rows", graph.TypeOf(graph.I32, graph.Symbol(graph.Rows))))
	seen := d.leaf("input", d.name("seen"), graph.SeenType(logits.Type.Dims[1].Len()))
	tokens := d.add("choose", nil, logits, d.input("choice", graph.ChoiceType()), seen)
	if err := d.g.AddOutput(tokens.Name, tokens); err != nil {
		panic("BUG: " + err.Error())
	}
}

// operand makes operand i of a node.
func (d *drawer) operand(row *graph.Op, i int, kind byte, s *shapes, args []*graph.Value) *graph.Value {
	t := graph.TypeOf(graph.F32, s.dims[i]...)
	state := slices.ContainsFunc(row.States, func(p graph.StatePair) bool { return p.Operand == i })
	switch {
	case state:
		return d.leaf("state", d.name("s"), t)
	case kind == 'i':
		t.DType = graph.I32
		return d.meta(t, row.Name)
	case (row.Name == "rms_scale" || row.Name == "rms_rows") && i == 1:
		return d.add("sumsq", nil, args[0])
	case row.Name == "group_rms_scale" && i == 1:
		return d.add("group_sumsq", graph.Attrs{"groups": s.size['g']}, args[0])
	case strings.HasSuffix(row.Name, "experts") && i == 1:
		return d.add("router", graph.Attrs{"top": s.size['e']}, d.with(t.Dims[1]))
	case (row.Name == "selective_scan" || row.Name == "ssd_scan") && i == 2:
		return d.add("neg_exp", nil, d.leaf("param", d.name("A"), t))
	case row.Name == "delta_scan" && i == 3:
		return d.add("neg_exp", nil, d.with(t.Dims[1]))
	case row.Name == "delta_scan" && i == 4:
		return d.add("sigmoid", nil, d.with(t.Dims[1]))
	case kind == 'a' && len(t.Dims) == 2 && t.Dims[0].Sym == graph.Tokens:
		return d.with(t.Dims[1])
	}
	return d.leaf("param", d.name("w"), t)
}

// meta is an input that describes the batch.
func (d *drawer) meta(t graph.Type, op string) *graph.Value {
	switch {
	case len(t.Dims) == 2:
		return d.input("seg", t)
	case t.Dims[0].Sym == graph.Seqs:
		return d.input("past", t)
	case op == "embedding": // each table has its own ids, which must be below its rows
		return d.leaf("input", d.name("ids"), t)
	}
	return d.input("rows", t)
}
