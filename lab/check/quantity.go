package check

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/krait-ml/krait/graph"
)

// quantity is a tensor of the file, with the value or state of the run to compare it with.
type quantity struct {
	name  string
	shape []int
	want  []float64
	// It is of integers, and not decode.ids.
	integers bool
	kind     kind
	value    string                            // the graph's output, for rows
	state    string                            // the graph's state, for states
	width    int                               // elements of a row or of a state's last axis
	index    func(at []int, b, i, j int) []int // of element j of row i of sequence b in the file, appended

	line Line
}

type kind uint8

const (
	unknown     kind = iota
	rows             // a row per token of the prompt
	decodeRows       // a row per decode step
	state            // after the prompt
	decodeState      // after decoding
	greedy           // decode.ids
	mtpRows          // a row of the MTP head per token of the prompt but the last
)

// names maps what the file calls a quantity to values of the graph, the first that exists.
var names = []struct {
	pattern func() *regexp.Regexp
	kind    kind
	values  []string
}{
	{exactly("logits"), rows, []string{"logits"}},
	{exactly("embeddings"), rows, []string{"h"}},
	{exactly(`layers\.(\d+)\.out`), rows, []string{"layers.$1.h"}},
	{exactly("final_norm"), rows, []string{"norm_f"}},
	{exactly(`mixer(\d+)\.in`), rows, []string{"layers.$1.mixer_in", "layers.$1.norm"}},
	{exactly(`mixer(\d+)\.conv`), rows, []string{"layers.$1.mixer.u", "layers.$1.mixer.conv1d"}},
	{exactly(`mixer(\d+)\.dt_rank_in`), rows, []string{"layers.$1.mixer.dt_norm", "layers.$1.mixer.dt"}},
	{exactly(`mixer(\d+)\.dt`), rows, []string{"layers.$1.mixer.delta"}},
	{exactly(`mixer(\d+)\.(B|C)`), rows, []string{"layers.$1.mixer.${2}_norm", "layers.$1.mixer.$2"}},
	{exactly(`mixer(\d+)\.scan_D`), rows, []string{"layers.$1.mixer.y"}},
	{exactly(`mixer(\d+)\.out_in`), rows, []string{"layers.$1.mixer.out_in", "layers.$1.mixer.normed", "layers.$1.mixer.gated"}},
	{exactly(`mixer(\d+)\.norm`), rows, []string{"layers.$1.mixer.out_in", "layers.$1.mixer.normed"}},
	{exactly(`mixer(\d+)\.gate`), rows, []string{"layers.$1.mixer.z_scaled", "layers.$1.mixer.z"}},
	{exactly(`mixer(\d+)\.z`), rows, []string{"layers.$1.mixer.z", "layers.$1.mixer.in_proj_z"}},
	{exactly(`mixer(\d+)\.out`), rows, []string{"layers.$1.mixer.out_proj"}},
	{exactly(`mixer(\d+)\.(in_proj\w*|x_proj|x|scan|g|beta|delta_out|Bx)`), rows, []string{"layers.$1.mixer.$2"}},
	{exactly(`attn(\d+)\.in`), rows, []string{"layers.$1.norm"}},
	{exactly(`attn(\d+)\.gate`), rows, []string{"layers.$1.attention.gate"}},
	{exactly(`attn(\d+)\.out_in`), rows, []string{"layers.$1.attention.gated", "layers.$1.attention.attended"}},
	{exactly(`attn(\d+)\.out`), rows, []string{"layers.$1.attention.o_proj", "layers.$1.attention.out_proj"}},
	{exactly(`moe(\d+)\.in`), rows, []string{"layers.$1.norm_ff", "layers.$1.norm"}},
	{exactly(`moe(\d+)\.router_logits`), rows, []string{"layers.$1.experts.router"}},
	{exactly(`moe(\d+)\.shared_gate`), rows, []string{"layers.$1.experts.shared_gate"}},
	{exactly(`moe(\d+)\.latent_in`), rows, []string{"layers.$1.experts.fc1_latent_proj"}},
	{exactly(`moe(\d+)\.latent_out`), rows, []string{"layers.$1.experts.experts"}},
	{exactly(`moe(\d+)\.out`), rows, []string{"layers.$1.experts.all", "layers.$1.experts.experts"}},
	{exactly(`state\.layers\.(\d+)\.(ssm|conv)`), state, []string{"layers.$1.mixer.$2"}},
	{exactly(`decode\.state\.layers\.(\d+)\.(ssm|conv)`), decodeState, []string{"layers.$1.mixer.$2"}},
	{exactly(`state\.layers\.(\d+)\.delta`), state, []string{"layers.$1.mixer.ssm"}},
	{exactly(`decode\.state\.layers\.(\d+)\.delta`), decodeState, []string{"layers.$1.mixer.ssm"}},
	{exactly(`state\.layers\.(\d+)\.k`), state, []string{"layers.$1.attention.keys"}},
	{exactly(`state\.layers\.(\d+)\.v`), state, []string{"layers.$1.attention.values"}},
	{exactly(`decode\.state\.layers\.(\d+)\.k`), decodeState, []string{"layers.$1.attention.keys"}},
	{exactly(`decode\.state\.layers\.(\d+)\.v`), decodeState, []string{"layers.$1.attention.values"}},
	{exactly(`decode\.logits`), decodeRows, []string{"logits"}},
	{exactly(`mtp\.logits`), mtpRows, []string{"logits"}},
	{exactly(`decode\.ids`), greedy, nil},
}

