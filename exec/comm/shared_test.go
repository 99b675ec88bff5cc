package comm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// tensorOf is a tensor of rows of cols elements with a gap after each.
func tensorOf(d graph.DType, rows, cols int, values []float32) kernels.Tensor {
	t := kernels.Tensor{DType: d, Cols: cols, Stride: cols + 3}
	t.Dims[0] = rows
	t.F32, t.U16 = make([]float32, rows*t.Stride), make([]uint16, rows*t.Stride)
	for i := range rows {
		t.Write(i*t.Stride, values[i*cols:(i+1)*cols])
	}
	return t
}

func valueAt(t *kernels.Tensor, row, col int) float32 {
	var v [1]float32
	t.Read(v[:], row*t.Stride+col)
	return v[0]
}

// collectively runs f on all ranks at the same time, in each way that they can be together.
func collectively(t *testing.T, ranks int, f func(c Comm, rank int) error) {
	t.Helper()
	for name, world := range worlds {
		together(t, name, world(t, ranks), f)
	}
}

func together(t *testing.T, name string, world []World, f func(c Comm, rank int) error) {
	t.Helper()
	ranks := len(world)
	var wg sync.WaitGroup
	errs := make([]error, ranks)
	for r := range ranks {
		wg.Go(func() {
			c, err := world[r].Join(r)
			if err != nil {
				errs[r] = err
				return
			}
			c.Begin()
			if err := f(c, r); err != nil {
				c.Stop(err)
			}
			errs[r] = c.Err()
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// op is a collective of the table.
func op(name string) *graph.Op {
	for _, o := range graph.Ops() {
		if o.Name == name {
			return o
		}
	}
	panic(name)
}

// round is the value in the format, by another way than kernels.Round.
func round(d graph.DType, v float32) float32 {
	a, err := graph.ArrayOf([]float32{v}, 1).Convert(d)
	if err != nil {
		panic(err)
	}
	return a.Float32s()[0]
}

// TestAllReduce: sums of two values at a time, of every format and both ways to
// add, in place and not, are those of the ranks in order, with the same bits on
// all ranks. The f32 sum of f16 summands differs from the f16 sum.
func TestAllReduce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rows, cols = 3, 301
	differ := 0
	for _, ranks := range []int{2, 3, 4, 8} {
		for _, d := range []graph.DType{graph.F32, graph.F16, graph.BF16} {
			for way := range 2 * len(ways) {
				acc32 := way%2 == 1
				x := make([]Collective, ranks)
				terms := make([][]float32, ranks)
				for r := range x {
					terms[r] = make([]float32, rows*cols)
					for i := range terms[r] {
						terms[r][i] = round(d, float32(rng.NormFloat64()))
					}
					x[r].Op, x[r].F32 = op("all_reduce"), acc32
					x[r].Args = []kernels.Tensor{tensorOf(d, rows, cols, terms[r]), tensorOf(graph.F32, 1, 2, []float32{float32(r), 1})}
					x[r].Results = []kernels.Tensor{x[r].Args[0], tensorOf(graph.F32, 1, 2, []float32{7, 7})}
				}
				together(t, ways[way/2], worlds[ways[way/2]](t, ranks), func(c Comm, r int) error { return c.Run(&x[r]) })
				for i := range rows * cols {
					exact, each := float32(0), float32(0)
					for r := range ranks {
						exact += terms[r][i]
						each = round(d, each+terms[r][i])
					}
					want := each
					if acc32 {
						want = round(d, exact)
					}
					if round(d, exact) != each {
						differ++
					}
					for r := range ranks {
						if got := valueAt(&x[r].Results[0], i/cols, i%cols); got != want {
							t.Fatalf("%d ranks, %s, acc32 %v: element %d is %g on rank %d, want %g", ranks, d, acc32, i, got, r, want)
						}
					}
				}
				for r := range ranks {
					if a, b := valueAt(&x[r].Results[1], 0, 0), valueAt(&x[r].Results[1], 0, 1); a != float32(ranks*(ranks-1)/2) || b != float32(ranks) {
						t.Fatalf("%d ranks: the second value is %g %g on rank %d", ranks, a, b, r)
					}
				}
			}
		}
	}
	if differ == 0 {
		t.Error("no sum depends on the format in which it is made; the test says nothing")
	}
}

// TestGatherAndScatter: of axes before and after others, of several fields, split,
// whole and covering, with empty parts.
func TestGatherAndScatter(t *testing.T) {
	field := func(name string, size, unit int) graph.Field { return graph.Field{Name: name, Size: size, Unit: unit} }
	packed := graph.Pack(field("a", 6, 2), field("b", 5, 1), field("c", 2, 1))
	split, whole, cover := graph.Placement{Kind: graph.Split}, graph.Placement{}, graph.Placement{Kind: graph.Cover, Of: 6}
	for _, typ := range []graph.Type{
		{Dims: []graph.Dim{graph.Size(3), packed}, Layout: graph.Layout{Kind: graph.Sharded, Axis: 1, Place: []graph.Placement{split, split, split}}},
		{Dims: []graph.Dim{graph.Size(3), packed}, Layout: graph.Layout{Kind: graph.Sharded, Axis: 1, Place: []graph.Placement{split, whole, cover}}},
		{Dims: []graph.Dim{packed, graph.Size(4)}, Layout: graph.Layout{Kind: graph.Sharded, Axis: 0, Place: []graph.Placement{whole, split, cover}}},
		{Dims: []graph.Dim{graph.Size(2), packed, graph.Size(3)}, Layout: graph.Layout{Kind: graph.Sharded, Axis: 1, Place: []graph.Placement{split, split, cover}}},
		{Dims: []graph.Dim{graph.Size(2), graph.Size(3), packed}, Layout: graph.Layout{Kind: graph.Sharded, Axis: 2, Place: []graph.Placement{split, split, split}}},
		{Dims: []graph.Dim{graph.Size(2), graph.Size(2), packed, graph.Size(2)}, Layout: graph.Layout{Kind: graph.Sharded, Axis: 2, Place: []graph.Placement{split, whole, split}}},
	} {
		for _, d := range []graph.DType{graph.F32, graph.F16, graph.BF16} {
			typ.DType = d
			for _, ranks := range []int{2, 3, 4, 8} {
				t.Run(fmt.Sprintf("%s/%d", typ, ranks), func(t *testing.T) { gatherAndScatter(t, typ, ranks) })
			}
		}
	}
}

// TestGatherAndScatterTogether: several values of which ranks have the same rows, a number
// per token and a row of some format, where some ranks have none.
func TestGatherAndScatterTogether(t *testing.T) {
	const tokens, cols = 5, 301
	batch := graph.Batch{Sizes: graph.Sizes{Tokens: tokens}, Ends: []int{1, 4, 5}}
	for _, place := range []graph.PlaceKind{graph.Even, graph.BySequence} {
		for _, ranks := range []int{2, 3, 4, 8} {
			row := graph.Type{DType: graph.BF16, Dims: []graph.Dim{graph.Symbol(graph.Tokens), graph.Size(cols)}, Layout: graph.SplitRows(place)}
			var parts []graph.Pieces
			for r := range ranks {
				parts = append(parts, graph.PiecesIn(&batch, row, ranks, r))
			}
			zeros, ones, values := make([]float32, tokens*cols), make([]float32, tokens), make([]float32, tokens*cols)
			for i := range values {
				values[i] = float32(i % 50)
			}
			for i := range ones {
				ones[i] = float32(i + 1)
			}
			collectively(t, ranks, func(c Comm, r int) error {
				mine := row.Extents(&batch, ranks, r)[0].Len
				both := func(rows int, one, many []float32) []kernels.Tensor {
					return []kernels.Tensor{tensorOf(graph.F32, rows, 1, one), tensorOf(graph.BF16, rows, cols, many)}
				}
				scatter := Collective{Op: op("reduce_scatter"), Parts: parts, Args: both(tokens, ones, values), Results: both(mine, zeros, zeros)}
				if err := c.Run(&scatter); err != nil {
					return err
				}
				gather := Collective{Op: op("all_gather"), Parts: parts, Args: scatter.Results, Results: both(tokens, zeros, zeros)}
				if err := c.Run(&gather); err != nil {
					return err
				}
				for i := range tokens {
					if got := valueAt(&gather.Results[0], i, 0); got != float32(ranks)*ones[i] {
						return fmt.Errorf("%s on %d ranks: the number of token %d is %g", graph.Placement{Kind: place}, ranks, i, got)
					}
					for k := range cols {
						if got, want := valueAt(&gather.Results[1], i, k), summed(ranks, values[i*cols+k]); got != want {
							return fmt.Errorf("%s on %d ranks: element %d of token %d is %g, want %g", graph.Placement{Kind: place}, ranks, k, i, got, want)
						}
					}
				}
				return nil
			})
		}
	}
}

// summed is the sum of ranks times v in bf16, rank by rank.
func summed(ranks int, v float32) float32 {
	sum := v
	for range ranks - 1 {
		sum = round(graph.BF16, sum+v)
	}
	return sum
}

// gatherAndScatter: element i of the whole is i; the sum of ranks times it is
// scattered, and what each rank got is gathered.
func gatherAndScatter(t *testing.T, typ graph.Type, ranks int) {
	rows, cols := typ.Dims[0].Len(), graph.RowElems(typ.Dims)
	values := make([]float32, rows*cols)
	for i := range values {
		values[i] = float32(i % 50)
	}
	var parts []graph.Pieces
	for r := range ranks {
		parts = append(parts, graph.PiecesOf(typ, ranks, r))
	}
	scatterThenGather(t, typ.DType, rows, cols, values, parts, func(r int) (int, int) {
		local := typ.Local(ranks, r).Dims
		return local[0].Len(), graph.RowElems(local)
	})
}

// TestRows: of rows of a batch, some ranks with none.
func TestRows(t *testing.T) {
	for _, ends := range [][]int{{3, 7}, {0, 5}, {7, 7}, {1, 1, 6, 7}, {0, 0, 0, 0, 7}} {
		const rows, cols = 7, 5
		values := make([]float32, rows*cols)
		for i := range values {
			values[i] = float32(i)
		}
		var parts []graph.Pieces
		at := 0
		for _, end := range ends {
			p := graph.Pieces{Rows: true}
			if end > at {
				p.List = []graph.Stretch{{Whole: at, Part: 0, N: end - at}}
			}
			parts, at = append(parts, p), end
		}
		for _, d := range []graph.DType{graph.F32, graph.BF16} {
			scatterThenGather(t, d, at, cols, values[:at*cols], parts, func(r int) (int, int) {
				if len(parts[r].List) == 0 {
					return 0, cols
				}
				return parts[r].List[0].N, cols
			})
		}
	}
}

// scatterThenGather lets ranks sum what they keep, and then gather it; of says what a rank's part
// is, in rows and columns.
func scatterThenGather(t *testing.T, d graph.DType, rows, cols int, values []float32, parts []graph.Pieces, of func(r int) (rows, cols int)) {
	t.Helper()
	ranks, zeros := len(parts), make([]float32, len(values))
	collectively(t, ranks, func(c Comm, r int) error {
		partRows, partCols := of(r)
		scatter := Collective{Op: op("reduce_scatter"), Parts: parts, Args: []kernels.Tensor{tensorOf(d, rows, cols, values)}}
		scatter.Results = []kernels.Tensor{tensorOf(d, partRows, partCols, make([]float32, partRows*partCols))}
		if err := c.Run(&scatter); err != nil {
			return err
		}
		gather := Collective{Op: op("all_gather"), Parts: parts, Args: scatter.Results, Results: []kernels.Tensor{tensorOf(d, rows, cols, zeros)}}
		if err := c.Run(&gather); err != nil {
			return err
		}
		for i, v := range values {
			if got := valueAt(&gather.Results[0], i/cols, i%cols); got != float32(ranks)*v {
				return fmt.Errorf("element %d is %g, want %g", i, got, float32(ranks)*v)
			}
		}
		return nil
	})
}
