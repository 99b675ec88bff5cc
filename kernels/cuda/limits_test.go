package cuda

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// within fails where CUDA does not allow a launch.
func within(t fataler, launches []Launch) {
	t.Helper()
	for _, l := range launches {
		if l.Grid[0] < 1 || l.Grid[1] < 1 || l.Grid[2] < 1 || l.Grid[0] > 1<<31-1 || l.Grid[1] > 65535 || l.Grid[2] > 65535 {
			t.Fatalf("%s on %v blocks", l.Function, l.Grid)
		}
		if n := l.Block[0] * l.Block[1] * l.Block[2]; n < 1 || n > 1024 {
			t.Fatalf("%s in blocks of %v", l.Function, l.Block)
		}
	}
}

// TestGrids: whatever the numbers of tokens and sequences, grids are within CUDA's
// limits. Nothing is run.
func TestGrids(t *testing.T) {
	goldens.CI(t)
	for _, op := range graph.Ops() {
		if op.Class != graph.Compute {
			continue
		}
		t.Run(op.Name, func(t *testing.T) {
			t.Parallel()
			prop.Check(t, func(t *rapid.T) {
				d := newDraw(t)
				d.decode = false
				next := cases[op.Name](d)
				c, other := next(), next()
				for tries := 0; c.Results[0].Dims[0] == other.Results[0].Dims[0]; tries++ {
					if tries == 10 {
						t.Skip("batches of one size")
					}
					other = next()
				}
				tokens := d.pick("tokens", 1<<17, 1<<21+1, 1<<24+3)
				seqs := d.pick("sequences", 1, 65535, 65536, 1<<17)
				if rapid.Bool().Draw(t, "decode") {
					seqs = tokens
				}
				on := enlarged(&c, &other, tokens, min(seqs, tokens))
				on.Options = Options{Math: Math(d.pick("math", 0, 1)), Shared: d.pick("shared", 0, 99<<10)}
				launches, err := Kernels[op.Name].Launches(on)
				if err != nil {
					t.Fatal(err)
				}
				within(t, launches)
			})
		})
	}
}

// enlarged is a call with other numbers of tokens and sequences, and no memory.
// enlarged has operands of tokens with as many rows as the result, in two batches.
func enlarged(c, other *kernels.Call, tokens, seqs int) *Call {
	resized := func(x, y kernels.Tensor) Tensor {
		switch {
		case x.Dims[0] == c.Results[0].Dims[0] && y.Dims[0] == other.Results[0].Dims[0]:
			x.Dims[0] = tokens
		case x.DType == graph.I32: // segments, pasts
			x.Dims[0] = seqs
		}
		x.Pages = &kernels.Pages{Tokens: 1 << 7} // if it is a cache
		return Tensor{Tensor: x, Ptr: 1 << 20}
	}
	on := &Call{Attrs: c.Attrs, Scratch: 1 << 30}
	for i := range c.Args {
		on.Args = append(on.Args, resized(c.Args[i], other.Args[min(i, len(other.Args)-1)]))
	}
	for i := range c.Results {
		on.Results = append(on.Results, resized(c.Results[i], other.Results[i]))
	}
	return on
}

// TestWide: pieces of any width are copied and cleared, in several launches where
// one does not do; other operations refuse rows that are too wide, and say so.
func TestWide(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		cols := rapid.OneOf(rapid.IntRange(1, 1<<31-1), rapid.SampledFrom([]int{1<<26 - 1024, 1 << 26, 1<<26 + 1, 1<<27 - 2048, 1<<27 + 1})).Draw(t, "cols")
		x := Tensor{Ptr: 1 << 40}
		x.DType = rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16}).Draw(t, "format")
		x.Cols, x.Stride = cols, cols
		x.Dims[0] = rapid.IntRange(1, 1<<20).Draw(t, "rows")
		y := x
		y.Ptr = 1 << 50
		for _, list := range [][]Launch{Zero(x), Copy(y, x)} {
			within(t, list)
			if blocks := (cols*x.DType.Bytes() + 4095) / 4096; blocks > 65535*len(list) || blocks <= 65535*(len(list)-1) {
				t.Fatalf("%d launches for rows of %d columns", len(list), cols)
			}
		}
	})
	x := Tensor{Tensor: shaped(graph.F32, 1, 1<<26), Ptr: 1 << 40}
	_, err := Kernels["silu"].Launches(&Call{Args: []Tensor{x}, Results: []Tensor{x}})
	if err == nil || !strings.Contains(err.Error(), "kernel silu: a grid of 1 x 65536 x 1 blocks; CUDA's have up to 2147483647 x 65535 x 65535") {
		t.Error(err)
	}
	x = Tensor{Tensor: shaped(graph.F32, 1024, 1<<18), Ptr: 1 << 40} // as many elements in rows
	if _, err := Kernels["silu"].Launches(&Call{Args: []Tensor{x}, Results: []Tensor{x}}); err != nil {
		t.Error(err)
	}
}

