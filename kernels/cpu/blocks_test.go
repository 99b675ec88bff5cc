package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	"github.com/x448/float16"
)

// blockTypes are the formats of weights in blocks.
func blockTypes() (list []graph.DType) {
	for d := graph.Q8; d.Quantized(); d++ {
		list = append(list, d)
	}
	return list
}

// drawBlocks draws rows of blocks: any scales and codes that are finite, any number.
func drawBlocks(rng *rand.Rand, d graph.DType, n, k int) []byte {
	f := d.Format()
	data := make([]byte, n*f.Count(k)*f.Bytes)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for at := 0; at < len(data); at += f.Bytes {
		if d >= graph.FP8_128 {
			drawParts(rng, d, data[at:][:f.Bytes])
		}
		for _, place := range f.Scales {
			scale := float16.Fromfloat32(float32(rng.NormFloat64() / 100))
			if rng.IntN(8) == 0 {
				scale = float16.Frombits(uint16(rng.IntN(0x400))) // 0 and the denormal ones
			}
			binary.LittleEndian.PutUint16(data[at+place:], scale.Bits())
		}
	}
	return data
}

// drawParts draws a block of codes and scales that are no NaN.
func drawParts(rng *rand.Rand, d graph.DType, b []byte) {
	p := graph.Parts{Scale: float32(rng.NormFloat64() / 100), Scales: make([]byte, 8), Zero: byte(rng.IntN(16)), Codes: make([]byte, d.Format().Elems)}
	for i := range p.Scales {
		p.Scales[i] = byte(rng.IntN(127) | rng.IntN(2)<<7)
	}
	if d == graph.MXFP4 {
		p.Scales = []byte{byte(118 + rng.IntN(4))}
	}
	for i := range p.Codes {
		if p.Codes[i] = byte(rng.IntN(127) | rng.IntN(2)<<7); d > graph.FP8_32 {
			p.Codes[i] &= 15
		}
	}
	d.Pack(b, &p)
}

// wide is what blocks are as numbers, each row of k.
func wide(d graph.DType, data []byte, n, k int) []float32 {
	f := d.Format()
	line, out := make([]float32, f.Count(k)*f.Elems), make([]float32, 0, n*k)
	for ; n > 0; n, data = n-1, data[f.Count(k)*f.Bytes:] {
		d.Decode(line, data)
		out = append(out, line[:k]...)
	}
	return out
}