// counted has what numbers count that are not of layers: the layers with a value, from 0 on.
var counted = map[string]string{"attn": "attention.attended", "moe": "experts.router"}

var numbered = exactly(`([a-z]+)(\d+)(\..*)`)

// inLayer is the name of a quantity with the number of its layer, where another number is counted.
func inLayer(g *graph.Graph, name string) string {
	m := numbered().FindStringSubmatch(name)
	if m == nil || counted[m[1]] == "" {
		return name
	}
	n, _ := strconv.Atoi(m[2])
	for i := range len(g.Nodes) {
		if _, ok := g.Value(fmt.Sprintf("layers.%d.%s", i, counted[m[1]])); ok {
			if n--; n < 0 {
				return fmt.Sprint(m[1], i, m[3])
			}
		}
	}
	return name
}

// exactly compiles a pattern of a whole name when it is first asked for, not with each start.
func exactly(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^" + pattern + "$") })
}

// source finds the value or state to compare with, or sets why there is none.
func (q *quantity) source(g *graph.Graph, p *prompt) {
	q.line = Line{Prompt: p.name, Quantity: q.name}
	q.value, q.state = "", ""
	if q.name == "logits_native_bf16" {
		q.line.Skip = "the reference in bf16 throughout; Krait computes in f32"
		return
	}
	if q.integers {
		q.line.Skip = "integers, of which Krait compares decode.ids only"
		return
	}
	named := inLayer(g, q.name)
	for _, n := range names {
		if !n.pattern().MatchString(named) {
			continue
		}
		q.kind = n.kind
		if q.kind == greedy {
			return
		}
		if q.kind == decodeState && p.steps == 0 {
			q.line.Skip = "without decode.ids or decode.logits, how many tokens were decoded is unknown"
			return
		}
		for _, v := range n.values {
			name := n.pattern().ReplaceAllString(named, v)
			if v, ok := lookup(g, name); ok {
				q.attach(name, v.Type, p)
				q.reordered(v)
				return
			}
		}
		q.line.Skip = "this model has no such value"
		return
	}
	q.line.Skip = "not a quantity that Krait knows"
}

// lookup finds a value, or the output of that name.
func lookup(g *graph.Graph, name string) (*graph.Value, bool) {
	for _, o := range g.Outputs {
		if o.Name == name {
			return o.Value, true
		}
	}
	return g.Value(name)
}

// attach checks the shape in the file against the value's.
func (q *quantity) attach(name string, t graph.Type, p *prompt) {
	var fits bool
	var want []int
	switch {
	case t.Ragged():
		q.state = name
		fits, want = q.cached(t, p)
	case q.kind == rows || q.kind == decodeRows || q.kind == mtpRows:
		q.value = name
		fits, want = q.rowed(t, p)
	default:
		q.state = name
		fits, want = q.stated(t, p)
	}
	if !fits {
		q.line.Fail = fmt.Sprintf("has shape %v in the file, the model gives %v", q.shape, want)
		q.value, q.state = "", ""
	}
}

