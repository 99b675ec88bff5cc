package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// interpretedTiles are tiles of an instruction set, by the interpreter.
func interpretedTiles[E weight](m *machine, format, isa string, rows, tokens int) (list []tile[E]) {
	for n := range tokens {
		name := fmt.Sprintf("gemm%sx%dx%d%s", format, rows, n+1, isa)
		list = append(list, func(w *E, ws int, x *float32, xs int, y *float32, ys, k, groups int, ahead uintptr, apart, step int, next uintptr, near int) {
			weights := unsafe.Slice(w, (groups*rows-1)*ws+k)
			m.call(name, any(weights), ws, unsafe.Slice(x, n*xs+k), xs, unsafe.Slice(y, n*ys+groups*rows), ys, k, groups, ahead, apart, step, next, near)
		})
	}
	return list
}

// interpretedStream is a stream of an instruction set, by the interpreter.
func interpretedStream[E weight](m *machine, name string) stream[E] {
	return func(w *E, ws, apart int, x *float32, y *float32, ys, k, depth, groups int) {
		m.call(name, any(unsafe.Slice(w, (groupRows-1)*apart+(groups-1)*ws+k)), ws, apart, unsafe.Slice(x, k), unsafe.Slice(y, (groupRows-1)*ys+groups), ys, k, depth, groups)
	}
}

// interpretedPanels are panels of an instruction set, by the interpreter; dots: those of pairs.
func interpretedPanels(m *machine, like panels, isa, multiply string) *panels {
	each, widths := like.lanes/panelParts, like.lanes
	for v := range like.multiply {
		name, width := fmt.Sprintf("panel%d%s", v+1, multiply), (v+1)*widths
		like.multiply[v] = func(w, x, sums *float32, steps, groups, adds, apart int, ahead uintptr, lines, step int) {
			m.call(name, unsafe.Slice(w, steps*each*width), unsafe.Slice(x, groups*steps*each*tokenGroup),
				unsafe.Slice(sums, adds*apart+groups*tokenGroup*width), steps, groups, adds, apart, ahead, lines, step)
		}
	}
	packed := func(to *float32, steps, apart, width int) []float32 {
		return unsafe.Slice(to, (panelParts-1)*apart+(steps*each-1)*width+widths)
	}
	like.packRows = func(to, from *float32, ws, steps, apart, width int) {
		m.call("packRows"+isa, packed(to, steps, apart, width), unsafe.Slice(from, (widths-1)*ws+steps*widths), ws, steps, apart, width)
	}
	if like.packBF16 != nil {
		like.packBF16 = func(to *float32, from *uint16, ws, steps, apart, width int) {
			m.call("packRowsBF16"+isa, packed(to, steps, apart, width), unsafe.Slice(from, (widths-1)*ws+steps*widths), ws, steps, apart, width)
		}
	}
	like.packTokens = func(to, from *float32, xs, steps, apart int) {
		m.call("packTokens"+isa, unsafe.Slice(to, (panelParts-1)*apart+steps*each*tokenGroup), unsafe.Slice(from, (tokenGroup-1)*xs+steps*widths), xs, steps, apart)
	}
	like.drain = func(y *float32, ys int, sums *float32, width, tokens, cols, more int) {
		m.call("drain"+isa, unsafe.Slice(y, (tokens-1)*ys+cols), ys, unsafe.Slice(sums, (tokens-1)*width+cols), width, tokens, cols, more)
	}
	return &like
}

// interpretedProducts are the products of an instruction set, by the interpreter.
func interpretedProducts(t *testing.T, like products, isa string) *products {
	gemm, panels := newMachine(t, "gemm_amd64.s"), newMachine(t, "panels_amd64.s")
	tokens := len(like.f32)
	like.row, like.f32 = interpretedTiles[float32](gemm, "F32", isa, 1, tokens), interpretedTiles[float32](gemm, "F32", isa, 4, tokens)
	like.bf16.tiles, like.f16.tiles = interpretedTiles[uint16](gemm, "BF16", isa, 4, tokens), interpretedTiles[uint16](gemm, "F16", isa, 4, tokens)
	like.one, like.bf16.one, like.f16.one = interpretedStream[float32](gemm, "streamF32"+isa), interpretedStream[uint16](gemm, "streamBF16"+isa), interpretedStream[uint16](gemm, "streamF16"+isa)
	like.bf16.widen, like.f16.widen = widenBF16AVX2, widenF16AVX2 // of as many bits
	like.panels = interpretedPanels(panels, *like.panels, isa, isa)
	like.panels.tokens = 5 // as those of more are slow here
	return &like
}

