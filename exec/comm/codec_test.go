package comm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/codec"
)

// rowsIn are rows of a codec.
func rowsIn(c graph.Codec, rows, cols int) kernels.Tensor {
	t := kernels.Tensor{DType: c.DType(), Cols: cols, Stride: c.RowBytes(cols)}
	t.Dims[0] = rows
	t.U8 = make([]byte, rows*t.Stride)
	return t
}

// TestSumOfCodecs: an all_reduce in two, by every codec on 2, 3 and 8 ranks, of which some
// have no row: the sum is within the bounds of the ranks' blocks and its own, is the sum
// of what came in the order of the ranks, and all ranks have the same bits.
func TestSumOfCodecs(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 2))
	for _, kind := range graph.CodecKinds() {
		for _, ranks := range []int{2, 3, 8} {
			for _, shape := range [][2]int{{1, 2500}, {5, 77}} { // 2500: more than is added at a time
				rows, cols := shape[0], shape[1]
				c := graph.Codec{Kind: kind, Block: []int{16, 32, 128}[rng.IntN(3)]}
				t.Run(fmt.Sprintf("%s/%d ranks/%d rows", c, ranks, rows), func(t *testing.T) { sumOfCodec(t, rng, c, ranks, rows, cols) })
			}
		}
	}
}

func sumOfCodec(t *testing.T, rng *rand.Rand, c graph.Codec, ranks, rows, cols int) {
	summands := make([][]float32, ranks)
	for r := range summands {
		summands[r] = make([]float32, rows*cols)
		for i := range summands[r] {
			summands[r][i] = float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(4)+11*(r%3)))) // so that sums are rounded, and their order counts
		}
	}
	typ := graph.TypeOf(c.DType(), graph.Symbol(graph.Tokens), graph.Size(cols))
	typ.Layout = graph.SplitRows(graph.Even)
	batch := &graph.Batch{Sizes: graph.Sizes{Tokens: int64(rows), Seqs: 1}, Ends: []int{rows}}
	parts := make([]graph.Pieces, ranks)
	for r := range parts {
		parts[r] = graph.PiecesIn(batch, typ, ranks, r)
	}
	all := make([]kernels.Tensor, ranks)
	collectively(t, ranks, func(comm Comm, rank int) error {
		from := rowsIn(c, rows, cols)
		for i := range rows {
			from.Write(i*from.Stride, summands[rank][i*cols:(i+1)*cols])
		}
		held := 0
		for _, p := range parts[rank].List {
			held += p.N
		}
		own := tensorOf(graph.F32, held, cols, make([]float32, held*cols))
		if err := comm.Run(&Collective{Op: op("reduce_scatter"), Args: []kernels.Tensor{from}, Results: []kernels.Tensor{own}, Parts: parts, F32: true}); err != nil {
			return err
		}
		sent := rowsIn(c, held, cols)
		for i := range held {
			sent.Write(i*sent.Stride, own.Row(i))
		}
		all[rank] = rowsIn(c, rows, cols)
		return comm.Run(&Collective{Op: op("all_gather"), Args: []kernels.Tensor{sent}, Results: []kernels.Tensor{all[rank]}, Parts: parts})
	})
	for r := range ranks {
		if !bytes.Equal(all[r].U8, all[0].U8) {
			t.Errorf("rank %d has other bits than rank 0", r)
		}
	}
	for i := range rows {
		compareSum(t, c, &all[0], i, func(r int) []float32 { return summands[r][i*cols : (i+1)*cols] }, ranks)
	}
}

// compareSum holds row i of the result against sums in float64, and what came.
func compareSum(t *testing.T, c graph.Codec, got *kernels.Tensor, i int, summand func(r int) []float32, ranks int) {
	back, want := make([]float32, got.Cols), make([]float32, got.Cols)
	got.Read(back, i*got.Stride)
	exact, bound := make([]float64, got.Cols), make([]float64, got.Cols)
	for r := range ranks {
		x := slices.Clone(summand(r))
		codec.AddBounds(c, bound, x)
		for j, v := range x {
			exact[j] += float64(v)
		}
		codec.Round(c, x)
		for j, v := range x {
			want[j] += v
		}
	}
	codec.AddBounds(c, bound, want)
	codec.Round(c, want)
	if !slices.Equal(back, want) {
		t.Errorf("row %d is %v, want %v", i, back, want)
	}
	for j := range back {
		if far := math.Abs(float64(back[j]) - exact[j]); far > 1.001*bound[j] {
			t.Errorf("row %d, column %d is %g, %g from the sum; the bound is %g", i, j, back[j], far, bound[j])
		}
	}
}
