package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// backwards is a product whose sums go from the last term to the first, of tokens that lie so in
// the scratch memory.
var backwards = kernels.Kernel{
	Units:   matmulUnits,
	Scratch: func(c *kernels.Call) int { return 4 * c.Args[0].Rows() * c.Args[0].Cols },
	Before: &kernels.Kernel{Units: func(c *kernels.Call) int { return c.Args[0].Rows() }, Run: func(c *kernels.Call, lo, hi int) {
		for i := lo; i < hi; i++ {
			row := floats(c.Scratch)[i*c.Args[0].Cols:][:c.Args[0].Cols]
			copy(row, c.Args[0].Row(i))
			slices.Reverse(row)
		}
	}},
	Run: func(c *kernels.Call, lo, hi int) {
		x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
		row := make([]float32, w.Cols)
		for j := lo * matmulCols; j < min(hi*matmulCols, w.Rows()); j++ {
			w.Read(row, j*w.Stride)
			slices.Reverse(row)
			for i := range x.Rows() {
				var s float32
				for k, v := range floats(c.Scratch)[i*x.Cols:][:x.Cols] {
					s += v * row[k]
				}
				y.Row(i)[j] = s
			}
		}
	},
}

// drawWide draws runs of rows, in order and apart.
func drawWide(r *rand.Rand, rows int) (list []graph.Run) {
	for at := r.IntN(3); at < rows; at += 1 + r.IntN(4) {
		n := 1 + r.IntN(min(rows-at, 70))
		list = append(list, graph.Run{Start: at, Len: n})
		at += n
	}
	return list
}

// TestByPosition: rows in whole blocks of a prompt, or all, have the bits that the wide kernel
// gives them alone, and others those of the narrow one, however the work is cut; weights that the
// wide one does not serve stay with the narrow one. A call allocates nothing.
func TestByPosition(t *testing.T) {
	eachISA(t, "matmul", func(t *testing.T, isa string, _ kernels.Kernel) {
		r := rand.New(rand.NewPCG(31, 0))
		set, err := narrowForISA(isa)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			narrow := set["matmul"]
			if i%2 == 0 {
				narrow = inBF16.kernel(narrow)
			}
			all := r.IntN(4) == 0
			both := ByPosition(narrow, Wide{backwards, longBF16, all})
			tokens, n, k := 1+r.IntN(150), 1+r.IntN(40), kernels.ShortDepth+r.IntN(40)
			if i%8 == 7 {
				k = 40
			}
			x, w := table(graph.F32, tokens, k, k+r.IntN(3), r.IntN(8)), table([]graph.DType{graph.BF16, graph.BF16, graph.F32}[i%3], n, k, k, 0)
			y := table(graph.F32, tokens, n, n+r.IntN(6), r.IntN(8))
			fill(&x, func() float32 { return float32(r.NormFloat64()) })
			fill(&w, func() float32 { return float32(r.NormFloat64()) })
			call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}, Wide: drawWide(r, tokens)}
			both.Prepare(call)
			for u := both.Units(call); u > 0; { // from the last to the first
				lo := r.IntN(u)
				both.Run(call, lo, u)
				u = lo
			}
			for row := range tokens {
				kernel := narrow
				if longBF16(call) && (all || slices.ContainsFunc(call.Wide, func(b graph.Run) bool { return b.Start <= row && row < b.End() })) {
					kernel = backwards
				}
				one := table(graph.F32, 1, n, n, 0)
				runAll(kernel, &kernels.Call{Args: []kernels.Tensor{part(x, row, row+1), w}, Results: []kernels.Tensor{one}})
				if !slices.Equal(one.Row(0), y.Row(row)) {
					t.Fatalf("case %d, row %d of %d, wide %v: other bits than alone", i, row, tokens, call.Wide)
				}
			}
			if i < 4 {
				both = ByPosition(narrow, Wide{narrow, longBF16, all})
				if n := allocations(both, call); n != 0 {
					t.Errorf("case %d: %v allocations", i, n)
				}
			}
		}
	})
}

// TestWideOfISAs: instruction sets with wide products give them rows of whole blocks and no others,
// or all rows. A set that this machine lacks is tried with products of other kernels.
func TestWideOfISAs(t *testing.T) {
	for math, sets := range wideProducts {
		for isa, list := range sets {
			for _, wide := range list {
				t.Run(fmt.Sprintf("%s/%s", math, isa), func(t *testing.T) { checkWideOf(t, math, isa, wide) })
			}
		}
	}
}

func checkWideOf(t *testing.T, math, isa string, wide Wide) {
	var matmul kernels.Kernel
	if slices.Contains(ISAs(), isa) {
		set, err := ForISA(isa)
		if math == "bf16" {
			set, err = RoundingForISA(isa)
		}
		if err != nil {
			t.Fatal(err)
		}
		matmul = set["matmul"]
	} else {
		wide.Kernel = backwards
		matmul = ByPosition(Kernels["matmul"], wide)
	}
	const tokens, n, k = 70, 33, 768
	r := rand.New(rand.NewPCG(37, 0))
	x, w := table(graph.F32, tokens, k, k, 0), table(graph.F32, n, k, k, 0)
	if !wide.Serves(&kernels.Call{Args: []kernels.Tensor{x, w}}) {
		w = table(graph.BF16, n, k, k, 0)
	}
	fill(&x, func() float32 { return float32(r.NormFloat64()) })
	fill(&w, func() float32 { return float32(r.NormFloat64()) })
	var y [3]kernels.Tensor
	for i, kernel := range []kernels.Kernel{matmul, matmul, wide.Kernel} {
		y[i] = table(graph.F32, tokens, n, n, 0)
		call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y[i]}}
		if i == 0 {
			call.Wide = []graph.Run{{Start: 3, Len: 64}}
		}
		runAll(kernel, call)
	}
	for row := range tokens {
		in := wide.All || row >= 3 && row < 67
		if slices.Equal(y[0].Row(row), y[2].Row(row)) != in || slices.Equal(y[0].Row(row), y[1].Row(row)) != (wide.All || !in) {
			t.Errorf("row %d is of the wrong kernel", row)
		}
	}
}
