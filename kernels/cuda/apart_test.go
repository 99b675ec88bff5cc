package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// oddNumbers are at the ends of the range, or no numbers: the last is a NaN whose bits are in the
// last piece.
var oddNumbers = []float32{0, -1.0000001, math.MaxFloat32, -math.MaxFloat32, 1e-30, 16777215, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.Float32frombits(0x7f800001)}

// takenApart are the launches that write the pieces of x.
func takenApart(to uint64, x Tensor) []Launch {
	c := Call{Args: []Tensor{x}, Results: []Tensor{{Ptr: to}}}
	_ = takeApart.launch(&c)
	return c.launches
}

// TestTakeApart: the pieces of numbers add up to them, and each piece is the bits of the rest
// before it, cut off; infinity is in the first alone.
func TestTakeApart(t *testing.T) {
	check(t, "apart", func(t *rapid.T) {
		d, dev := newDraw(t), newDevice(t)
		d.aligned = true
		rows, cols := d.size("rows"), d.pick("cols", 8, 264, 1032, 2056)
		x := d.tensor(graph.F32, rows, cols)
		for i := range min(len(x.F32), d.pick("odd", 0, len(oddNumbers))) {
			x.F32[i] = oddNumbers[i]
		}
		from, size := dev.upload(&x, d.offset()), rows*cols
		got := shaped(graph.BF16, Pieces*rows, cols)
		got.U16 = make([]uint16, Pieces*size)
		to := dev.empty(&got, 0)
		dev.run(takenApart(to.Ptr, from), d.rng.Uint64())
		dev.download(to, &got)
		pieces := values(&got)
		for i, v := range values(&x) {
			rest := v
			for p := range Pieces {
				piece := pieces[p*size+i]
				if want := float64(math.Float32frombits(math.Float32bits(float32(rest)) &^ 0xffff)); rest == rest && piece != want {
					t.Fatalf("piece %d of %g is %g, want %g", p, v, piece, want)
				}
				if rest -= piece; math.IsInf(v, 0) {
					rest = 0
				}
			}
			if math.IsNaN(v) != math.IsNaN(rest) || rest != 0 && rest == rest {
				t.Fatalf("the pieces of %g leave %g", v, rest)
			}
		}
	})
}

// TestApartPlan: which products a library does in pieces.
func TestApartPlan(t *testing.T) {
	for _, c := range []struct {
		what    string
		o       Options
		t, n, k int
		format  graph.DType
		at      uint64 // of x
		apart   bool
	}{
		{"a prompt", Options{}, 129, 384, 384, graph.BF16, 256, true},
		{"batch-invariant", Options{Invariant: true}, 129, 384, 384, graph.BF16, 256, false},
		{"few rows", Options{}, 128, 384, 384, graph.BF16, 256, false},
		{"a short k", Options{}, 129, 384, 376, graph.BF16, 256, false},
		{"few columns", Options{}, 129, 383, 384, graph.BF16, 256, false},
		{"weights in f16", Options{}, 129, 384, 384, graph.F16, 256, false},
		{"weights in f32", Options{Split: true}, 129, 384, 384, graph.F32, 256, false},
		{"rows of the weight that are not aligned", Options{}, 129, 384, 388, graph.BF16, 256, false},
		{"x that is not aligned", Options{}, 129, 384, 384, graph.BF16, 260, false},
		{"math of bf16", Options{Math: BF16}, 129, 384, 384, graph.BF16, 256, false},
	} {
		for _, name := range []string{"matmul", "matmul_add", "norm_matmul"} {
			c.o.Library = true
			call := &Call{Options: c.o, Attrs: graph.Attrs{"eps": 0.5}, Results: []Tensor{{Tensor: shaped(graph.F32, c.t, c.n), Ptr: 256}}}
			args := []Tensor{{Tensor: shaped(graph.F32, c.t, c.k), Ptr: c.at}, {Tensor: shaped(c.format, c.n, c.k), Ptr: 256}}
			switch name {
			case "matmul_add":
				args = append(args, call.Results[0])
			case "norm_matmul":
				args = []Tensor{args[0], {Tensor: shaped(graph.F32, c.k), Ptr: 256}, args[1]}
			}
			call.Args = args
			parts := Kernels[name].Parts(call)
			want := c.apart || name == "norm_matmul" && c.at%16 != 0 // what is normed is aligned
			product := parts[len(parts)-1]
			if got := product.Name() == strings.TrimPrefix(name, "norm_") && product.Args[0].InPieces; got != want {
				t.Errorf("%s of %s: %v", name, c.what, got)
			}
			if call.Options.Library = false; slices.ContainsFunc(Kernels[name].Parts(call), func(p Part) bool { return p.Args[0].InPieces }) {
				t.Errorf("%s of %s: there are pieces without a library", name, c.what)
			}
		}
	}
}