// needsAVX2 leaves out what compares with the bits of AVX2 on machines without it; CI has it.
func needsAVX2(t *testing.T) {
	t.Helper()
	if !slices.Contains(ISAs(), "avx2") {
		t.Skip("this machine has no AVX2")
	}
}

// TestInterpreter: products by the interpreter have the bits that the processor gives them in AVX2,
// and in AVX-512 are near to float64, with the same bits in tiles and in panels.
func TestInterpreter(t *testing.T) {
	needsAVX2(t)
	native := productsAVX2
	native.panels = new(*native.panels)
	native.panels.tokens = 5
	r := rand.New(rand.NewPCG(43, 0))
	gauss := func() float32 { return float32(r.NormFloat64()) }
	for isa, p := range map[string]*products{"avx2": interpretedProducts(t, productsAVX2, "AVX2"), "avx512": interpretedProducts(t, productsAVX512, "AVX512")} {
		kernel := p.kernels(&shortAVX2)["matmul"]
		for i := range 9 {
			tokens, n, k := []int{1 + i%4, 6 + r.IntN(4), 1 + i%4}[i%3], 1+r.IntN(50)+i%3%2*16, kernels.ShortDepth+16*r.IntN(2)+i%2*r.IntN(16)
			x, w := table(graph.F32, tokens, k, k+r.IntN(3), 1), table(weightTypes[i/3], n, k, k+r.IntN(2), 2)
			y, same := table(graph.F32, tokens, n, n+r.IntN(3), 3), table(graph.F32, tokens, n, n, 0)
			fill(&x, gauss)
			fill(&w, gauss)
			fill(&y, func() float32 { return 1e30 })
			runAll(kernel, &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}})
			what := fmt.Sprintf("%s, %d tokens, %d columns of %d in %s", isa, tokens, n, k, w.DType)
			checkMatmul(t, what, &x, &w, &y, p.lanes)
			other := native.kernels(&shortAVX2)["matmul"]
			first, last := 0, tokens
			if isa == "avx512" { // one token takes tiles
				other, first, last = kernel, tokens-1, tokens
			}
			runAll(other, &kernels.Call{Args: []kernels.Tensor{part(x, first, last), w}, Results: []kernels.Tensor{part(same, first, last)}})
			for row := first; row < last; row++ {
				if !slices.Equal(y.Row(row), same.Row(row)) {
					t.Fatalf("%s: row %d has other bits than it must", what, row)
				}
			}
		}
	}
}

// TestScanInterpreted: selective scans of AVX-512 in the interpreter have the bits of AVX2, since a
// channel's sums are in the order of its states in both.
func TestScanInterpreted(t *testing.T) {
	needsAVX2(t)
	m := newMachine(t, "scan_amd64.s")
	written := &scanner{
		func(y, u, dt, a, h, b, c *float32, tokens, channels, n, ys, us, dts, hs, bs, cs int) {
			rows := func(x *float32, apart, size int) []float32 { return unsafe.Slice(x, (tokens-1)*apart+size) }
			states := func(x *float32) []float32 { return unsafe.Slice(x, (n-1)*hs+channels) }
			m.call("scanAVX512", rows(y, ys, channels), rows(u, us, channels), rows(dt, dts, channels), states(a), states(h),
				rows(b, bs, n), rows(c, cs, n), tokens, channels, n, ys, us, dts, hs, bs, cs)
		},
		func(h, u, dt, a, b *float32, channels, n, as int) {
			m.call("scanStepAVX512", unsafe.Slice(h, channels*n), unsafe.Slice(u, channels), unsafe.Slice(dt, channels),
				unsafe.Slice(a, (channels-1)*as+n), unsafe.Slice(b, n), channels, n, as)
		},
		&tilingAVX2,
	}
	r := rand.New(rand.NewPCG(53, 0))
	for i := range 8 {
		groups := 1 + i%2
		channels, n := groups*(1+r.IntN(40)), 1+r.IntN(40)
		c := newScan(r, channels, n, groups, 1, r.IntN(4))
		before := slices.Clone(c.state.F32)
		var y, states [2][]float32
		for j, run := range []func(c *kernels.Call, lo, hi int){written.run, (&scanner{scanAVX2, scanStepAVX2, &tilingAVX2}).run} {
			copy(c.state.F32, before)
			run(c.Call, 0, scanUnits(c.Call))
			y[j], states[j] = slices.Clone(c.Results[0].F32), slices.Clone(c.state.F32)
		}
		if !slices.Equal(y[0], y[1]) || !slices.Equal(states[0], states[1]) {
			t.Fatalf("%d channels of %d states in %d groups have other bits than in AVX2", channels, n, groups)
		}
	}
}

