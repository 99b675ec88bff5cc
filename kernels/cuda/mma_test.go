package cuda

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// round rounds all elements to bf16.
func round(t kernels.Tensor) kernels.Tensor {
	t = clone(&t)
	if t.DType == graph.F32 {
		kernels.Round(graph.BF16, t.F32)
		return t
	}
	wide := make([]float32, len(t.U16))
	t.Read(wide, 0)
	out := t
	out.DType, out.F32, out.U16 = graph.F32, wide, nil
	kernels.Round(graph.BF16, out.F32)
	return out
}

// mmaCase draws a product of several rows with aligned operands, of any of the operations,
// and the options that let tiles on tensor cores compute it.
func mmaCase(d *draw, name string, math Math) (kernels.Call, Options) {
	d.aligned = true
	format := d.format()
	n, k := d.size("n", 15, 17, 31, 33, 127, 129), d.pick("k", 8, 16, 24, 32, 40, 248, 264, 520)
	rows := d.pick("t", 2, 7, 8, 9, 16, 17, 32, 33, 65, 128, 129)
	switch d.pick("wide", 0, 0, 0, 1, 2) {
	case 1:
		n, rows = fewNarrow+d.pick("more", 1, 64, 65), d.pick("wide t", 2, 8)
	case 2:
		if n, k, rows = 66*mmaWide, d.pick("wide k", 8, 40), d.pick("wide t", 9, 33, 129); rows > mmaFused {
			n, k = n/3, 8
		}
		n -= d.pick("short", 0, 1, 97)
	}
	y := d.tensor(graph.F32, rows, n)
	c := call(graph.Attrs{"eps": 0.5}, one(y), d.tensor(graph.F32, rows, k))
	if strings.HasPrefix(name, "norm_") {
		c.Args = append(c.Args, d.packed(graph.F32, k))
	}
	w := d.tensor(format, n, k)
	c.Args = append(c.Args, w)
	if strings.HasSuffix(name, "gated_matmul") {
		other := w
		d.fill(&other, func(v float64) float64 { return v })
		c.Args = append(c.Args, other)
	}
	if strings.HasSuffix(name, "_add") {
		c.Args = append(c.Args, d.tensor(graph.F32, rows, n))
	}
	return c, Options{Math: math, Split: math == F32}
}

// TestMatmulTiles: products on tensor cores are those of f32, or with math of bf16 those of
// operands rounded to bf16, for weights of each format, whatever tiles and slices of k leave over.
func TestMatmulTiles(t *testing.T) {
	for _, name := range []string{"matmul", "matmul_add", "norm_matmul", "norm_matmul_add", "gated_matmul", "norm_gated_matmul"} {
		op := findOp(t, name)
		for _, math := range []Math{F32, BF16} {
			t.Run(fmt.Sprint(name, " ", math), func(t *testing.T) {
				t.Parallel()
				check(t, "tiles", func(t *rapid.T) { checkTiles(t, op, math) })
			})
		}
	}
}

func checkTiles(t *rapid.T, op *graph.Op, math Math) {
	d, dev := newDraw(t), newDevice(t)
	c, o := mmaCase(d, op.Name, math)
	on := dev.deviceCall(op, &c, nil, d.offset)
	on.Options = o
	dev.compute(op, on, d.rng.Uint64())
	if planOnly != nil {
		return
	}
	got, most := clone(&c.Results[0]), 2e-6 // the reference has sums of f32, too
	dev.download(on.Results[0], &got)
	if math == BF16 && c.Results[0].Rows() > fewMost { // fewer are split
		for i := range c.Args {
			if gain := strings.HasPrefix(op.Name, "norm_") && i < 2; !gain && !(strings.HasSuffix(op.Name, "_add") && i == len(c.Args)-1) {
				c.Args[i] = round(c.Args[i])
			}
		}
		most = 1e-5
		if strings.HasPrefix(op.Name, "norm_") {
			most = 2e-2 // the product of x and the norm's weight is rounded
		}
	}
	plain := reference.Kernels[op.Name]
	plain.Run(&c, 0, 1)
	same(t, "result", &got, &c.Results[0], most)
}

