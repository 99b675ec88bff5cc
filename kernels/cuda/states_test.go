package cuda

import (
	"math"
	"slices"
	"testing"

	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// partsCase: the segments of all parts, or those of a rank's part.
func partsCase(d *draw) func() kernels.Call {
	n := d.pick("parts", 2, 3, 4, 16)
	return func() kernels.Call {
		seqs, tokens := d.size("sequences", 31, 32, 33, 70), 0
		seg := d.packed(graph.I32, seqs, 3)
		for i := range seqs {
			count := d.pick("tokens", 1, 63, 64, 65, 200, 1000)
			copy(seg.I32[3*i:], []int32{int32(tokens), int32(count), int32(i)})
			tokens += count
		}
		y := d.packed(graph.I32, seqs*n, 3)
		if own := d.pick("own", 0, 0, 1) * rapid.IntRange(0, n-1).Draw(d.T, "part"); own > 0 {
			y = d.packed(graph.I32, seqs, 3)
			y.First = own * seqs
		}
		return call(graph.Attrs{"parts": n}, one(y), d.packed(graph.F32, 1, 1), seg)
	}
}

func zerosCase(d *draw) func() kernels.Call {
	h, n, size, diagonal := d.size("h"), d.size("n", 33), d.size("size", 33, 300), d.pick("diagonal", 0, 1)
	if diagonal == 1 {
		size = n
	}
	return func() kernels.Call {
		rows := d.size("rows")
		return call(graph.Attrs{"diagonal": diagonal}, one(d.tensor(graph.F32, rows, h, n, size)), d.packed(graph.I32, rows, 3))
	}
}

func segmentSumsCase(d *draw) func() kernels.Call {
	cols := d.size("d", 31, 33, 65, 130)
	return func() kernels.Call {
		d.lens = []int{1, 2, 31, 33, 70, 130}
		seg, _, t := d.batch()
		for i := range seg.Rows() { // a part of a short sequence has no token
			seg.I32[3*i+1] *= int32(d.pick("none", 0, 1, 1, 1))
		}
		return call(nil, one(d.tensor(graph.F32, seg.Rows(), cols)), d.tensor(graph.F32, t, cols), seg)
	}
}

// passingCase draws sequences in parts. made is a value with a row of the axes for each part, of
// which no numbers are those that the part's tokens do not say: nothing reads them.
func passingCase(d *draw, says func(col, tokens int) bool, build func(rows int, seg kernels.Tensor, made func(dims ...int) kernels.Tensor) kernels.Call) func() kernels.Call {
	n := d.pick("parts", 2, 3, 4)
	return func() kernels.Call {
		d.lens = []int{1, 2, 3, 63, 64, 65, 127, 130, 200}
		seg, _, _ := d.batch()
		rows := n * seg.Rows()
		return build(rows, seg, func(dims ...int) kernels.Tensor {
			x := d.tensor(graph.F32, append([]int{rows}, dims...)...)
			for i := range seg.Rows() {
				kernels.EachPart(&x, &seg, i, func(row, tokens int) {
					for j := range x.Cols {
						if !says(j, tokens) {
							x.F32[row*x.Stride+j] = float32(math.NaN())
						}
					}
				})
			}
			return x
		})
	}
}

// anyToken: a part with tokens says all of its row.
func anyToken(_, tokens int) bool { return tokens > 0 }

func convStatesCase(d *draw) func() kernels.Call {
	cols, keep := d.size("c", 63, 127, 129), d.pick("m", 0, 1, 2, 3, 3, 4)
	state := d.packed(d.kept("conv_states"), slots, cols, keep)
	fresh := func(col, tokens int) bool { return col%keep >= keep-tokens } // not inputs before the part
	return passingCase(d, fresh, func(rows int, seg kernels.Tensor, made func(...int) kernels.Tensor) kernels.Call {
		return call(nil, []kernels.Tensor{d.tensor(graph.F32, rows, cols, keep), state}, made(cols, keep), state, seg)
	})
}

func selectiveStatesCase(d *draw) func() kernels.Call {
	cols, n := d.size("d", 33, 129), d.pick("n", 1, 3, 4, 16, 17)
	a, state := d.tensor(graph.F32, cols, n), d.packed(d.kept("selective_states"), slots, cols, n)
	d.fill(&a, negative)
	return passingCase(d, anyToken, func(rows int, seg kernels.Tensor, made func(...int) kernels.Tensor) kernels.Call {
		return call(nil, []kernels.Tensor{d.tensor(graph.F32, rows, cols, n), state}, d.steps(made(cols)), made(cols, n), a, state, seg)
	})
}

func ssdStatesCase(d *draw) func() kernels.Call {
	heads, size, n := d.size("h"), d.pick("p", 1, 4, 5, 16), d.pick("n", 1, 3, 4, 17)
	a, state := d.packed(graph.F32, heads), d.packed(d.kept("ssd_states"), slots, heads, size, n)
	d.fill(&a, negative)
	return passingCase(d, anyToken, func(rows int, seg kernels.Tensor, made func(...int) kernels.Tensor) kernels.Call {
		return call(nil, []kernels.Tensor{d.tensor(graph.F32, rows, heads, size, n), state}, d.steps(made(heads)), made(heads, size, n), a, state, seg)
	})
}

// steps are sums of steps of scans, of which rates make much and little.
func (d *draw) steps(t kernels.Tensor) kernels.Tensor {
	for i, v := range t.F32 {
		t.F32[i] = float32(math.Abs(float64(v)) * 2)
	}
	return t
}

func deltaStatesCase(d *draw) func() kernels.Call {
	heads, n, size := d.pick("h", 1, 2, 3), d.pick("n", 1, 3, 4, 8, 31, 32, 33, 68), d.size("p", 31, 33)
	state := d.packed(d.kept("delta_states"), slots, heads, n, size)
	return passingCase(d, anyToken, func(rows int, seg kernels.Tensor, made func(...int) kernels.Tensor) kernels.Call {
		m := made(heads, n, n)
		multiply(m.F32, 1/float32(n))
		return call(nil, []kernels.Tensor{d.tensor(graph.F32, rows, heads, n, size), state}, m, made(heads, n, size), state, seg)
	})
}

// TestPassingBytes: of published shapes, an operation over parts is one launch that moves no more
// than 1.02 times its operands and results, in requests of as few sectors as hold them, or nearly.
func TestPassingBytes(t *testing.T) {
	d := &draw{rng: newRand(1), past: make([]int, slots)}
	const parts, seqs = 2, 3
	seg, rows, tokens := d.packed(graph.I32, seqs, 3), parts*seqs, 70
	for i := range seqs {
		copy(seg.I32[3*i:], []int32{int32(tokens * i), int32(tokens), int32(i)})
	}
	x := func(dims ...int) kernels.Tensor { return d.packed(graph.F32, dims...) }
	passed := func(first, state kernels.Tensor, more ...kernels.Tensor) kernels.Call {
		before := x(append([]int{rows}, state.Dims[1:]...)...)
		return call(nil, []kernels.Tensor{before, state}, append([]kernels.Tensor{first}, append(more, state, seg)...)...)
	}
	conv, ssm, ssd, delta := x(seqs, 384, 3), x(seqs, 384, 16), x(seqs, 2, 64, 128), x(seqs, 1, 128, 128)
	for name, c := range map[string]kernels.Call{
		"parts":            call(graph.Attrs{"parts": parts}, one(d.packed(graph.I32, rows, 3)), seg, seg),
		"zeros":            call(graph.Attrs{"diagonal": 1}, one(x(rows, 1, 128, 128)), seg),
		"segment_sums":     call(nil, one(x(seqs, 1536)), x(seqs*tokens, 1536), seg),
		"conv_states":      passed(x(rows, 384, 3), conv),
		"selective_states": passed(x(rows, 384), ssm, x(rows, 384, 16), x(384, 16)),
		"ssd_states":       passed(x(rows, 2), ssd, x(rows, 2, 64, 128), x(2)),
		"delta_states":     passed(x(rows, 1, 128, 128), delta, x(rows, 1, 128, 128)),
	} {
		op, dev := findOp(t, name), newInterpreter(t)
		launches := dev.plan(op, dev.deviceCall(op, &c, map[int]Tensor{}, func() int { return 0 }))
		if len(launches) != 1 {
			t.Fatalf("%s: %d launches", name, len(launches))
		}
		on, operands := launchOf(launches[0], 0), int64(0)
		on.Meter = &ptx.Meter{}
		e, err := kernel{module: launches[0].Module, function: launches[0].Function}.entry()
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Run(t.Context(), dev.mem.(*interpreted).Memory, on); err != nil {
			t.Fatal(err)
		}
		for _, of := range slices.Concat(c.Args, c.Results) {
			operands += int64(4 * of.Rows() * of.Cols)
		}
		n := on.Meter.Counts
		if moved := n.Loads.Distinct + n.Stores.Distinct; float64(moved) > 1.02*float64(operands) {
			t.Errorf("%s moves %d bytes, %d of operands and results", name, moved, operands)
		}
		if got, least := n.Loads.Sectors+n.Stores.Sectors, n.Loads.Least+n.Stores.Least; name != "parts" && float64(got) > 1.1*float64(least) {
			t.Errorf("%s: %d sectors where %d hold the bytes", name, got, least)
		}
	}
}

// TestQueriesInParts: a rank that has parts of sequences attends to all keys with the queries that
// it has, and turns them by their places.
func TestQueriesInParts(t *testing.T) {
	for _, name := range []string{"attention", "rotary"} {
		op := findOp(t, name)
		t.Run(name, func(t *testing.T) {
			check(t, name, func(t *rapid.T) {
				d, dev := newDraw(t), newDevice(t)
				d.decode, d.lens, d.most = false, []int{1, 2, 63, 64, 65, 130}, 3
				c := cases[name](d)()
				whole := clone(&c.Results[0])
				seg := c.Args[map[string]int{"attention": 5, "rotary": 1}[name]]
				var runs []graph.Run
				ranks := d.pick("ranks", 2, 3)
				rank := rapid.IntRange(0, ranks-1).Draw(t, "rank")
				for i := range seg.Rows() {
					start, tokens, _ := seg.Segment(i)
					r := graph.PartOf(tokens, ranks, rank)
					runs = append(runs, graph.Run{Start: start + r.Start, Len: r.Len})
				}
				all := c.Args[0]
				states := map[int]Tensor{}
				c.Args[0], c.Results[0] = held(&all, runs), held(&whole, runs)
				on := dev.deviceCall(op, &c, states, d.offset)
				dev.compute(op, on, d.rng.Uint64())
				got := clone(&c.Results[0])
				dev.download(on.Results[0], &got)
				c.Args[0], c.Results[0] = all, whole
				plain := reference.Kernels[name]
				plain.Run(&c, 0, 1)
				want := held(&c.Results[0], runs)
				same(t, "queries", &got, &want, 1e-5)
			})
		})
	}
}

// TestUnevenParts: of as many tokens as sequences a rank may have several of one and none of
// others.
func TestUnevenParts(t *testing.T) {
	for name, want := range map[string]string{"conv1d": "conv1d_pieces_4", "ssd_scan": "ssd_split_scores", "delta_scan": "delta_scan_chunks"} {
		for _, runs := range [][]graph.Run{{{Start: 0, Len: 1}, {Start: 1, Len: 1}}, {{Start: 0, Len: 2}, {Start: 5, Len: 0}}} {
			x, dt, seg := shaped(graph.F32, 2, 16), shaped(graph.F32, 2, 1), shaped(graph.I32, 2, 3)
			c := map[string]*Call{
				"conv1d":     {Args: tensors(x, shaped(graph.F32, 16, 4), shaped(graph.F32, 2, 16, 3), seg)},
				"ssd_scan":   {Args: tensors(x, dt, shaped(graph.F32, 1), x, x, shaped(graph.F32, 2, 1, 16, 16), seg)},
				"delta_scan": {Args: tensors(x, x, x, dt, dt, shaped(graph.F32, 2, 1, 16, 16), seg), Attrs: graph.Attrs{"scale": 1.0}},
			}[name]
			x.Parts = runs
			c.Results = append(tensors(x), c.Args[len(c.Args)-2])
			list, err := Kernels[name].Launches(c)
			if err != nil || (list[0].Function == want) != (runs[0].Len > 1) {
				t.Errorf("%s of runs %v launches %s: %v", name, runs, list[0].Function, err)
			}
		}
	}
}

func tensors(list ...kernels.Tensor) (out []Tensor) {
	for _, t := range list {
		out = append(out, Tensor{Tensor: t, Ptr: 256})
	}
	return out
}

// held is the rows of x that a rank has.
func held(x *kernels.Tensor, runs []graph.Run) kernels.Tensor {
	out := clone(x)
	out.Hold(runs)
	out.F32 = nil
	for _, r := range runs {
		for i := range r.Len {
			out.F32 = append(out.F32, x.F32[(r.Start+i)*x.Stride:][:x.Cols]...)
		}
	}
	out.Stride = out.Cols
	return out
}
