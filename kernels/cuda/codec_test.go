package cuda

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/codec"
)

// TestCodecs: rows become the bytes of kernels/codec, from every format, and come back as
// what it reads; beside a row's blocks nothing is written.
func TestCodecs(t *testing.T) {
	rng, few := newRand(1), goldens.Few(t)
	for _, kind := range graph.CodecKinds() {
		for i, cols := range []int{1, 15, 16, 17, 67, 300, 2049} {
			for k, format := range []graph.DType{graph.F32, graph.BF16, graph.F16} {
				if few && k != (int(kind)+i)%3 {
					continue
				}
				c := graph.Codec{Kind: kind, Block: graph.MinBlock << ((i + 3*k) % 8)}
				dev, rows := newDevice(t), 12
				x := kernels.Tensor{DType: format, Cols: cols, Stride: cols + 1, Dims: [6]int{rows, cols, 1, 1, 1, 1}, F32: make([]float32, rows*(cols+1)), U16: make([]uint16, rows*(cols+1))}
				line := make([]float32, cols)
				want, stride := make([]byte, 0), c.RowBytes(cols)+2
				for r := range rows {
					for j := range line {
						line[j] = float32((rng.Float64() - 0.5) * math.Pow(2, []float64{0, -126, -140, 127.9, 15, -20}[r%6]))
						if r == 6 || r == 7 && j == cols/2 {
							line[j] = 100
						}
						if r == 8 {
							line[j] = float32(math.Copysign(0, rng.Float64()-0.5))
						}
					}
					if r > 8 {
						line[cols*2/3] = []float32{float32(math.NaN()), float32(math.Inf(-1)), -math.MaxFloat32}[r-9]
					}
					x.Write(r*x.Stride, line)
					x.Read(line, r*x.Stride)
					row := bytes.Repeat([]byte{0xa5}, stride)
					codec.Encode(c, row, line)
					want = append(want, row...)
				}
				in := dev.upload(&x, 0)
				blocks := Tensor{Tensor: x, Ptr: dev.alloc(len(want))}
				blocks.DType, blocks.Stride = c.DType(), stride
				got := bytes.Repeat([]byte{0xa5}, len(want))
				if err := dev.mem.Write(blocks.Ptr, got); err != nil {
					t.Fatal(err)
				}
				dev.run(Convert(blocks, in), 1)
				if err := dev.mem.Read(blocks.Ptr, got); err != nil {
					t.Fatal(err)
				}
				for at := range got {
					if got[at] != want[at] {
						t.Fatalf("%s of %d columns from %s: byte %d of row %d is %#x, want %#x", c, cols, format, at%stride, at/stride, got[at], want[at])
					}
				}
				y, expect := clone(&x), clone(&x)
				out := dev.empty(&x, 0)
				dev.run(Convert(out, blocks), 1)
				dev.download(out, &y)
				back := make([]float32, cols)
				for r := range rows {
					codec.Decode(c, line, want[r*stride:])
					expect.Write(r*x.Stride, line)
					expect.Read(line, r*x.Stride)
					y.Read(back, r*x.Stride)
					for j, v := range back {
						if math.Float32bits(v) != math.Float32bits(line[j]) && (v == v || line[j] == line[j]) {
							t.Fatalf("%s of %d columns to %s: element %d of row %d is %v, want %v", c, cols, format, j, r, v, line[j])
						}
					}
				}
			}
		}
	}
}