// TestMatmulTileKernels runs each kernel of TestMatmulTiles, in one slice and in several.
func TestMatmulTileKernels(t *testing.T) {
	op := findOp(t, "matmul")
	for _, math := range []Math{F32, BF16} {
		for _, format := range []string{"f32", "f16", "bf16"} {
			var names []string
			for _, tile := range []string{"32_32", "32_128", "64_32", "64_128"} {
				names = append(names, "matmul_mma_"+format+"."+map[Math]string{F32: "mma_split_", BF16: "mma_round_"}[math]+format+"_"+tile)
			}
			for _, tile := range []string{"", "_narrow"} {
				names = append(names, "matmul_few_"+format+".few_"+format+tile)
			}
			until(t, func(t *rapid.T) { checkTiles(t, op, math) }, names...)
		}
	}
}

// TestTilePlan: which kernels a product of bf16 launches, with how many slices of k.
func TestTilePlan(t *testing.T) {
	for _, c := range []struct {
		o       Options
		t, n, k int
		format  graph.DType
		want    string
	}{
		{Options{}, 1, 10240, 2560, graph.BF16, "gemv_bf16_1_4"},
		{Options{}, 2, 10240, 2560, graph.BF16, "few_bf16 2"},
		{Options{Math: BF16}, 8, 192, 5120, graph.F16, "few_f16_narrow 8"},
		{Options{}, 9, 2560, 5120, graph.BF16, "mma_split_bf16_32_128 6"},
		{Options{Invariant: true}, 1, 10240, 2560, graph.BF16, "mma_split_bf16_32_128 3"},
		{Options{}, 16, 10240, 2560, graph.BF16, "mma_split_bf16_32_128 3"},
		{Options{}, 32, 2560, 5120, graph.BF16, "mma_split_bf16_32_128 6"},
		{Options{}, 64, 192, 5120, graph.BF16, "mma_split_bf16_32_128 27"},
		{Options{}, 129, 192, 5120, graph.BF16, "mma_split_bf16_64_32 8"},
		{Options{}, 2048, 192, 5120, graph.BF16, "mma_split_bf16_64_128 8"},
		{Options{}, 2048, 5120, 160, graph.BF16, "mma_split_bf16_64_128 1"},
		{Options{}, 128, 2560, 5120, graph.BF16, "mma_split_bf16_32_128 6"},
		{Options{}, 32, 5120, 160, graph.BF16, "mma_split_bf16_32_32 1"},
		{Options{}, 64, 5120, 160, graph.BF16, "mma_split_bf16_32_128 1"},
		{Options{}, 257, 2560, 5120, graph.BF16, "mma_split_bf16_64_128 1"},
		{Options{Math: BF16}, 64, 50280, 2560, graph.BF16, "mma_round_bf16_32_128 1"},
		{Options{}, 32, 100, 68, graph.BF16, "gemv_bf16_8_4"},
		{Options{}, 33, 100, 68, graph.BF16, "matmul_bf16"},
		{Options{Shared: 99 << 10}, 33, 10240, 64, graph.BF16, "mma_split_bf16_32_128 1"},
		{Options{Shared: 64 << 10}, 33, 10240, 64, graph.BF16, "matmul_bf16"},
		{Options{Split: true}, 33, 10240, 64, graph.F32, "mma_split_f32_32_128 1"},
		{Options{Split: true, Shared: 79 << 10}, 33, 10240, 64, graph.F32, "matmul_f32"},
		{Options{Split: true, Math: BF16}, 33, 100, 64, graph.F32, "mma_round_f32_32_32 1"},
		{Options{}, 33, 100, 64, graph.F32, "matmul_f32"},
	} {
		part := Part{Kernels["matmul"], &Call{Options: c.o}}
		for _, a := range []kernels.Tensor{shaped(graph.F32, c.t, c.k), shaped(c.format, c.n, c.k)} {
			part.Args = append(part.Args, Tensor{Tensor: a, Ptr: 256})
		}
		part.Results = []Tensor{{Tensor: shaped(graph.F32, c.t, c.n), Ptr: 256}}
		splits := strings.HasPrefix(c.want, "mma_split") || strings.HasPrefix(c.want, "few") && c.o.Math == F32
		list, err := part.Launches(part.Call)
		if err != nil || len(list) != 1 || c.o.Shared > 0 && int(list[0].Shared) > c.o.Shared {
			t.Fatalf("%+v: %v, %v", c, list, err)
		}
		got := list[0].Function
		if !strings.HasPrefix(got, "gemv") && !strings.HasPrefix(got, "matmul") {
			got = fmt.Sprint(got, " ", list[0].Grid[2])
		}
		if got != c.want || part.Splits() != splits {
			t.Errorf("%+v: %s, splits %v", c, got, part.Splits())
		}
	}
	for capability, pays := range map[[2]int]bool{{8, 0}: true, {8, 6}: false, {8, 9}: false, {9, 0}: true, {10, 0}: true, {12, 0}: false} {
		if SplitPays(capability[0], capability[1]) != pays {
			t.Errorf("%v: %v", capability, !pays)
		}
	}
}

