package cuda

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/x448/float16"
	"pgregory.net/rapid"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
)

// blockFormats are the formats of blocks, in order.
func blockFormats() []graph.DType { return slices.Sorted(maps.Keys(planes)) }

// TestPlanes: every format of blocks has planes, which together are the bytes of a block, and the
// more bytes of each are loaded at a time, the earlier they lie.
func TestPlanes(t *testing.T) {
	for d := graph.Q8; d.Quantized(); d++ {
		seen := make([]int, d.Format().Bytes)
		before := 0
		for _, p := range planes[d] {
			for i := range p.bytes {
				seen[p.at+i]++
			}
			if align := min(p.bytes&-p.bytes, 16); before%align != 0 {
				t.Errorf("%s: a plane of %d bytes lies behind %d", d, p.bytes, before)
			}
			before += p.bytes
		}
		if i := slices.IndexFunc(seen, func(n int) bool { return n != 1 }); i >= 0 {
			t.Errorf("%s: byte %d of a block is in %d planes", d, i, seen[i])
		}
		if d.Format().Bytes < 16 {
			t.Errorf("%s: kernels count blocks of more than 15 bytes", d)
		}
	}
}

// blocks is a weight in blocks, of which a rank has a part: typ is of a whole.
func (d *draw) blocks(typ graph.Type, ranks, rank int) kernels.Tensor {
	w := kernels.Describe(typ, ranks, rank)
	if d.blank {
		return w
	}
	shape, size := []int{}, 1
	for _, dim := range typ.Dims {
		shape, size = append(shape, dim.Len()), size*dim.Len()
	}
	values := make([]float32, size)
	for i := range values {
		values[i] = float32(d.rng.NormFloat64() / 4)
	}
	whole, err := graph.ArrayOf(values, shape...).Convert(typ.DType)
	if err != nil {
		d.Fatal(err)
	}
	whole.From = "w"
	a, err := graph.Stored("w").Load("w", typ, ranks, rank, func(string) (graph.Array, error) { return whole, nil })
	if err != nil {
		d.Fatal(err)
	}
	w.U8 = a.Data
	return w
}

// wholeBlocks is a weight of which a rank has all.
func (d *draw) wholeBlocks(format graph.DType, dims ...int) kernels.Tensor {
	typ := graph.Type{DType: format}
	for _, n := range dims {
		typ.Dims = append(typ.Dims, graph.Size(n))
	}
	return d.blocks(typ, 1, 0)
}

// cutBlocks is a weight whose last axis is shared by ranks, in one field or two.
func (d *draw) cutBlocks(format graph.DType, dims ...int) kernels.Tensor {
	typ, last := graph.Type{DType: format}, len(dims)-1
	for _, n := range dims {
		typ.Dims = append(typ.Dims, graph.Size(n))
	}
	ranks := d.pick("ranks", 2, 3, 8)
	typ.Layout = graph.SplitOn(last, 1)
	if cut := d.rng.IntN(dims[last] + 1); d.pick("fields", 1, 2) == 2 {
		typ.Dims[last] = graph.Pack(graph.Field{Name: "a", Size: cut, Unit: 1}, graph.Field{Name: "b", Size: dims[last] - cut, Unit: 1})
		typ.Layout = graph.SplitOn(last, 2)
	}
	return d.blocks(typ, ranks, d.rng.IntN(ranks))
}

// uploadBlocks copies a weight in blocks, as GPUs have it.
func (d *device) uploadBlocks(t *kernels.Tensor) Tensor {
	d.t.Helper()
	size, line := t.Blocks.Bytes(1), LineBytes(t.Blocks)
	var data []byte
	for at := 0; at+size <= len(t.U8) && size > 0; at += size {
		data = append(data, make([]byte, line)...)
		PutLine(data[len(data)-line:], t.U8[at:at+size], t.Blocks)
	}
	out := Tensor{Tensor: *t, Ptr: d.alloc(len(data))}
	if err := d.mem.Write(out.Ptr, data); err != nil {
		d.t.Fatal(err)
	}
	out.U8 = nil
	return out
}