// TestGivenPieces: norms and scans that give their result in pieces give those of what they would
// store, and leave the same state.
func TestGivenPieces(t *testing.T) {
	for _, name := range []string{"rmsnorm", "selective_scan", "selective_scan_gated"} {
		op := findOp(t, name)
		test := func(t *rapid.T) { checkGivenPieces(t, op) }
		check(t, name, test)
		if name != "rmsnorm" {
			until(t, test, "scan_f32.selective_scan_16_apart", "scan_bf16.selective_scan_16_apart", "scan_f32.selective_scan_thread_16_apart", "scan_bf16.selective_scan_thread_16_apart")
		}
	}
}

func checkGivenPieces(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	d.aligned = true
	var c kernels.Call
	if op.Name == "rmsnorm" {
		rows, k := d.size("rows"), d.pick("k", 8, 384, 1032, 4104)
		c = call(graph.Attrs{"eps": 0.5}, one(d.tensor(graph.F32, rows, k)), d.tensor(graph.F32, rows, k), d.packed(graph.F32, k))
	} else {
		defer func(was int) { scanEnough = was }(scanEnough)
		scanEnough = d.pick("enough", 0, scanEnough)
		d.decode, d.lens, d.most = false, []int{0, 2, 31, 32, 33, 70}, 2
		next := selectiveOf(d, d.pick("n", 1, 3, 16, 16))
		if op.Name != "selective_scan" {
			next = gatedCase(d, next, nil)
		}
		c = next()
	}
	y, states := &c.Results[0], [2]map[int]Tensor{{}, {}}
	var got [2][]uint16
	for i := range got {
		on := dev.deviceCall(op, &c, states[i], d.offset)
		to := Tensor{Tensor: shaped(graph.BF16, Pieces*y.Rows(), y.Cols)}
		to.U16 = make([]uint16, Pieces*y.Rows()*y.Cols)
		to.Ptr = dev.alloc(2 * len(to.U16))
		if i == 1 {
			on.Options.Library = true
			if !Kernels[op.Name].Accepts(on)[len(on.Args)] {
				return // rows are not of eights, or sequences have one token
			}
			on.Results[0].Ptr, on.Results[0].InPieces = to.Ptr, true
		}
		dev.compute(op, on, d.rng.Uint64())
		if i == 0 {
			if on.Results[0].Stride%4 != 0 || y.Cols%8 != 0 {
				return
			}
			dev.run(takenApart(to.Ptr, on.Results[0]), d.rng.Uint64())
		}
		dev.download(to, &to.Tensor)
		got[i] = to.U16
	}
	if !slices.Equal(got[0], got[1]) {
		t.Fatal("the pieces differ")
	}
	for _, s := range op.States {
		a, b := clone(&c.Args[s.Operand]), clone(&c.Args[s.Operand])
		dev.download(states[0][s.Operand], &a)
		dev.download(states[1][s.Operand], &b)
		same(t, "state", &b, &a, 0)
	}
}

// onLibrary calls f with a device that has cuBLAS, and a handle of it.
func onLibrary(t *testing.T, f func(dev *device, multiply func(*driver.GemmCall))) {
	dev := newDevice(t)
	if dev.gpu == nil {
		dev = simulated(t, nil)
	}
	var h driver.GEMM
	err := dev.gpu.do(func() (err error) {
		if h, err = dev.gpu.GEMM(); err == nil {
			err = h.SetStream(dev.gpu.stream)
		}
		return err
	})
	if onDevice != "" && errors.Is(err, driver.ErrMissingLibrary) { // a simulated device, which CI has, always has one
		t.Skipf("cuBLAS is not installed: its products are not tested: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	f(dev, func(g *driver.GemmCall) {
		dev.gpu.behind = false
		if err := dev.gpu.do(func() error { return h.Gemm(g) }); err != nil {
			t.Fatal(err)
		}
	})
	if err := dev.gpu.do(h.Close); err != nil {
		t.Fatal(err)
	}
}