// TestSlices: up to mmaFused rows, a row has the same bits whichever come with it, and tiles of any
// size give the same bits.
func TestSlices(t *testing.T) {
	op := findOp(t, "norm_matmul")
	const n, k = 40, 520
	d, dev := &draw{rng: newRand(1)}, newDevice(t)
	c := call(graph.Attrs{"eps": 0.5}, one(d.packed(graph.F32, mmaFused, n)), d.packed(graph.F32, mmaFused, k), d.packed(graph.F32, k), d.packed(graph.BF16, n, k))
	on := dev.deviceCall(op, &c, nil, func() int { return 0 })
	launches := dev.compute(op, on, 1)
	if l := launches[0]; l.Function != "mma_split_bf16_32_32" || l.Grid[2] != 3 {
		t.Fatalf("%s in %d slices", l.Function, l.Grid[2])
	}
	want := clone(&c.Results[0])
	dev.download(on.Results[0], &want)
	for rows, tile := range map[int]string{9: "32_32", 65: "32_128", 33: "32_32"} {
		few := *on
		few.Args, few.Results = slices.Clone(on.Args), slices.Clone(on.Results)
		few.Args[0].Dims[0], few.Results[0].Dims[0] = rows, rows
		few.Results[0].Ptr = dev.alloc(4 * rows * n)
		few.Scratch, few.Arrivals = dev.alloc(1<<20), dev.arrivals()
		list, err := Kernels[op.Name].Launches(&few)
		if err != nil {
			t.Fatal(err)
		}
		l := list[0]
		if l.Function = "mma_split_bf16_" + tile; tile == "32_128" {
			l.Grid[1], l.Shared = 1, uint32(few.mmaSharedOf(mmaLeast, mmaWide, graph.BF16))
		}
		dev.run([]Launch{l}, 2)
		got := shaped(graph.F32, rows, n)
		got.F32 = make([]float32, rows*n)
		dev.download(few.Results[0], &got)
		part := rowsOf(want, 0, rows)
		same(t, tile, &got, &part, 0)
	}
}

// put sets an element.
func put(t *kernels.Tensor, i int, v float32) {
	if t.DType == graph.F32 && t.F32 == nil {
		t.F32 = make([]float32, t.Stride*t.Rows())
	} else if t.DType != graph.F32 && t.U16 == nil {
		t.U16 = make([]uint16, t.Stride*t.Rows())
	}
	t.Write(i, []float32{v})
}

// TestSplitRange: numbers of any size, and those that are none, come through a product; by
// f16 and f32 infinity as NaN.
func TestSplitRange(t *testing.T) {
	for _, format := range []graph.DType{graph.BF16, graph.F16, graph.F32} {
		splitRange(t, format)
	}
}