// TestStrips: pieces that are cleared and copied in several launches are whole.
func TestStrips(t *testing.T) {
	defer func(most int) { stripBlocks = most }(stripBlocks)
	stripBlocks = 2
	prop.Check(t, func(t *rapid.T) {
		d, dev := newDraw(t), newDevice(t)
		rows, cols, format := d.size("rows"), d.pick("cols", 1, 2047, 2048, 2049, 4096, 4097, 6151), d.format()
		x, y := d.tensor(format, rows, cols), d.tensor(format, rows, cols)
		from, to := dev.upload(&x, d.offset()), dev.empty(&y, d.offset())
		dev.run(Copy(to, from), d.rng.Uint64())
		dev.download(to, &y)
		same(t, "copy", &y, &x, 0)
		dev.run(Zero(to), d.rng.Uint64())
		dev.download(to, &y)
		d.fill(&x, func(float64) float64 { return 0 })
		same(t, "zeros", &y, &x, 0)
	})
}

// TestPromptByStep: prompts that are scanned token by token, as their states are too
// many for registers or for shared memory, round a state in 16 bits once.
func TestPromptByStep(t *testing.T) {
	for name, next := range map[string]func(*draw) func() kernels.Call{
		"selective_scan": func(d *draw) func() kernels.Call { return selectiveOf(d, 65) },
		"ssd_scan": func(d *draw) func() kernels.Call {
			return ssdOf(d, d.pick("p", 1, 4, 5, 17), d.pick("n", 1, 4, 17, 65))
		},
	} {
		op := findOp(t, name)
		t.Run(name, func(t *testing.T) {
			check(t, name, func(t *rapid.T) {
				d, dev := newDraw(t), newDevice(t)
				d.decode, d.lens = false, []int{2, 3, 9}
				c := next(d)()
				states := map[int]Tensor{}
				on := dev.deviceCall(op, &c, states, d.offset)
				on.Options.Shared = 1
				launches := dev.compute(op, on, d.rng.Uint64())
				if n, wide := len(launches), c.Args[5].DType == graph.F32; n > 0 && wide != (n == 1) {
					t.Fatalf("%d launches for a state in %s", n, c.Args[5].DType)
				}
				plain := reference.Kernels[name]
				plain.Run(&c, 0, 1)
				got, state := clone(&c.Results[0]), clone(&c.Args[5])
				dev.download(on.Results[0], &got)
				dev.download(on.Args[5], &state)
				same(t, "result", &got, &c.Results[0], 1e-5)
				sameKept(t, &state, &c.Args[5], 1e-5)
			})
		})
	}
}

// TestSharedMemory: the scan takes the kernel that fits the device's shared memory.
func TestSharedMemory(t *testing.T) {
	for _, c := range []struct {
		states, limit int
		math          Math
		want          string
	}{
		{256, 0, F32, "ssd_scan_chunks"},
		{256, 163 << 10, F32, "ssd_scan_chunks"},   // 8.0
		{256, 99 << 10, F32, "ssd_scan_chunks_16"}, // 8.6, 8.9
		{256, 64 << 10, F32, "ssd_scan_steps"},
		{128, 99 << 10, F32, "ssd_split"},
		{128, 68 << 10, F32, "ssd_scan_chunks"},
		{256, 99 << 10, BF16, "ssd_mma_256"},
		{256, 90 << 10, BF16, "ssd_scan_chunks_16"},
		{128, 99 << 10, BF16, "ssd_mma_128"},
		{257, 0, F32, "ssd_scan_steps"},
	} {
		x, dt := shaped(graph.F32, 64, 64), shaped(graph.F32, 64, 1)
		b, state := shaped(graph.F32, 64, c.states), shaped(graph.F32, 1, 1, 64, c.states)
		call := &Call{Options: Options{Math: c.math, Shared: c.limit}}
		for _, a := range []kernels.Tensor{x, dt, shaped(graph.F32, 1), b, b, state, shaped(graph.I32, 1, 3)} {
			call.Args = append(call.Args, Tensor{Tensor: a, Ptr: 256})
		}
		call.Results = []Tensor{{Tensor: x, Ptr: 256}, call.Args[5]}
		list, err := Kernels["ssd_scan"].Launches(call)
		if err != nil || len(list) == 0 || list[len(list)-1].Function != c.want || c.limit > 0 && int(list[len(list)-1].Shared) > c.limit {
			t.Errorf("%+v: %v %v", c, list, err)
		}
	}
	op := findOp(t, "ssd_scan")
	test := func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{1, 12 << 10, 15 << 10, 21 << 10}).Draw(t, "limit")
		checkOp(t, op, Options{Shared: limit})
	}
	check(t, "ssd_scan", test)
	until(t, test, "ssd_f32.ssd_scan_chunks_16", "ssd_bf16.ssd_scan_chunks_16")
}