// TestWidenedBits: what kernels make of blocks has the bits of graph.DType.Decode, of any codes and
// scales: embedding, whose rows are widened, and products of many rows with one number of x.
func TestWidenedBits(t *testing.T) {
	op := findOp(t, "embedding")
	for _, format := range blockFormats() {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(2) {
				fixed(t, seed, func(t *rapid.T) {
					d, dev := newDraw(t), newDevice(t)
					n, k := 5, 2*format.Format().Elems+8
					table := d.wholeBlocks(format, n, k)
					d.anyBlocks(format, table.U8)
					ids := d.ints(7, n)
					c := call(nil, one(d.tensor(graph.F32, 7, k)), ids, table)
					on := dev.deviceCall(op, &c, nil, func() int { return 0 })
					dev.compute(op, on, seed)
					got, want := clone(&c.Results[0]), make([]float32, k)
					dev.download(on.Results[0], &got)
					for i := range 7 {
						table.Read(want, int(ids.I32[i])*k)
						for j, v := range got.Row(i) {
							if v != want[j] && (v == v || want[j] == want[j]) {
								t.Fatalf("%s: row %d, element %d is %g, want %g", format, i, j, v, want[j])
							}
						}
					}
				})
			}
		})
	}
}

// anyBlocks fills blocks with any codes, and scales of any size, but for infinite ones.
func (d *draw) anyBlocks(format graph.DType, data []byte) {
	f := format.Format()
	for i := range data {
		data[i] = byte(d.rng.Uint32())
	}
	for at := 0; at < len(data); at += f.Bytes {
		for _, place := range f.Scales {
			scale := float16.Fromfloat32(float32(d.rng.NormFloat64() / 100))
			if d.rng.IntN(8) == 0 {
				scale = float16.Frombits(uint16(d.rng.IntN(0x400))) // 0 and the denormal ones
			}
			binary.LittleEndian.PutUint16(data[at+place:], scale.Bits())
		}
		if format >= graph.FP8_128 && format != graph.MXFP4 {
			binary.LittleEndian.PutUint32(data[at:], math.Float32bits(float32(d.rng.NormFloat64())*0x1p-9))
		}
	}
}

// blockCall is a call with weights in blocks. Sizes are around those of kernels: rows of a pass,
// and of the last that are few; columns of a thread block; blocks and superblocks.
type blockCall struct {
	op      string
	t, n, k int
	o       Options
	cut     bool
}

// blockCalls are those that between them launch every kernel that reads blocks.
func blockCalls() []blockCall {
	split, plain, rounded := Options{Split: true}, Options{}, Options{Math: BF16}
	return []blockCall{
		{"matmul", 1, 9, 40, plain, false}, {"matmul", 1, gemvCols*gemvBlocks + 1, 8, plain, false}, {"matmul", 3, 7, 264, plain, false}, {"matmul", 8, 5, 520, plain, false},
		{"matmul", 1, 1, 1, plain, false}, {"matmul", 17, 4, 31, plain, false}, {"matmul", 33, 130, 40, plain, false}, {"matmul", 65, 9, 264, split, false}, {"matmul", 34, 131, 296, rounded, false},
		{"matmul", 2, 5, 600, plain, true}, {"matmul", 9, 3, 97, plain, true}, {"matmul", 33, 5, 300, rounded, true}, {"matmul_add", 5, 6, 40, plain, false}, {"matmul_add", 40, 130, 64, split, true},
		{"norm_matmul", 1, 5, 296, plain, false}, {"norm_matmul", 1, gemvCols * gemvBlocks, 16, plain, false}, {"norm_matmul", 4, 9, 40, plain, false}, {"norm_matmul", 9, 5, 264, plain, false}, {"norm_matmul", 3, 5, 37, plain, false}, {"norm_matmul", 35, 9, 40, rounded, false},
		{"norm_matmul_add", 2, 5, 40, plain, false},
		{"gated_matmul", 1, 5, 264, plain, false}, {"gated_matmul", 3, 5, 40, plain, false}, {"norm_gated_matmul", 1, 3, 40, plain, false}, {"norm_gated_matmul", 2, 5, 264, plain, false}, {"norm_gated_matmul", 7, 4, 40, plain, false}, {"norm_gated_matmul", 33, 4, 40, split, false},
		{"head_down", 3, 9, 7, plain, false}, {"head_up", 2, 5, 40, plain, false}, {"embedding", 3, 9, 1030, plain, false},
		{"experts", 1, 9, 40, plain, false}, {"experts", 5, 5, 264, plain, false}, {"add_experts", 9, 5, 40, plain, true}, {"ungated_experts", 3, 5, 31, plain, true}, {"experts", 33, 9, 40, plain, false}, {"experts", 34, 5, 21, rounded, true},
	}
}