// heldBlocks is what a rank has of a weight, at some address.
func heldBlocks(t *testing.T, typ graph.Type, data []byte, ranks, rank, shift int) kernels.Tensor {
	t.Helper()
	w := kernels.Describe(typ, ranks, rank)
	a, err := graph.Stored("w").Load("w", typ, ranks, rank, func(string) (graph.Array, error) {
		return graph.Array{DType: typ.DType, Shape: []int{typ.Dims[0].Len(), typ.Dims[1].Len()}, Data: data, From: "w"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.U8 = append(make([]byte, shift), a.Data...)[shift:]
	return w
}

// filled is a weight with values, one row after another.
func filled(d graph.DType, value func() float32, dims ...int) kernels.Tensor {
	typ := graph.Type{DType: d}
	size := 1
	for _, n := range dims {
		typ.Dims, size = append(typ.Dims, graph.Size(n)), size*n
	}
	w := kernels.Describe(typ, 1, 0)
	if !d.Quantized() {
		memory := table(d, w.Dims[0], w.Cols, w.Cols, 0)
		w.F32, w.U16 = memory.F32, memory.U16
		fill(&w, value)
		return w
	}
	values := make([]float32, size)
	for i := range values {
		values[i] = value()
	}
	a, err := graph.ArrayOf(values, dims...).Convert(d)
	if err != nil {
		panic(err)
	}
	w.U8 = a.Data
	return w
}

// splitAlong draws how the inner axis of a weight lies over ranks: as one field or as
// two, of units of any size.
func splitAlong(rng *rand.Rand, d graph.DType, n, k int) graph.Type {
	typ := graph.TypeOf(d, graph.Size(n), graph.Size(k))
	switch cut := rng.IntN(k + 1); rng.IntN(3) {
	case 0:
		typ.Layout = graph.SplitOn(1, 1)
	case 1:
		typ.Dims[1] = graph.Pack(graph.Field{Name: "a", Size: cut, Unit: 1}, graph.Field{Name: "b", Size: k - cut, Unit: 1})
		typ.Layout = graph.SplitOn(1, 2)
	}
	return typ
}

// TestMatmulBlocks compares what ranks have of a weight in blocks with sums in float64,
// within the error that sums in this order may have. A token's result has the same bits
// alone and however the columns are cut.
func TestMatmulBlocks(t *testing.T) { eachISA(t, "matmul", matmulBlocks) }

func matmulBlocks(t *testing.T, isa string, kernel kernels.Kernel) {
	const seed = 8
	rng := rand.New(rand.NewPCG(seed, 0))
	few := goldens.Few(t)
	for i := range 600 {
		if (i%4 > 0 || i%3 > 0 && few) && i < 590 && !goldens.All() {
			continue
		}
		k := 1 + i%66
		if i >= 400 {
			k = 1 + rng.IntN(1100)
		}
		tokens, n, ranks := 1+rng.IntN(15), 1+rng.IntN(13), 1+rng.IntN(4)
		if i >= 590 {
			tokens, n = 1+rng.IntN(400), 1+rng.IntN(150)
		}
		d := blockTypes()[rng.IntN(len(blockTypes()))]
		typ, data := splitAlong(rng, d, n, k), drawBlocks(rng, d, n, k)
		numbers := wide(d, data, n, k)
		for rank := range ranks {
			what := fmt.Sprintf("seed %d, case %d: %d tokens, %d columns of %s, rank %d of %d", seed, i, tokens, n, typ, rank, ranks)
			w := heldBlocks(t, typ, data, ranks, rank, rng.IntN(32))
			x := table(graph.F32, tokens, w.Cols, w.Cols+rng.IntN(3), rng.IntN(8))
			y := table(graph.F32, tokens, n, n+rng.IntN(6), rng.IntN(8))
			fill(&x, func() float32 { return float32(rng.NormFloat64()) })
			fill(&y, func() float32 { return 1e30 })
			call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
			units := kernel.Units(call)
			cut := rng.IntN(units + 1)
			kernel.Run(call, cut, units)
			kernel.Run(call, 0, cut)
			same := table(graph.F32, n, w.Cols, w.Cols, 0)
			for j := range n {
				row := same.Row(j)[:0]
				runs := w.Runs
				if runs == nil {
					runs = []graph.Run{{Start: 0, Len: k}}
				}
				for _, r := range runs {
					row = append(row, numbers[j*k+r.Start:j*k+r.End()]...)
				}
			}
			checkSums(t, what, &x, &same, &y, lanes[isa])
			for token := range tokens {
				one := part(x, token, token+1)
				checkBits(t, what+" alone", kernel, &one, &w, &y, token)
			}
		}
	}
}

// checkSums holds a product to the error that sums in f32 may have, of as many lanes,
// where the blocks at both ends of two runs are apart.
func checkSums(t *testing.T, what string, x, w, y *kernels.Tensor, lanes int) {
	t.Helper()
	roundings := float64(x.Cols/lanes + 10)
	for j := range w.Rows() {
		for i := range x.Rows() {
			var want, size float64
			for e, v := range x.Row(i) {
				p := float64(v) * float64(w.Row(j)[e])
				want += p
				size += math.Abs(p)
			}
			if got := float64(y.Row(i)[j]); !(math.Abs(got-want) <= roundings*0x1p-24*size) {
				t.Fatalf("%s: y[%d][%d] is %g, want %g", what, i, j, got, want)
			}
		}
	}
	for i, v := range y.F32 {
		if i%y.Stride >= y.Cols && v != 1e30 {
			t.Fatalf("%s: wrote to element %d between the rows", what, i)
		}
	}
}

// checkBits compares a product of one row with that row of y.
func checkBits(t *testing.T, what string, kernel kernels.Kernel, x, w, y *kernels.Tensor, row int) {
	t.Helper()
	again := table(graph.F32, 1, y.Cols, y.Cols, 0)
	call := &kernels.Call{Args: []kernels.Tensor{*x, *w}, Results: []kernels.Tensor{again}}
	kernel.Run(call, 0, kernel.Units(call))
	for j, v := range again.Row(0) {
		if got := y.Row(row)[j]; math.Float32bits(v) != math.Float32bits(got) {
			t.Fatalf("%s: y[%d][%d] is %g, and %g again", what, row, j, got, v)
		}
	}
}

// TestMatmulBlocksSpecial: each scale there is, each number, and activations that are
// special, at each place of rows of 1 to 65.
func TestMatmulBlocksSpecial(t *testing.T) {
	goldens.CI(t)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	eachISA(t, "matmul", func(t *testing.T, _ string, kernel kernels.Kernel) {
		run := func(k int, data []byte, x []float32) []float32 {
			n := len(data) / ((k + 31) / 32 * 34)
			w := heldBlocks(t, graph.TypeOf(graph.Q8, graph.Size(n), graph.Size(k)), data, 1, 0, 0)
			in, y := table(graph.F32, 1, k, k, 0), table(graph.F32, 1, n, n, 0)
			copy(in.F32, x)
			call := &kernels.Call{Args: []kernels.Tensor{in, w}, Results: []kernels.Tensor{y}}
			kernel.Run(call, 0, kernel.Units(call))
			return y.F32
		}
		few := goldens.Few(t)
		for k := 1; k <= 65; k++ {
			for at := range k {
				if ((k+at)%3 > 0 || k%4 > 1 && few) && !goldens.All() {
					continue
				}
				x, data := make([]float32, k), make([]byte, 5*((k+31)/32)*34)
				for i := 0; i < len(data); i += 34 {
					data[i+1] = 0x3c // a scale of 1
				}
				for row := range 5 {
					data[row*len(data)/5+at/32*34+2+at%32] = 1
				}
				for _, v := range []float32{1, 0x1p-149, -0x1p-127, 0x1.fffffep127, inf, -inf, nan} {
					x[at] = v
					for _, got := range run(k, data, x) {
						if got != v && (got == got || v == v) {
							t.Fatalf("%g at %d of %d gives %g", v, at, k, got)
						}
					}
				}
			}
		}
		for q := -128; q < 128; q++ {
			data := make([]byte, 0, 0x7c00*34)
			var block [34]byte
			block[2+q&31] = byte(int8(q))
			for scale := range uint16(0x7c00) {
				binary.LittleEndian.PutUint16(block[:], scale)
				if data = append(data, block[:]...); scale%64 != 0 && q%16 != 0 {
					data = data[:len(data)-34]
				}
			}
			x := make([]float32, 32)
			x[q&31] = 1
			for i, got := range run(32, data, x) {
				scale := float16.Frombits(binary.LittleEndian.Uint16(data[i*34:])).Float32()
				if got != scale*float32(q) {
					t.Fatalf("%g · %d gives %g", scale, q, got)
				}
			}
		}
	})
}

// TestMatmulBlocksAllocates: nothing, also where blocks are cut.
func TestMatmulBlocksAllocates(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, d := range blockTypes() {
		typ := graph.TypeOf(d, graph.Size(9), graph.Size(600))
		typ.Layout = graph.SplitOn(1, 1)
		w := heldBlocks(t, typ, drawBlocks(rng, d, 9, 600), 2, 1, 0)
		x, y := table(graph.F32, 10, 300, 300, 0), table(graph.F32, 10, 9, 9, 0)
		call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
		eachISA(t, "matmul", func(t *testing.T, _ string, kernel kernels.Kernel) {
			if n := testing.AllocsPerRun(5, func() { kernel.Run(call, 0, 3) }); n != 0 {
				t.Errorf("%s: %g allocations", d, n)
			}
		})
	}
}

// BenchmarkMatmulBlocks is BenchmarkMatmul with weights in blocks.
func BenchmarkMatmulBlocks(b *testing.B) {
	const n, k = 3072, 768
	for _, isa := range ISAs() {
		set, err := ForISA(isa)
		if err != nil {
			b.Fatal(err)
		}
		for i := range 3 * len(blockTypes()) {
			d, tokens := blockTypes()[i/3], []int{1, 16, 512}[i%3]
			b.Run(fmt.Sprintf("%s/%s/%d", isa, d, tokens), func(b *testing.B) {
				w := kernels.Describe(graph.TypeOf(d, graph.Size(n), graph.Size(k)), 1, 0)
				w.U8 = drawBlocks(rand.New(rand.NewPCG(1, 2)), d, n, k)
				x, y := table(graph.F32, tokens, k, k, 0), table(graph.F32, tokens, n, n, 0)
				fill(&x, func() float32 { return 1 })
				call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
				b.SetBytes(int64(len(w.U8)))
				for b.Loop() {
					set["matmul"].Run(call, 0, matmulUnits(call))
				}
				b.ReportMetric(2*n*k*float64(tokens)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
