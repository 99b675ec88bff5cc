package tests

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
)

// summing is a model whose logits are sums over ranks of what the test says that each has: token i
// is row i of a table, of which the ranks have the columns, and the product with ones adds these.
func summing(t *testing.T, rows [][][]float32) (*graph.Graph, krait.Weights) {
	t.Helper()
	ranks, width, vocab := len(rows[0]), len(rows[0][0]), len(rows[0][0])
	b := graph.New("summing")
	ids := b.Input("ids", graph.TypeOf(graph.I32, graph.Symbol(graph.Tokens)))
	wanted := b.Input("rows", graph.TypeOf(graph.I32, graph.Symbol(graph.Rows)))
	units := graph.Units(ranks*width, 1)
	table := b.Param("table", graph.TypeOf(graph.F32, graph.Size(vocab), graph.Size(vocab)), nil)
	in := b.Param("in", graph.TypeOf(graph.F32, units, graph.Size(vocab)), nil)
	out := b.Param("out", graph.TypeOf(graph.F32, graph.Size(width), units), nil)
	x := b.MatMul("x", b.Embedding("e", ids, table), in)
	b.Output("logits", b.SelectRows("logits", b.MatMul("sum", x, out), wanted))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	one, payload, add := make([]float32, vocab*vocab), make([]float32, ranks*width*vocab), make([]float32, width*ranks*width)
	for i := range vocab {
		one[i*vocab+i] = 1
	}
	for token, summands := range rows {
		for r, row := range summands {
			for j, v := range row {
				payload[(r*width+j)*vocab+token] = v
				add[j*ranks*width+r*width+j] = 1
			}
		}
	}
	return g, krait.Tensors(map[string]graph.Array{"table": graph.ArrayOf(one, vocab, vocab), "in": graph.ArrayOf(payload, ranks*width, vocab), "out": graph.ArrayOf(add, width, ranks*width)})
}

// adversaries make what a rank has of a row: each is hard for some rounding.
var adversaries = []func(r *rand.Rand, row []float32){
	func(r *rand.Rand, row []float32) { // at random
		for i := range row {
			row[i] = float32(r.NormFloat64())
		}
	},
	func(r *rand.Rand, row []float32) { // one outlier in each block
		for i := range row {
			if row[i] = float32(r.NormFloat64()); i%29 == 0 {
				row[i] *= 1e4
			}
		}
	},
	func(r *rand.Rand, row []float32) { // halfway between the largest codes, all to one side
		most := float32(math.Ldexp(1+r.Float64(), r.IntN(6)))
		for i := range row {
			if row[i] = most; i%32 != 0 {
				row[i] = most * (1 - float32(2*r.IntN(2)+1)/float32([]int{252, 14, 28, 2047}[r.IntN(4)]))
			}
		}
	},
	func(r *rand.Rand, row []float32) { // cancels what others have
		for i := range row {
			row[i] = float32(1-2*r.IntN(2)) * (1 + float32(i%7)/128)
		}
	},
	func(r *rand.Rand, row []float32) { // small, and denormal
		for i := range row {
			row[i] = float32(math.Ldexp(r.NormFloat64(), -120-r.IntN(28)))
		}
	},
	func(r *rand.Rand, row []float32) { clear(row) },
	func(r *rand.Rand, row []float32) { // large
		for i := range row {
			row[i] = float32(math.Ldexp(r.NormFloat64(), 12))
		}
	},
}

// TestRoundedBound: no execution is further from the exact sum than the certificate of the proof
// says, whatever ranks have, and some come close.
func TestRoundedBound(t *testing.T) {
	closest := map[string]float64{}
	for i, quantize := range []string{"int8", "int4:int8", "e4m3/64", "e5m2/16:none", "none:int4", "scaled16", "int4/128:e5m2/16", "none:bf16", "fp16", "bf16", "fp16:acc32", "bf16:acc32", "int8:bf16"} {
		for k, ranks := range []int{2, 3, 8} {
			seed := uint64(100*i + k)
			r := rand.New(rand.NewPCG(20, seed))
			width := []int{40, 67, 33}[(i+k)%3]
			rows := make([][][]float32, width)
			for token := range rows {
				kind := r.IntN(len(adversaries))
				for range ranks {
					row := make([]float32, width)
					if r.IntN(6) == 0 {
						kind = r.IntN(len(adversaries))
					}
					adversaries[kind](r, row)
					rows[token] = append(rows[token], row)
				}
			}
			what := fmt.Sprintf("%s on %d ranks, seed %d", quantize, ranks, seed)
			closest[quantize] = max(closest[quantize], held(t, what, quantize, rows))
		}
	}
	for quantize, share := range closest {
		if share < 0.3 || share > 1 {
			t.Errorf("%s: the furthest is at %.2f of the bound", quantize, share)
		}
	}
}

// held holds the executions of rows to the bound, and says how close to it the furthest is.
func held(t *testing.T, what, quantize string, rows [][][]float32) (furthest float64) {
	t.Helper()
	g, weights := summing(t, rows)
	s := krait.Sharding{Ranks: len(rows[0]), Payload: "logits=" + quantize}
	bound := certified(t, g, s)
	m, err := krait.New(g, weights, nil, krait.Options{Sharding: s})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	q, err := m.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	tokens := make([]int, len(rows))
	for i := range tokens {
		tokens[i] = i
	}
	fed, err := q.Feed(t.Context(), tokens, krait.Selection{Logits: tokens})
	if err != nil {
		t.Fatal(err)
	}
	for token, summands := range rows {
		most := bound.Most(summands)
		for j, got := range fed.Logits[token] {
			exact := 0.0
			for _, row := range summands {
				exact += float64(row[j])
			}
			far := math.Abs(float64(got) - exact)
			if !(far <= most[j]) {
				t.Fatalf("%s: token %d, element %d: %g is off by %g from %g; the bound is %g\n%v", what, token, j, got, far, exact, most[j], bound)
			}
			if most[j] > 0 {
				furthest = max(furthest, far/most[j])
			}
		}
	}
	return furthest
}

// certified is what the certificate says of the one collective.
func certified(t *testing.T, g *graph.Graph, s krait.Sharding) *prove.Rounded {
	t.Helper()
	o, err := s.Options()
	if err != nil {
		t.Fatal(err)
	}
	compiled := func(stage graph.Stage, o passes.Options) *graph.Graph {
		o.Stop = stage
		out, err := passes.Compile(g, o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	c, err := prove.Prove(compiled(graph.UnpackedStage, o), compiled(graph.PartitionedStage, o), prove.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var list []prove.Rounded
	for _, p := range c.Parts {
		list = slices.Concat(list, p.Rounded)
	}
	if len(list) != 1 || list[0].Ranks != s.Ranks || list[0].Value != "logits" {
		t.Fatalf("%s: %+v\n%s", s.Payload, list, c)
	}
	return &list[0]
}