// TestCodecSum: rows in blocks, of up to as many ranks as there may be, add up in their
// order to the bits of what kernels/codec reads; with NaN where a block of one is NaN.
func TestCodecSum(t *testing.T) {
	rng, few := newRand(2), goldens.Few(t)
	for _, kind := range graph.CodecKinds() {
		for i, ranks := range []int{1, 2, 3, 8, MaxPeers} {
			if few && (int(kind)+i)%2 > 0 {
				continue
			}
			c := graph.Codec{Kind: kind, Block: graph.MinBlock << ((i + int(kind)) % 8)}
			for _, cols := range []int{1, 2*c.Block - 1, 259} {
				dev, rows := newDevice(t), 3
				stride := c.RowBytes(cols) + 2
				want, line := make([][]float32, rows), make([]float32, cols)
				var args []Tensor
				for rank := range ranks {
					data := bytes.Repeat([]byte{0xa5}, rows*stride)
					for r := range rows {
						for j := range line {
							line[j] = float32((rng.Float64() - 0.5) * math.Exp2(float64(11*(rank%3))))
						}
						if r == 1 && rank == ranks-1 {
							line[cols/2] = float32(math.Inf(1))
						}
						codec.Encode(c, data[r*stride:], line)
						codec.Decode(c, line, data[r*stride:])
						if rank == 0 {
							want[r] = slices.Clone(line)
							continue
						}
						for j, v := range line {
							want[r][j] += v
						}
					}
					x := Tensor{Tensor: kernels.Tensor{DType: c.DType(), Cols: cols, Stride: stride, Dims: [6]int{rows, cols, 1, 1, 1, 1}}, Ptr: dev.alloc(len(data))}
					if err := dev.mem.Write(x.Ptr, data); err != nil {
						t.Fatal(err)
					}
					args = append(args, x)
				}
				y := kernels.Tensor{DType: graph.F32, Cols: cols, Stride: cols + 1, Dims: [6]int{rows, cols, 1, 1, 1, 1}, F32: make([]float32, rows*(cols+1))}
				out := dev.empty(&y, 1)
				launches, err := PeerSum([]Tensor{out}, args, true)
				if err != nil {
					t.Fatal(err)
				}
				dev.run(launches, 1)
				dev.download(out, &y)
				for r := range rows {
					for j, v := range y.Row(r) {
						if w := want[r][j]; math.Float32bits(v) != math.Float32bits(w) && (v == v || w == w) {
							t.Fatalf("%s of %d columns on %d ranks: element %d of row %d is %v, want %v", c, cols, ranks, j, r, v, w)
						}
					}
				}
			}
		}
	}
}

// TestCodecBugs: of copies with a mistake each the interpreter says what it is, and the
// kernels without pass.
func TestCodecBugs(t *testing.T) {
	c := graph.Codec{Kind: graph.Int8, Block: 32}
	const cols = 64
	x := kernels.Tensor{DType: graph.F32, Cols: cols, Stride: cols, Dims: [6]int{1, cols, 1, 1, 1, 1}, F32: make([]float32, cols)}
	dev := newInterpreter(t)
	plain := dev.upload(&x, 0)
	blocks := plain
	blocks.DType, blocks.Stride, blocks.Ptr = c.DType(), c.RowBytes(cols), dev.alloc(c.RowBytes(cols))
	encode := Convert(blocks, plain)
	sum, err := PeerSum([]Tensor{dev.empty(&x, 0)}, []Tensor{blocks, blocks}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []struct {
		bug  string
		kind ptx.FaultKind
		l    Launch
	}{{"block_bound", ptx.OutOfBounds, encode[0]}, {"block_align", ptx.Misaligned, sum[0]}} {
		dev.run([]Launch{b.l}, 0)
		m, err := ptx.Parse(b.bug, plantedBug(t, b.bug))
		if err != nil {
			t.Fatal(err)
		}
		e, ok := m.Entry(b.l.Function)
		if !ok {
			t.Fatalf("there is no copy of %s", b.l.Function)
		}
		var fault *ptx.Fault
		if err := e.Run(context.Background(), dev.mem.(*interpreted).Memory, launchOf(b.l, 0)); !errors.As(err, &fault) || fault.Kind != b.kind {
			t.Errorf("%s: got %v, want a fault of kind %s", b.bug, err, b.kind)
		}
	}
}
