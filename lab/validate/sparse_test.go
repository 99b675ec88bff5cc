package validate

import (
	"math"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/passes"
	"pgregory.net/rapid"
)

// TestPattern: runs lie within their rows, and those of any eighth of the rows have every column.
func TestPattern(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		rows, cols := rapid.IntRange(1, 3000).Draw(t, "rows"), rapid.IntRange(1, 3000).Draw(t, "cols")
		p := patternOf(rows, cols, rapid.IntRange(1, 64).Draw(t, "run"))
		if p.offset = rapid.Uint32().Draw(t, "offset"); !p.sparse {
			return
		}
		n := min(rows, max(rows/8, 2*(cols/p.run+1)))
		first := rapid.IntRange(0, rows-n).Draw(t, "first")
		seen, numbers := make([]bool, cols), 0
		for row := first; row < first+n; row++ {
			p.each(row, func(lo, hi int, scale float32) {
				numbers += hi - lo
				if float64(scale) < 1/math.Sqrt(float64(cols))*0.999 {
					t.Fatalf("scale %g", scale)
				}
				for i := lo; i < hi && row%p.every > 0; i++ { // not by full rows alone
					seen[i] = true
				}
			})
		}
		if i := slices.Index(seen, false); i >= 0 {
			t.Fatalf("%d rows of %d have runs of %d of %d columns, and not column %d", n, rows, p.run, cols, i)
		}
		if most := n*4*p.run + cols; numbers > most {
			t.Fatalf("%d numbers in %d rows of %+v, want at most %d", numbers, n, p, most)
		}
	})
}

// TestProduct: without zeros a product is what the reference has, in every format of weights.
func TestProduct(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		rows, cols, tokens := rapid.IntRange(1, 9).Draw(t, "rows"), rapid.IntRange(1, 200).Draw(t, "cols"), rapid.IntRange(1, 3).Draw(t, "tokens")
		dtype := rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16, graph.F16}).Draw(t, "dtype")
		matrix := func(d graph.DType, rows, cols int) kernels.Tensor {
			return kernels.Describe(graph.TypeOf(d, graph.Size(rows), graph.Size(cols)), 1, 0)
		}
		w := matrix(dtype, rows, cols)
		w.F32, w.U16 = make([]float32, rows*cols), make([]uint16, rows*cols)
		for range rapid.IntRange(0, 9).Draw(t, "numbers") {
			w.Write(rapid.IntRange(0, rows*cols-1).Draw(t, "at"), []float32{float32(rapid.IntRange(-9, 9).Draw(t, "number"))})
		}
		x := matrix(graph.F64, tokens, cols)
		for i := range tokens * cols {
			x.F64 = append(x.F64, newStream(1, "x").value(i))
		}
		got, want := matrix(graph.F64, tokens, rows), matrix(graph.F64, tokens, rows)
		got.F64, want.F64 = make([]float64, tokens*rows), make([]float64, tokens*rows)
		n, ok := new(randomWeights).multiply(&kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{got}})
		c := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{want}}
		reference.Kernels["matmul"].Run(c, 0, 1)
		for i := range want.F64 {
			if !ok || math.Abs(got.F64[i]-want.F64[i]) > 1e-12 {
				t.Fatalf("%v, want %v", got.F64, want.F64)
			}
		}
		if most := int64(9 * stride * tokens); n > most {
			t.Fatalf("%d numbers are multiplied, want at most %d", n, most)
		}
		x.Cols--
		if _, ok := new(randomWeights).multiply(&kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{got}}); ok {
			t.Fatal("shapes that do not fit are multiplied")
		}
	})
}

// TestWork: a block of real widths takes a fifth of the work of its products; whatever is broken in
// it is found.
func TestWork(t *testing.T) {
	const hidden, wide = 1024, 4096
	g := parse(t, `graph "g" stage=model ranks=1
input %x : f32[t 1024]
block layers.0
  param @up : bf16[4096/1 1024]
  %a = matmul %/x @up
  %b = silu %a
  param @down : bf16[1024 4096/1]
  %c = matmul %b @down
  %h = add %/x %c
output h = %layers.0.h
`)
	out := compiled(t, g, passes.Options{Ranks: 3}, "")
	r, err := Run(t.Context(), g, out, Options{})
	if err != nil {
		t.Fatal(err)
	}
	dense := int64(2 * 3 * 2 * hidden * wide) // two graphs, three tokens, two matrices
	if r.Multiplied == 0 || r.Multiplied > dense/5 || r.Weights != 2*defaultRun {
		t.Errorf("%d numbers are multiplied, of %d of full matrices; %d weights in a row", r.Multiplied, dense, r.Weights)
	}
	text, tried := graph.Print(out), 0
	for i := range out.Nodes {
		for _, how := range mutations {
			broken := parse(t, text)
			if !how.do(broken, broken.Nodes[i]) {
				continue
			}
			tried++
			if r, err := Run(t.Context(), g, broken, Options{}); err == nil {
				t.Errorf("%s of %s is not found:\n%s", how.name, out.Nodes[i].Name(), r)
			}
		}
	}
	if tried < 10 {
		t.Errorf("%d mutations", tried)
	}
}