// TestBlocks: products, experts and rows of weights in every format of blocks, against float64 and
// row by row, of what ranks have that begins and ends inside blocks. In CI a format has each
// kernel, and a quarter of the other calls; by default some has each kernel, and all a sixteenth
// of the calls.
func TestBlocks(t *testing.T) {
	every := 4
	if goldens.Few(t) {
		every = 16
	}
	for f, format := range blockFormats() {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			for i, b := range blockCalls() {
				for seed := range uint64(2) {
					draws := uint64(2*i) + seed
					fresh := goldens.All() || (f+i)%every == 0 && (f+i)/every%2 == int(seed)
					if !fresh {
						fixed(t, draws, func(t *rapid.T) {
							d, dev := newDraw(t), newPlanner(t)
							d.blank = true
							_, on := b.on(d, dev, format)
							fresh = runsNew(dev.plan(findOp(t, b.op), on))
						})
					}
					if fresh {
						fixed(t, draws, func(t *rapid.T) { checkBlocks(newDraw(t), newDevice(t), format, &b, seed) })
					}
				}
			}
		})
	}
}

// on draws the call, and puts it on the device.
func (b *blockCall) on(d *draw, dev *device, format graph.DType) (kernels.Call, *Call) {
	d.aligned = b.k%8 == 0
	c := b.call(d, format)
	on := dev.deviceCall(findOp(d.T, b.op), &c, map[int]Tensor{}, func() int { return 0 })
	on.Options = b.o
	return c, on
}

func checkBlocks(d *draw, dev *device, format graph.DType, b *blockCall, seed uint64) {
	c, on := b.on(d, dev, format)
	dev.compute(findOp(d.T, b.op), on, seed)
	got := clone(&c.Results[0])
	dev.download(on.Results[0], &got)
	reference.Kernels[b.op].Run(&c, 0, 1)
	share := 1e-5
	if b.o.Math == BF16 {
		share = 0.02
	}
	same(d.T, fmt.Sprintf("%s of %d rows, %d columns, %d deep", b.op, b.t, b.n, b.k), &got, &c.Results[0], share)
}