// multiplyApart multiplies x, of f32, with w, of bf16, by products of the pieces of x, and adds to
// y, if it is to.
func multiplyApart(dev *device, multiply func(*driver.GemmCall), x, w, y *kernels.Tensor, adds bool) {
	from, weight, to := dev.upload(x, 0), dev.upload(w, 0), dev.upload(y, 0)
	m, n, k := x.Rows(), w.Rows(), x.Cols
	at := dev.alloc(2 * Pieces * m * k)
	dev.run(takenApart(at, from), 0)
	g := driver.GemmCall{M: m, N: n, K: k, A: driver.Ptr(at), B: driver.Ptr(weight.Ptr), C: driver.Ptr(to.Ptr),
		LDA: k, LDB: w.Stride, LDC: y.Stride, In: driver.BF16, Out: driver.F32, Accumulate: adds}
	for _, call := range g.OfPieces(Pieces) {
		multiply(call)
	}
	dev.download(to, y)
}

// TestProductsOfPieces: products of the pieces of x are those of x in f32, added to a sum and not,
// over slices of k, of any numbers.
func TestProductsOfPieces(t *testing.T) {
	onLibrary(t, func(dev *device, multiply func(*driver.GemmCall)) {
		check(t, "products of pieces", func(t *rapid.T) {
			d := newDraw(t)
			d.aligned = true
			m, n, k := d.pick("m", 1, 3, 129), d.size("n"), d.pick("k", 8, 24, 40, 1288)
			x, w, y := d.tensor(graph.F32, m, k), d.tensor(graph.BF16, n, k), d.tensor(graph.F32, m, n)
			before := values(&y)
			adds := rapid.Bool().Draw(t, "adds")
			multiplyApart(dev, multiply, &x, &w, &y, adds)
			off, largest := distance(&x, &w, &y, func(i int) float64 {
				if adds {
					return before[i]
				}
				return 0
			})
			if !(off <= 2e-6*largest) {
				t.Fatalf("off by %.2g of %.2g", off, largest)
			}
		})
		x, w, y := shaped(graph.F32, len(oddNumbers), 8), shaped(graph.BF16, 1, 8), shaped(graph.F32, len(oddNumbers), 1)
		x.F32, y.F32 = make([]float32, 8*len(oddNumbers)), make([]float32, len(oddNumbers))
		put(&w, 3, 1)
		for i, v := range oddNumbers {
			x.F32[8*i+3] = v
		}
		multiplyApart(dev, multiply, &x, &w, &y, false)
		for i, want := range oddNumbers {
			if got := y.F32[i]; got != want && (got == got || want == want) {
				t.Errorf("%g comes through as %g", want, got)
			}
		}
	})
}

// TestDeepProductsOfPieces: sums of 2,560 and 5,120 terms, of one sign and of both, are about as
// near as sums by fma in f32, which are off by up to 2.1e-6 and 3.2e-6 of the largest. In one slice
// of k they would be off by 6.0e-6 and 1.9e-5. Before 9.0 tensor cores truncate twice as often.
func TestDeepProductsOfPieces(t *testing.T) {
	onLibrary(t, func(dev *device, multiply func(*driver.GemmCall)) {
		for _, k := range []int{2560, 5120} {
			for _, positive := range []bool{false, true} {
				rng := rand.New(rand.NewPCG(1, 2))
				draw := func(v kernels.Tensor) kernels.Tensor {
					for i := range v.Dims[0] * v.Dims[1] {
						f := rng.NormFloat64()
						if positive {
							f = math.Abs(f)
						}
						put(&v, i, float32(f))
					}
					return v
				}
				x, w, y := draw(shaped(graph.F32, 16, k)), draw(shaped(graph.BF16, 32, k)), draw(shaped(graph.F32, 16, 32))
				multiplyApart(dev, multiply, &x, &w, &y, false)
				off, largest := distance(&x, &w, &y, func(int) float64 { return 0 })
				t.Logf("k %d, positive %v: off by %.2g of the largest", k, positive, off/largest)
				most := map[bool]float64{false: 2.1e-6, true: 4e-6}[positive]
				if dev.gpu.Device().Capability[0] < 9 {
					most *= 2
				}
				if !(off <= most*largest) {
					t.Errorf("k %d, positive %v: off by %.2g of the largest, at most %.2g", k, positive, off/largest, most)
				}
			}
		}
	})
}

// distance is how far y is from x wᵀ plus a sum in float64, and the largest of these.
func distance(x, w, y *kernels.Tensor, plus func(i int) float64) (off, largest float64) {
	a, b := values(x), values(w)
	for i, got := range values(y) {
		sum := plus(i)
		for j, v := range a[i/y.Cols*x.Cols:][:x.Cols] {
			sum += v * b[i%y.Cols*x.Cols+j]
		}
		off, largest = max(off, math.Abs(got-sum)), max(largest, math.Abs(sum))
	}
	return off, largest
}
