package validate

import (
	"fmt"
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// A batch has two sequences, which have had some tokens before. Their slots are neither in order
// nor next to each other; one slot is not used.
const (
	sequences = 2
	slots     = 3
	unused    = 1 // the slot
)

// lot is a batch.
type lot struct {
	*graph.Batch                 // as extents see it
	segments, past, last []int32 // first token, tokens, slot; tokens before; the last token of each
	room                 int     // of a cache, per slot
}

// newLot has sequences of as many tokens, and in caches room for some more.
func newLot(first, second int) *lot {
	both := first + second
	return &lot{
		Batch:    &graph.Batch{Sizes: graph.Sizes{Tokens: int64(both), Seqs: sequences, Rows: sequences}, Ends: []int{first, both}},
		segments: []int32{0, int32(first), 2, int32(first), int32(second), 0},
		past:     []int32{4, 1}, last: []int32{int32(first - 1), int32(both - 1)}, room: first + 5,
	}
}

// The batches: a few tokens, or where ranks have parts of sequences enough for several parts.
var (
	short = newLot(2, 1)
	long  = newLot(2*graph.PartBlock+5, graph.PartBlock+1)
)

// lotOf is the batch for a graph.
func lotOf(g *graph.Graph) *lot {
	for _, n := range g.Nodes {
		if n.Op.Parts {
			return long
		}
	}
	return short
}

// chosen is how the tokens of the batch are chosen.
var chosen = []kernels.Choice{{Temperature: 0.7, TopK: 5, Uniform: 0.3, Penalty: 1.3}, {Temperature: 1.5, TopP: 0.8, Uniform: 0.6}}

// role is what an input of integers is for.
type role uint8

const (
	noRole role = iota
	idsRole
	rowsRole
	segmentsRole
	pastRole
	seenRole
	unclearRole // several
)

// integers says what operands that are integers are for.
var integers = map[string]map[int]role{
	"embedding":        {0: idsRole},
	"select_rows":      {1: rowsRole},
	"parts":            {1: segmentsRole},
	"segment_sums":     {1: segmentsRole},
	"conv_states":      {2: segmentsRole},
	"selective_states": {4: segmentsRole},
	"ssd_states":       {4: segmentsRole},
	"delta_states":     {3: segmentsRole},

	"conv1d":         {3: segmentsRole},
	"conv1d_silu":    {4: segmentsRole},
	"selective_scan": {6: segmentsRole},
	"ssd_scan":       {6: segmentsRole},
	"delta_scan":     {6: segmentsRole},

	"unbiased_conv1d_silu": {3: segmentsRole}, "selective_scan_gated": {9: segmentsRole}, "selective_scan_projected": {10: segmentsRole},
	"selective_scan_normed": {13: segmentsRole}, "selective_scan_unit_normed": {10: segmentsRole}, "ssd_scan_gated": {9: segmentsRole},

	"scan_prefix": {2: segmentsRole},
	"scan_output": {4: segmentsRole},
	"rotary":      {1: segmentsRole, 2: pastRole},
	"attention":   {5: segmentsRole, 6: pastRole},
	"choose":      {2: seenRole},
}

// sums lists operands that are sums of squares, which have no sign.
var sums = map[string]int{"rms_scale": 1, "rms_rows": 1, "group_rms_scale": 1}

// batch has the contents of values that a section is given: random, and the same for every reader.
type batch struct {
	lot      *lot
	seed     uint64
	roles    map[*graph.Value]role
	tables   map[*graph.Value]table // that ids are looked up in
	run      int                    // see pattern
	positive map[*graph.Value]bool
	choice   map[*graph.Value]bool // says how tokens are chosen
}

// table is what ids are rows of.
type table struct{ rows, cols int }

// newBatch looks at how the source uses its values.
func newBatch(seed uint64, l *lot, source *graph.Graph) *batch {
	b := &batch{lot: l, seed: seed, roles: map[*graph.Value]role{}, tables: map[*graph.Value]table{}, positive: map[*graph.Value]bool{}, choice: map[*graph.Value]bool{}}
	for _, n := range source.Nodes {
		if n.Op.Name == "choose" {
			b.choice[n.Args[1]] = true
		}
		if i, ok := sums[n.Op.Name]; ok && i < len(n.Args) {
			b.positive[n.Args[i]] = true
		}
		for i, r := range rolesOf(n) {
			if i < len(n.Args) {
				b.use(n.Args[i], r, n)
			}
		}
	}
	return b
}

// rolesOf says what the integers of a node are for: of a registered operation,
// what has the shape of the segments is these, and so on.
func rolesOf(n *graph.Node) map[int]role {
	if r, ok := integers[n.Op.Name]; ok {
		return r
	}
	out := map[int]role{}
	for i, v := range n.Args {
		if d := v.Type.Dims; v.Type.DType == graph.I32 && len(d) > 0 {
			switch {
			case d[0].Sym == graph.Seqs && len(d) == 2 && d[1].Len() == 3:
				out[i] = segmentsRole
			case d[0].Sym == graph.Seqs && len(d) == 1:
				out[i] = pastRole
			case d[0].Sym == graph.Rows && len(d) == 1:
				out[i] = rowsRole
			}
		}
	}
	return out
}

func (b *batch) use(v *graph.Value, r role, n *graph.Node) {
	if old := b.roles[v]; old != noRole && old != r {
		r = unclearRole
	}
	b.roles[v] = r
	if r != idsRole || len(n.Args) < 2 || len(n.Args[1].Type.Dims) == 0 {
		return
	}
	dims := n.Args[1].Type.Dims
	if rows := dims[0].Len(); b.tables[v].rows == 0 || rows < b.tables[v].rows {
		b.tables[v] = table{rows, graph.RowElems(dims)}
	}
}

// isState reports whether a value has a row per slot.
func isState(v *graph.Value) bool {
	if len(v.Type.Dims) > 0 && v.Type.Dims[0].Times > 0 {
		return false // a row per part
	}
	return v.Def.Op.Name == "state" || slices.ContainsFunc(v.Def.Op.States, func(p graph.StatePair) bool {
		return p.Result < len(v.Def.Results) && v.Def.Results[p.Result] == v
	})
}

// counted reports whether v is integers that ranks have made or cut: segments of parts, or ids.
func counted(v *graph.Value) bool {
	return v.Type.DType == graph.I32 && (v.Def.Op.Parts || v.Def.Op.Class == graph.Relayout)
}

// describe is what a rank holds of a value in this batch if it is of type t,
// without its memory. All is computed in float64, integers too.
func describe(l *lot, v *graph.Value, t graph.Type, ranks, rank int) (kernels.Tensor, error) {
	x := kernels.Describe(t, ranks, rank)
	if x.DType.Float() || v.Def.Op.Class != graph.Leaf && !counted(v) {
		x.DType, x.Stride = graph.F64, x.Cols
	}
	state := isState(v)
	for i, d := range t.Dims {
		switch {
		case d.Sym == 0:
		case i == 0 && t.Layout.ByBatch():
			x.Hold(t.Extents(l.Batch, ranks, rank))
		case state && i == 0 && d.Sym == graph.Seqs:
			x.Dims[0] = slots
		case state && i == 1 && t.Ragged():
			x.Dims[1] = l.room
		case i == 0 && d.Sym == graph.Tokens:
			x.Dims[0] = int(l.Tokens)
		case i == 0 && (d.Sym == graph.Seqs || d.Sym == graph.Rows):
			x.Dims[0] = sequences * max(1, d.Times)
		default:
			return x, skip(fmt.Sprintf("%s is %s; how large %s is in a batch is not known", v.Name, t, d))
		}
	}
	return x, nil
}

// lines is the number of rows that memory has: of a cache, one per slot and token.
func lines(x *kernels.Tensor, t graph.Type) int {
	if t.Ragged() {
		return x.Dims[0] * x.Dims[1]
	}
	return x.Dims[0]
}

// allocate gives a tensor of floats its memory.
func allocate(x *kernels.Tensor, t graph.Type) {
	x.F64 = make([]float64, lines(x, t)*x.Cols)
}

// contents makes what a section is given for a value of the source, whole.
func (b *batch) contents(v *graph.Value) (kernels.Tensor, error) {
	x, err := describe(b.lot, v, graph.TypeOf(v.Type.DType, v.Type.Dims...), 1, 0)
	switch {
	case err != nil:
		return x, err
	case x.DType == graph.I32:
		return b.integers(v, x)
	case x.DType != graph.F64:
		return x, skip(fmt.Sprintf("%s is %s; there are random floats only", v.Name, v.Type))
	}
	allocate(&x, v.Type)
	if b.choice[v] {
		return choices(x)
	}
	random := newStream(b.seed, "value "+v.Name)
	for i := range x.F64 {
		if x.F64[i] = random.value(i); b.positive[v] {
			x.F64[i] = math.Abs(x.F64[i])
		}
	}
	return x, nil
}

// choices says how the rows' tokens are chosen.
func choices(x kernels.Tensor) (kernels.Tensor, error) {
	row := make([]float32, x.Cols)
	for i := range x.Rows() {
		chosen[i%len(chosen)].Put(row)
		for j, v := range row {
			x.F64[i*x.Stride+j] = float64(v)
		}
	}
	return x, nil
}

// integers makes an input by what it is used for.
func (b *batch) integers(v *graph.Value, x kernels.Tensor) (kernels.Tensor, error) {
	n := x.Dims[0] * x.Cols
	x.I32 = make([]int32, n)
	from := map[role][]int32{segmentsRole: b.lot.segments, pastRole: b.lot.past, rowsRole: b.lot.last}[b.roles[v]]
	switch {
	case b.roles[v] == idsRole && b.tables[v].rows > 0: // one of each of equal parts of the table
		random, table := newStream(b.seed, "value "+v.Name), b.tables[v]
		full := patternOf(table.rows, table.cols, b.run)
		for i := range x.I32 {
			lo, hi := i*table.rows/n, (i+1)*table.rows/n
			id := lo + int(random.bits(i)%uint64(max(1, hi-lo)))
			if first := id - id%full.every; full.sparse && first >= lo {
				id = first // a row without zeros
			}
			x.I32[i] = int32(id)
		}
	case b.roles[v] == seenRole: // any bits
		random := newStream(b.seed, "value "+v.Name)
		for i := range x.I32 {
			x.I32[i] = int32(random.bits(i))
		}
	case from == nil || len(from) != n:
		return x, skip(fmt.Sprintf("%s is %s, and what it is used for does not say which numbers may be in it", v.Name, v.Type))
	default:
		copy(x.I32, from)
	}
	return x, nil
}