// call draws tensors.
func (b *blockCall) call(d *draw, format graph.DType) kernels.Call {
	weight := d.wholeBlocks
	if b.cut {
		weight = d.cutBlocks
	}
	x := func(k int) kernels.Tensor { return d.tensor(graph.F32, b.t, k) }
	y := one(x(b.n))
	eps := graph.Attrs{"eps": 0.5}
	switch b.op {
	case "embedding":
		return call(nil, one(x(b.k)), d.ints(b.t, b.n), weight(format, b.n, b.k))
	case "head_down", "head_up":
		const heads = 3
		w := part(weight(format, heads*b.n, b.k), 0, heads*b.n, b.n, 0)
		if b.op == "head_up" {
			w.Unit = 1
		}
		return call(nil, one(part(x(heads*b.n), 1, heads*b.n, b.n, 0)), part(x(heads*b.k), 1, heads*b.k, b.k, 0), w)
	case "experts", "add_experts", "ungated_experts":
		return b.experts(d, format, weight)
	case "gated_matmul":
		return call(nil, y, x(b.k), weight(format, b.n, b.k), weight(format, b.n, b.k))
	case "norm_gated_matmul":
		return call(eps, y, x(b.k), d.packed(graph.F32, b.k), weight(format, b.n, b.k), weight(format, b.n, b.k))
	case "norm_matmul":
		return call(eps, y, x(b.k), d.packed(graph.F32, b.k), weight(format, b.n, b.k))
	case "norm_matmul_add":
		return call(eps, y, x(b.k), d.packed(graph.F32, b.k), weight(format, b.n, b.k), x(b.n))
	}
	w := weight(format, b.n, b.k)
	args := []kernels.Tensor{x(w.Cols), w}
	if b.op == "matmul_add" {
		args = append(args, x(b.n))
	}
	return call(nil, y, args...)
}

// experts have n hidden units, of which a rank may have some.
func (b *blockCall) experts(d *draw, format graph.DType, weight func(graph.DType, ...int) kernels.Tensor) kernels.Call {
	const count, cols = 3, 6
	down := weight(format, count, cols, 3*b.n)
	units := down.Blocks.Cols
	p := d.tensor(graph.F32, b.t, count)
	d.fill(&p, func(v float64) float64 { return v * float64(d.rng.IntN(2)) })
	args := []kernels.Tensor{d.tensor(graph.F32, b.t, b.k), p, d.wholeBlocks(format, count, units, b.k)}
	if b.op != "ungated_experts" {
		args = append(args, d.wholeBlocks(format, count, units, b.k))
	}
	args = append(args, down)
	if b.op == "add_experts" {
		args = append(args, d.tensor(graph.F32, b.t, cols))
	}
	return call(graph.Attrs{"act": "silu", "top": count}, one(d.tensor(graph.F32, b.t, cols)), args...)
}

// TestRowsByBlocks: a row's product has the same bits in all batches of up to fewRows rows, and in
// all larger ones.
func TestRowsByBlocks(t *testing.T) {
	goldens.CI(t)
	op, few := findOp(t, "norm_matmul"), goldens.Few(t)
	for i, format := range []graph.DType{graph.Q8, graph.Q4_K, graph.Q6_K, graph.FP8_128} {
		if few && i%3 != 0 {
			continue
		}
		seed := uint64(i)
		fixed(t, seed, func(t *rapid.T) {
			d, dev := newDraw(t), newDevice(t)
			d.aligned = true
			const n, k = 5, 264
			w, norm, x := d.wholeBlocks(format, n, k), d.packed(graph.F32, k), d.packed(graph.F32, 70, k+int(seed%2))
			x.Cols, x.Dims[1], x.Full = k, k, k // rows of half of the formats are not aligned
			first := map[bool][]float32{}
			for _, rows := range []int{1, 2, 5, 17, 32, 33, 65, 70} {
				some := x
				some.Dims[0] = rows
				c := call(graph.Attrs{"eps": 0.5}, one(d.packed(graph.F32, rows, n)), some, norm, w)
				on := dev.deviceCall(op, &c, nil, func() int { return 0 })
				on.Options.Split = true
				dev.compute(op, on, uint64(rows))
				dev.download(on.Results[0], &c.Results[0])
				few, row := rows <= fewRows, c.Results[0].Row(0)
				if first[few] == nil {
					first[few] = row
				}
				if !slices.Equal(row, first[few]) {
					t.Errorf("%s: of %d rows the first is %v, of fewer %v", format, rows, row, first[few])
				}
			}
		})
	}
}