func splitRange(t *testing.T, format graph.DType) {
	low := math.Float32frombits(0x7f800001) // a NaN whose bits are in the last piece
	numbers := []float32{0, 1, -1.0000001, math.MaxFloat32, -math.MaxFloat32, 1e-30, 16777215, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), low, -low}
	const k = 8
	x, w, y := shaped(graph.F32, 40, k), shaped(format, 1, k), shaped(graph.F32, 40, 1)
	x.F32, y.F32 = make([]float32, 40*k), make([]float32, 40)
	put(&w, 3, 1)
	for i := range 40 {
		x.F32[i*k+3] = numbers[i%len(numbers)]
	}
	dev, op, c := newDevice(t), findOp(t, "matmul"), call(nil, one(y), x, w)
	on := dev.deviceCall(op, &c, nil, func() int { return 0 })
	on.Options.Split = true
	dev.compute(op, on, 0)
	dev.download(on.Results[0], &y)
	for i, got := range y.F32 {
		want := numbers[i%len(numbers)]
		if format != graph.BF16 && want-want != 0 {
			want = low // the other piece of the weight may be 0
		}
		if got != want && !(got != got && want != want) {
			t.Errorf("%s: %g comes through as %g", format, want, got)
		}
	}
}

// TestSplitInfiniteWeight: what an infinite weight makes is never finite: NaN where a piece of x is
// 0.
func TestSplitInfiniteWeight(t *testing.T) {
	const k = 8
	for _, format := range []graph.DType{graph.BF16, graph.F16, graph.F32} {
		x, w, y := shaped(graph.F32, 40, k), shaped(format, 1, k), shaped(graph.F32, 40, 1)
		x.F32, y.F32 = make([]float32, 40*k), make([]float32, 40)
		put(&w, 5, float32(math.Inf(1)))
		for i := range 40 {
			x.F32[i*k+5] = float32(i+1) / 3
		}
		dev, op, c := newDevice(t), findOp(t, "matmul"), call(nil, one(y), x, w)
		on := dev.deviceCall(op, &c, nil, func() int { return 0 })
		on.Options.Split = true
		if l := dev.compute(op, on, 0); l[0].Module != "matmul_mma_"+format.String() {
			t.Errorf("%s is launched", l[0].Module)
		}
		dev.download(on.Results[0], &y)
		for i, got := range y.F32 {
			if got-got == 0 {
				t.Errorf("%s: %g times infinity is %g", format, x.F32[i*k+5], got)
			}
		}
	}
}

// TestExpertsBF16: the same of experts, whose hidden units are rounded, too.
func TestExpertsBF16(t *testing.T) {
	for _, format := range []graph.DType{graph.F32, graph.F16, graph.BF16} { // each has kernels of its own
		test := func(t *rapid.T) { checkExpertsBF16(t, format) }
		check(t, "experts", test)
		name := strings.ToLower(format.String())
		until(t, test, "experts_mma_"+name+".expert_mma_few_"+name, "experts_mma_"+name+".expert_mma_tile_"+name)
	}
}

func checkExpertsBF16(t *rapid.T, format graph.DType) {
	d, dev := newDraw(t), newDevice(t)
	d.aligned = true
	op, e, i, k, n := findOp(t, "experts"), d.pick("e", 1, 2, 5), d.pick("i", 8, 40, 64), d.pick("k", 8, 40), d.size("n", 65)
	c := expertsOf(d, e, i, k, n, format)()
	rows := d.pick("t", 9, 31, 33, 70, 129)
	c.Args[0], c.Args[1] = d.tensor(graph.F32, rows, c.Args[0].Cols), d.tensor(graph.F32, rows, c.Args[1].Cols)
	c.Results[0] = d.tensor(graph.F32, rows, c.Results[0].Cols)
	on := dev.deviceCall(op, &c, nil, d.offset)
	on.Options.Math = BF16
	dev.compute(op, on, d.rng.Uint64())
	got := clone(&c.Results[0])
	dev.download(on.Results[0], &got)
	most := roundedExperts(op.Name, &c)
	same(t, "result", &got, &c.Results[0], 1e-5+0x1p-6*most)
}