// TestDotsInterpreted: what the generator wrote for AVX512_BF16 gives the bits of the emulation.
func TestDotsInterpreted(t *testing.T) {
	needsAVX2(t)
	m := newMachine(t, "panels_amd64.s")
	written := interpretedPanels(m, dots, "AVX512", "AVX512BF16")
	emulated := emulatedDots(written)
	checkDots(t, written.ofPairs(&convertAVX2), emulated.ofPairs(&convertAVX2))
}

// interpretedIntegers are the integer products of VNNI, by the interpreter.
func interpretedIntegers(m *machine) *integers {
	p := codedVNNI
	p.weights = map[graph.DType]codedWeights{}
	for d, with := range codedVNNI.weights {
		unpack, size := nameOf(with.unpack), d.Format().Bytes
		with.unpack = func(to, from *byte, ws, blocks, ahead int) {
			m.call(unpack, unsafe.Slice(to, blocks*with.bytes), unsafe.Slice(from, (p.lanes-1)*ws+blocks*size), ws, blocks, ahead)
		}
		with.dots = slices.Clone(with.dots)
		for i, dot := range with.dots {
			if dot == nil {
				continue
			}
			name, numbers := nameOf(dot), roundedBytes(d.Format().Elems)
			with.dots[i] = func(panel *byte, apart int, x *byte, xs int, sums *float32, blocks int) {
				m.call(name, unsafe.Slice(panel, apart+blocks*with.bytes), apart, unsafe.Slice(x, i*xs+blocks*numbers), xs,
					unsafe.Slice(sums, (i+1)*2*p.lanes), blocks)
			}
		}
		p.weights[d] = with
	}
	return &integers{2 * p.lanes, roundAVX2, p.multiply}
}

// nameOf is the name of a function of assembly.
func nameOf(f any) string {
	name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm")
}

// TestIntegersInterpreted: integer products of VNNI, by the interpreter and where the processor has
// it, have the bits of AVX2.
func TestIntegersInterpreted(t *testing.T) {
	needsAVX2(t)
	sets := []*integers{integerProducts["avx2"], interpretedIntegers(newMachine(t, "integers_amd64.s"))}
	if hasAVX512() {
		sets = append(sets, integerProducts["avx512"])
	}
	rng := rand.New(rand.NewPCG(56, 0))
	for i, n := range []int{1, 15, 16, 17, 31, 32, 33, 47} {
		for j, d := range codedTypes() {
			tokens := 1 + (i+j)%8
			k := 1 + rng.IntN(2*d.Format().Elems)
			if i == 7 && j%3 == 0 {
				k = codedVNNI.depth + 1 + rng.IntN(40)
			}
			w := heldBlocks(t, graph.TypeOf(d, graph.Size(n), graph.Size(k)), drawBlocks(rng, d, n, k), 1, 0, 0)
			x, want := table(graph.F32, tokens, k, k, 0), table(graph.F32, tokens, n, n, 0)
			fill(&x, func() float32 { return float32(rng.NormFloat64()) })
			for s, set := range sets {
				y := table(graph.F32, tokens, n, n, 0)
				runAll(set.matmul(Kernels["matmul"]), &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}})
				if s == 0 {
					want = y
				} else if !slices.Equal(y.F32, want.F32) {
					t.Fatalf("set %d: %d tokens, %d columns of %d in %s have other bits than in AVX2", s, tokens, n, k, d)
				}
			}
		}
	}
}