// rowed: rows are [B, L, width] in the file, with the width perhaps cut into heads, or
// [B, width, L], or by heads [heads, B, L, width/heads].
func (q *quantity) rowed(t graph.Type, p *prompt) (fits bool, want []int) {
	b, l, w := p.batch, p.length, graph.RowElems(t.Dims)
	switch q.kind {
	case decodeRows:
		l = p.steps
	case mtpRows:
		l--
	}
	q.width = w
	switch s := q.shape; {
	case slices.Equal(s, []int{b, l, w}):
		q.index = func(at []int, b, i, j int) []int { return append(at, b, i, j) }
	case len(s) == 4 && slices.Equal(s[:2], []int{b, l}) && s[2]*s[3] == w:
		q.index = func(at []int, b, i, j int) []int { return append(at, b, i, j/s[3], j%s[3]) }
	case q.kind == rows && slices.Equal(s, []int{b, w, l}):
		q.index = func(at []int, b, i, j int) []int { return append(at, b, j, i) }
	case len(s) == 4 && s[0] > 0 && slices.Equal(s[1:3], []int{b, l}) && s[0]*s[3] == w:
		q.index = func(at []int, b, i, j int) []int { return append(at, j/s[3], b, i, j%s[3]) }
	default:
		return false, []int{b, l, w}
	}
	return true, nil
}

// stated: states are as in the model, with channels perhaps cut into heads; of
// convolutions the file may have the last K inputs, of which a step needs K-1.
func (q *quantity) stated(t graph.Type, p *prompt) (fits bool, want []int) {
	want = []int{p.batch}
	for _, d := range t.Dims[1:] {
		want = append(want, d.Len())
	}
	last := len(q.shape) - 1
	q.width = want[len(want)-1]
	if last < 1 || q.shape[0] != p.batch || q.shape[last] != q.width && q.shape[last] != q.width+1 {
		return false, want
	}
	return product(q.shape[1:last]) == product(want[1:len(want)-1]), want
}

// cached: caches are [B, groups, tokens, head] in the file, rows of groups here.
func (q *quantity) cached(t graph.Type, p *prompt) (fits bool, want []int) {
	tokens := p.length
	if q.kind == decodeState {
		tokens += p.steps
	}
	f := t.Dims[2].Fields[0]
	q.width = f.Size
	q.index = func(at []int, b, i, j int) []int { return append(at, b, j/f.Unit, i, j%f.Unit) }
	want = []int{p.batch, f.Units(), tokens, f.Unit}
	return slices.Equal(q.shape, want), want
}

func product(list []int) int {
	n := 1
	for _, x := range list {
		n *= x
	}
	return n
}

// reordered maps the columns of a matmul to the rows of its weight in the file, where they may be
// interleaved.
func (q *quantity) reordered(v *graph.Value) {
	n := v.Def
	if n.Op.Name == "bias" {
		n = n.Args[0].Def
	}
	if n.Op.Name != "matmul" || n.Args[1].Def.Storage == nil || q.index == nil {
		return
	}
	var at []int
	for _, piece := range n.Args[1].Def.Storage.Pieces {
		for i := range piece.Count {
			at = append(at, piece.Start+i*piece.Step)
		}
	}
	if index := q.index; len(at) == q.width && slices.Max(at) < q.width { // it has all of the tensor
		q.index = func(to []int, b, i, j int) []int { return index(to, b, i, at[j]) }
	}
}

// row compares a row: token i of sequence b.
func (q *quantity) row(way string, b, i int, got []float32) {
	var at []int
	for j, v := range got {
		at = q.index(at[:0], b, i, j)
		q.element(way, v, at...)
	}
}

// stateOf compares the state of sequence b; where the file has more columns
// than the state, the newest count.
func (q *quantity) stateOf(way string, b int, got []float32) {
	if q.width == 0 {
		return
	}
	if q.index != nil {
		for i := range len(got) / q.width {
			q.row(way, b, i, got[i*q.width:(i+1)*q.width])
		}
		return
	}
	last := q.shape[len(q.shape)-1]
	index := make([]int, len(q.shape))
	for i, v := range got {
		index[0] = b
		index[len(index)-1] = i%q.width + last - q.width
		rest := i / q.width
		for k := len(index) - 2; k > 0; k-- {
			index[k] = rest % q.shape[k]
			rest /= q.shape[k]
		}
		q.element(way, v, index...)
	}
}

// element compares one number; a NaN on either side is an infinite difference.
func (q *quantity) element(way string, got float32, at ...int) {
	k := 0
	for i, x := range at {
		k = k*q.shape[i] + x
	}
	d := math.Abs(float64(got) - q.want[k])
	if math.IsNaN(d) {
		d = math.Inf(1)
	}
	if d > q.line.Max || q.line.At == nil {
		q.line.Max, q.line.Way = d, way
		q.line.At = append(q.line.At[:0], at...)
	}
}