// roundedExperts computes a call of experts, of any of the operations, in float64 with operands
// rounded to bf16, and hidden units, as the products with down take them. It returns the largest of
// their terms as a share of the largest result, or of 1: a unit near the middle between two bf16,
// which are up to 2^-7 of it apart, may be rounded either way, and two of them are let pass.
func roundedExperts(name string, c *kernels.Call) (most float64) {
	plain, adds := strings.CutPrefix(name, "add_")
	x, p, y := round(c.Args[0]), c.Args[1], &c.Results[0]
	var weights []kernels.Tensor // gate and up, or up, and down
	for _, w := range c.Args[2:] {
		weights = append(weights, round(w))
	}
	var base *kernels.Tensor
	if adds {
		base, weights = &c.Args[len(c.Args)-1], weights[:len(weights)-1]
	}
	down := weights[len(weights)-1]
	rows, n, i := y.Rows(), down.Dims[1], down.Dims[2]
	identity := shaped(graph.F32, 1, i, i)
	identity.F32 = make([]float32, i*i)
	for j := range i {
		identity.F32[j*(i+1)] = 1
	}
	sums, scale := make([]float64, rows*n), 1.0
	for e := range p.Cols {
		share := p
		share.F32, share.Dims[1], share.Cols = p.F32[e:], 1, 1
		hidden := shaped(graph.F32, rows, i)
		hidden.F32 = make([]float32, rows*i)
		one := call(c.Attrs, []kernels.Tensor{hidden}, x, share)
		for _, w := range weights[:len(weights)-1] {
			part := shaped(graph.F32, 1, w.Dims[1], w.Dims[2])
			part.F32 = w.F32[e*w.Stride:][:w.Cols]
			one.Args = append(one.Args, part)
		}
		one.Args = append(one.Args, identity)
		k := reference.Kernels[plain]
		k.Run(&one, 0, 1)
		for at, h := range hidden.F32 {
			for j := range n {
				term := bf(float64(h)) * float64(down.F32[e*down.Stride+j*i+at%i])
				sums[at/i*n+j] += term
				most = max(most, math.Abs(term))
			}
		}
	}
	for at, sum := range sums {
		if base != nil {
			var v [1]float32
			base.Read(v[:], at/n*base.Stride+at%n)
			sum += float64(v[0])
		}
		y.Write(at/n*y.Stride+at%n, []float32{float32(sum)})
		scale = max(scale, math.Abs(sum))
	}
	return most / scale
}

// TestScanBF16 holds the scan on tensor cores against the same chunks in float64,
// with bf16 where the kernel has it, and against the plain scan. What lies close
// to the middle between two bf16 may be rounded either way, which is 2^-8 of a term,
// and the largest term may be most of the largest result: two of them are let pass.
func TestScanBF16(t *testing.T) {
	op := findOp(t, "ssd_scan")
	test := func(t *rapid.T) {
		d, dev := newDraw(t), newDevice(t)
		d.aligned = true
		d.decode, d.lens = false, []int{1, 5, 63, 64, 65, 130}
		next := ssdOf(d, d.pick("p", 4, 16, 36, 64), d.pick("n", 4, 16, 20, 64, 132, 132))
		states := map[int]Tensor{}
		var state kernels.Tensor
		for batch := range 2 {
			c := next()
			on := dev.deviceCall(op, &c, states, d.offset)
			on.Options.Math = BF16
			if batch == 0 {
				state = clone(&c.Args[5])
			}
			launches := dev.compute(op, on, d.rng.Uint64())
			if len(launches) == 0 || !strings.HasPrefix(launches[0].Module, "ssd_mma") {
				return // there are no heads, or sequences have one token
			}
			plain := c
			plain.Args = append([]kernels.Tensor(nil), c.Args...)
			plain.Args[5] = clone(&state)
			plain.Results = []kernels.Tensor{clone(&c.Results[0]), plain.Args[5]}
			k := reference.Kernels["ssd_scan"]
			k.Run(&plain, 0, 1)
			c.Args[5], c.Results[1] = state, state
			chunkedScan(&c)
			for i := range c.Results {
				got := clone(&c.Results[i])
				dev.download(on.Results[i], &got)
				same(t, "result", &got, &c.Results[i], 8e-3)
				same(t, "result", &got, &plain.Results[i], 2e-2)
			}
		}
	}
	check(t, op.Name, test)
	until(t, test, "ssd_mma_f32.ssd_mma_128", "ssd_mma_f32.ssd_mma_256", "ssd_mma_bf16.ssd_mma_128", "ssd_mma_bf16.ssd_mma_256")
}