// TestTilesInterpreted multiplies by AMX's tiles in the interpreter: near to float64, with the same
// bits for a token alone.
func TestTilesInterpreted(t *testing.T) {
	m := newMachine(t, "amx_amd64.s")
	r := rand.New(rand.NewPCG(47, 0))
	for i, c := range []struct{ tokens, n, k int }{
		{1, 1, 1}, {16, 16, 32}, {17, 33, 31}, {33, 65, 33}, {18, 17, 545}, {33, 65, 64}, {17, 33, 64}, {2, 277, 33},
	} {
		for _, p := range []tiled{{1, 1}, {3, 1}, {3, 3}} {
			format := graph.BF16
			if p.weights > 1 {
				format = graph.F32
			}
			x, w := table(graph.F32, c.tokens, c.k, c.k+r.IntN(3), r.IntN(8)), table(format, c.n, c.k, c.k+r.IntN(3), r.IntN(16))
			y := table(graph.F32, c.tokens, c.n, c.n+r.IntN(6), r.IntN(8))
			wild := 1 + i%2*60
			fill(&x, func() float32 { return float32(math.Ldexp(r.NormFloat64(), r.IntN(wild)-wild/2)) })
			fill(&w, func() float32 { return float32(r.NormFloat64()) })
			fill(&y, func() float32 { return 1e30 })
			call := kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
			interpretTiles(m, p, call, i%3 == 0)
			what := fmt.Sprintf("%+v, %+v", p, c)
			token := r.IntN(c.tokens)
			one := table(graph.F32, 1, c.n, c.n, 0)
			interpretTiles(m, p, kernels.Call{Args: []kernels.Tensor{part(x, token, token+1), w}, Results: []kernels.Tensor{one}}, false)
			if !slices.Equal(one.Row(0), y.Row(token)) {
				t.Fatalf("%s: token %d has other bits alone", what, token)
			}
			if p.parts == 1 {
				kernels.Round(graph.BF16, x.F32)
			}
			checkWide(t, what, &x, &w, &y, 16)
			checkBetween(t, what, &y)
		}
	}
}

// TestExpertsInterpreted: experts by AMX's tiles and by AVX512_BF16 in the interpreter.
func TestExpertsInterpreted(t *testing.T) {
	set, err := narrowForISA(plain)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, "amx_amd64.s")
	bf16 := func(c *kernels.Call) bool { return c.Args[1].DType == graph.BF16 }
	for parts, share := range map[int]float64{1: 1e-2, 3: 2e-6} {
		tiles := kernels.Kernel{Units: func(*kernels.Call) int { return 1 }, Run: func(c *kernels.Call, _, _ int) { interpretTiles(m, tiled{parts, 1}, *c, false) }}
		checkExpertsWide(t, set, Wide{Kernel: tiles, Serves: bf16}, []int{9, 33, 18, 17}, share)
	}
	if slices.Contains(ISAs(), "avx2") {
		written := interpretedPanels(newMachine(t, "panels_amd64.s"), dots, "AVX512", "AVX512BF16")
		checkExpertsWide(t, set, written.ofPairs(&convertAVX2), []int{4, kernels.ShortDepth, 3, 2}, 1e-2)
	}
}

// TestShortPanelInterpreted: panels of AVX-512 have the bits of a token alone.
func TestShortPanelInterpreted(t *testing.T) {
	m := newMachine(t, "short_amd64.s")
	const tokens, rows, groups, ys = shortTokens, 16, 2, 37
	for _, k := range []int{1, 7, 8, 17, 48, 67} {
		r := rand.New(rand.NewPCG(uint64(k), 0))
		x, w := table(graph.F32, tokens, k, k, 0), table(graph.F32, rows*groups, k, k, 0)
		fill(&x, func() float32 { return float32(1 - 2*r.IntN(2)) })
		fill(&w, func() float32 { return []float32{float32(r.NormFloat64()), 0x1p60}[r.IntN(2)] }) // large ones may cancel
		panel, packed, y := make([]float32, len(w.F32)), make([]float64, len(x.F32)), make([]float32, tokens*ys)
		for i := range k {
			for n := range w.Rows() {
				panel[n/rows*rows*k+i*rows+n%rows] = w.Row(n)[i]
			}
			for n := range tokens {
				packed[i*tokens+n] = float64(x.Row(n)[i])
			}
		}
		m.call("shortPanelAVX512", panel, packed, y, ys, k, groups)
		for n := range tokens {
			one := make([]float32, rows*groups)
			for i := 0; i < len(one); i += 4 {
				m.call("shortF32x1AVX512", w.F32[i*k:], k, x.Row(n), one[i:], 0, k)
			}
			if got := y[n*ys:][:len(one)]; !slices.Equal(got, one) {
				t.Errorf("sums of %d: token %d has %v in panels, %v alone", k, n, got, one)
			}
		}
	}
}

