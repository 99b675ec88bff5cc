package cuda

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// inHalves reports whether a scan is done on tensor cores with the accuracy of f32.
func inHalves(launches []Launch) bool {
	return slices.ContainsFunc(launches, func(l Launch) bool { return strings.HasPrefix(l.Module, "ssd_split") })
}

// drawHalves draws a scan that is done so, of which some channels, states and tokens are up to 2^14
// times as small as others.
func drawHalves(t *rapid.T) (*draw, kernels.Call) {
	d := newDraw(t)
	d.aligned, d.decode, d.most = true, false, 1
	d.lens = []int{31, 33, 70}
	c := ssdOf(d, 36, d.pick("n", 20, 64, 128))()
	state := c.Args[5]
	state.DType, state.U16 = graph.F32, nil
	d.fill(&state, func(v float64) float64 { return 1 + v/8 }) // none decays to less than a normal f32
	c.Args[5], c.Results[1] = state, state
	for _, i := range []int{0, 3, 4} {
		a := &c.Args[i]
		each := make([]int, a.Cols)
		for j := range each {
			each[j] = -d.rng.IntN(10)
		}
		for row := range a.Rows() {
			token := -d.rng.IntN(5)
			for j := range each {
				v := &a.F32[row*a.Stride+j]
				*v = float32(math.Ldexp(float64(*v), token+each[j]))
			}
		}
	}
	return d, c
}

// scanned runs a scan and returns what it gives and leaves; vec says whether its operands are
// aligned, which tensor cores want.
func scanned(t *rapid.T, d *draw, c *kernels.Call, vec bool) (results [2]kernels.Tensor, launches []Launch) {
	op, dev := findOp(t, "ssd_scan"), newDevice(t)
	offset := 0
	if !vec {
		offset = 1
	}
	on := dev.deviceCall(op, c, map[int]Tensor{}, func() int { return offset })
	launches = dev.compute(op, on, d.rng.Uint64())
	for i := range results {
		results[i] = clone(&c.Results[i])
		dev.download(on.Results[i], &results[i])
	}
	return results, launches
}

// TestScanInHalves: on tensor cores a scan in f32 is about as far from float64 as without them,
// also in rows that are much smaller than others.
func TestScanInHalves(t *testing.T) {
	check(t, "ssd_scan", func(t *rapid.T) {
		d, c := drawHalves(t)
		got, launches := scanned(t, d, &c, true)
		if len(launches) == 0 {
			return // there are no heads
		}
		if !inHalves(launches) {
			t.Fatalf("launches are %v", launches)
		}
		plain, _ := scanned(t, d, &c, false)
		k := reference.Kernels["ssd_scan"]
		k.Run(&c, 0, 1)
		for i := range got {
			far, usual := rowErrors(&got[i], &c.Results[i]), rowErrors(&plain[i], &c.Results[i])
			if far > 3*usual+2e-7 {
				t.Errorf("result %d is off by %.2g of a row's largest, without tensor cores by %.2g", i, far, usual)
			}
		}
	})
}

// rowErrors is the root of the mean square of how far rows are off, each as a share of its largest.
func rowErrors(got, want *kernels.Tensor) float64 {
	a, b := values(got), values(want)
	var sum float64
	for at := 0; at < len(b); at += want.Cols {
		var most, top float64
		for i := at; i < at+want.Cols; i++ {
			most, top = max(most, math.Abs(a[i]-b[i])), max(top, math.Abs(b[i]))
		}
		if top > 0 {
			sum += most / top * most / top
		}
	}
	return math.Sqrt(sum / float64(max(1, len(b)/want.Cols)))
}

// TestScanScales: operands that are powers of two times as large give results that are that many
// times as large, to the last bit: scans in halves scale what is large and small alike.
func TestScanScales(t *testing.T) {
	check(t, "ssd_scan", func(t *rapid.T) {
		d, c := drawHalves(t)
		want, launches := scanned(t, d, &c, true)
		if len(launches) == 0 {
			return
		}
		x, b, by := d.pick("x", -30, 0, 30), d.pick("b", -20, 30), d.pick("c", -20, 0, 20)
		for i, e := range map[int]int{0: x, 3: b, 4: by, 5: x + b} {
			multiply(c.Args[i].F32, float32(math.Ldexp(1, e)))
		}
		got, _ := scanned(t, d, &c, true)
		multiply(want[0].F32, float32(math.Ldexp(1, x+b+by)))
		multiply(want[1].F32, float32(math.Ldexp(1, x+b)))
		for i := range got {
			if !slices.Equal(values(&got[i]), values(&want[i])) {
				t.Fatalf("result %d depends on the size of operands", i)
			}
		}
	})
}