// bf is v rounded to bf16.
func bf(v float64) float64 {
	x := []float32{float32(v)}
	kernels.Round(graph.BF16, x)
	return float64(x[0])
}

// scanOnCores computes ssd_scan, alone or in what it is fused with, as tensor cores do, with bf16
// where these have it, and says how far from that they may be.
func scanOnCores(op *graph.Op, c *kernels.Call) (share float64) {
	on := call(c.Attrs, []kernels.Tensor{kernels.Between(&c.Results[0]), c.Results[1]}, c.Args...)
	for i, t := range on.Args {
		if t.DType == graph.BF16 && i != op.States[0].Operand {
			on.Args[i] = round(t)
		}
	}
	y := &on.Results[0]
	y.F32 = make([]float32, y.Rows()*y.Cols)
	run := func(op *graph.Op, on *kernels.Call) []kernels.Tensor {
		k := reference.Kernels[op.Name]
		if op.Name == "ssd_scan" {
			chunkedScan(on)
		} else {
			k.Run(on, 0, 1)
		}
		return nil
	}
	if op.Apart() == nil {
		run(op, &on)
	} else {
		apart(op, &on, run)
	}
	for t := range y.Rows() {
		c.Results[0].Write(t*c.Results[0].Stride, y.Row(t))
	}
	if share = 8e-3; c.Results[0].DType == graph.BF16 {
		share += 0x1p-8
	}
	return share
}

// chunkedScan is ssd_scan in the matrix form, 64 tokens at a time.
func chunkedScan(c *kernels.Call) {
	dt, b, state, seg := &c.Args[1], &c.Args[3], &c.Args[5], &c.Args[6]
	groups := kernels.GroupsOf(dt, b, state.Dims[3])
	for i := range seg.Rows() {
		start, tokens, slot := seg.Segment(i)
		for head := range dt.Cols {
			h := make([]float32, state.Cols/dt.Cols)
			from := slot*state.Stride + head*len(h)
			state.Read(h, from)
			for at := 0; at < tokens; at += 64 {
				chunkOf(c, h, start+at, min(64, tokens-at), head, groups.Of(head))
			}
			state.Write(from, h)
		}
	}
}

func chunkOf(c *kernels.Call, h []float32, token, count, head, group int) {
	x, dt, a, b, cc, state, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], &c.Results[0]
	size, n := state.Dims[2], state.Dims[3]
	sum := make([]float64, count) // of dt A
	for t := range sum {
		// A state that decayed is gone; a larger number would take the digits of the others.
		sum[t] = max(float64(dt.Row(token + t)[head])*float64(a.F32[head]), -256*math.Ln2)
		if t > 0 {
			sum[t] += sum[t-1]
		}
	}
	scores := make([]float64, count*count)
	for t := range count {
		for s := range t + 1 {
			var dot float64
			for k := range n {
				dot += bf(float64(cc.Row(token + t)[group*n+k])) * bf(float64(b.Row(token + s)[group*n+k]))
			}
			scores[t*count+s] = bf(dot * math.Exp(sum[t]-sum[s]) * float64(dt.Row(token + s)[head]))
		}
	}
	for p := range size {
		row, ch := h[p*n:(p+1)*n], head*size+p
		for t := range count {
			var v float64
			for k := range n {
				v += bf(float64(cc.Row(token + t)[group*n+k])) * bf(float64(row[k]))
			}
			v *= math.Exp(sum[t])
			for s := range t + 1 {
				v += scores[t*count+s] * bf(float64(x.Row(token + s)[ch]))
			}
			y.Row(token + t)[ch] = float32(v)
		}
		for k := range n {
			v := float64(row[k]) * math.Exp(sum[count-1])
			for s := range count {
				tail := float64(dt.Row(token + s)[head]) * math.Exp(sum[count-1]-sum[s])
				v += bf(float64(x.Row(token + s)[ch])*tail) * bf(float64(b.Row(token + s)[group*n+k]))
			}
			row[k] = float32(v)
		}
	}
}