// TestDecodes holds the decoder against bytes that clang's assembler gives for
// vdpbf16ps %zmm24, %zmm25, %zmm3 and others, in this order of operands.
func TestDecodes(t *testing.T) {
	for _, c := range []struct {
		w, x, sum int
		code      []byte
	}{
		{24, 25, 3, []byte{0x62, 0x92, 0x36, 0x40, 0x52, 0xd8}},
		{0, 1, 2, []byte{0x62, 0xf2, 0x76, 0x48, 0x52, 0xd0}},
		{8, 9, 0, []byte{0x62, 0xd2, 0x36, 0x48, 0x52, 0xc0}},
		{15, 16, 31, []byte{0x62, 0x42, 0x7e, 0x40, 0x52, 0xff}},
		{31, 7, 16, []byte{0x62, 0x82, 0x46, 0x48, 0x52, 0xc7}},
		{16, 31, 8, []byte{0x62, 0x32, 0x06, 0x40, 0x52, 0xc0}},
		{7, 8, 15, []byte{0x62, 0x72, 0x3e, 0x48, 0x52, 0xff}},
		{23, 2, 24, []byte{0x62, 0x22, 0x6e, 0x48, 0x52, 0xc7}},
	} {
		m := &machine{}
		one := math.Float32bits(1)
		setLane(m.v[c.w][:], 5, one)
		setLane(m.v[c.x][:], 5, one)
		want := m.v
		setLane(want[c.sum][:], 5, math.Float32bits(f32of(lane(m.v[c.sum][:], 5))+1))
		if m.decode(c.code); m.v != want {
			t.Errorf("% x does not add the products of registers %d and %d to %d", c.code, c.w, c.x, c.sum)
		}
	}
}

// interpretTiles is the kernel of p, in the interpreter. Weights are packed where that is asked for
// and may be, or taken as they lie.
func interpretTiles(m *machine, p tiled, c kernels.Call, packed bool) {
	regions := len(m.regions)
	x, w := &c.Args[0], &c.Args[1]
	allow(m, x.F32)
	allow(m, w.U16)
	allow(m, w.F32)
	c.Scratch = kernels.NewScratch(p.scratch(&c))
	allow(m, c.Scratch)
	for i := range p.tiles(&c) {
		interpretPack(m, p, &c, i)
	}
	of := &tileProduct{p, &c, new(amxWork), tilesOf{m}}
	allow(m, unsafe.Slice((*byte)(unsafe.Pointer(of.work)), unsafe.Sizeof(*of.work)))
	var copies widened
	if packed = packed && x.Rows() >= tileTokens || p.weights > 1; packed {
		of.panels(0, w.Rows(), 0, p.tiles(&c), &copies)
	}
	for tile := 0; tile < p.tiles(&c) && !packed; tile += 2 {
		of.runs(0, w.Rows(), tile, min(2, p.tiles(&c)-tile))
	}
	m.regions = m.regions[:regions]
}

// tilesOf interprets the assembly.
type tilesOf struct{ *machine }

func (m tilesOf) pack(w *kernels.Tensor, row, rows int, to []uint16) {
	if w.DType == graph.F32 {
		m.call("amxTilesF32", w.F32[row*w.Stride:], w.Stride, w.Cols, rows, to)
	} else {
		m.call("amxTiles", w.U16[row*w.Stride:], w.Stride, w.Cols, rows, to)
	}
}

func (m tilesOf) turn(from [][tileTokens]float32, y []float32, ys, n, rows int) {
	m.call("amxTurn", unsafe.Slice(&from[0][0], len(from)*tileTokens), y, ys, n, rows)
}

func (m tilesOf) multiply(of *tileProduct, tile, tiles int, w []uint16, y []float32) uint32 {
	name := fmt.Sprintf("amxPacked%d", of.parts)
	switch {
	case of.weights > 1:
		name = "amxPackedF32"
	case of.work.plan.apart > 0:
		name = fmt.Sprintf("amxRuns%dx%d", of.parts, tiles)
	}
	return uint32(m.call(name, unsafe.Slice(&of.work.palette, 1), w, of.packedTokens(tile), y))
}

// interpretPack is packTiles for one tile.
func interpretPack(m *machine, p tiled, c *kernels.Call, i int) {
	x, k, n, columns := &c.Args[0], c.Args[1].Cols, tokensOf(c, i), p.columns(c)
	to := c.Scratch[i*p.tileBytes(c) : (i+1)*p.tileBytes(c)]
	head := (*tokenTile)(unsafe.Pointer(&to[0]))
	to = to[unsafe.Sizeof(*head):]
	scale, rows := make([]float32, tileTokens), make([]int, tileTokens)
	for t := range tileTokens {
		if rows[t] = min(t, n-1) * x.Stride * 4; t < n {
			e, least := scaled(uint32(m.call("amxLargest", x.Row(i*tileTokens+t), k)))
			scale[t], head.unscale[t], head.least[t] = float32(e), float32(-e), least
		}
	}
	first := x.F32[i*tileTokens*x.Stride:]
	if columns == 1 {
		m.call(fmt.Sprintf("amxPackOne%d", p.parts), first, scale[0], k, to)
	} else {
		m.call(fmt.Sprintf("amxPack%d", p.parts), first, rows, scale, k, to, columns)
	}
}
