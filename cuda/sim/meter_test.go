package sim

import (
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
)

// TestRegistersOfBlock: a block that takes more registers than there are is refused when
// it is launched.
func TestRegistersOfBlock(t *testing.T) {
	taken := 64
	d := New(Options{Registers: func(module, kernel string, capability [2]int) int {
		if module == "" || kernel == "" || capability != [2]int{8, 0} {
			t.Errorf("registers of %q of %q on %v", kernel, module, capability)
		}
		return taken
	}})
	v := drivertest.Open(t, d, 0)
	s, x := v.NewStream(), v.Words(1024)
	block := func(threads uint32) error {
		return s.Launch(v.Kernel("store"), &driver.LaunchConfig{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{threads, 1, 1}, Params: drivertest.Params(x, uint32(1), threads)})
	}
	v.Must(block(1024))
	taken = 65
	contains(t, block(1024), nil, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
	contains(t, block(1024), nil, "kernel store: blocks of 1024 threads of 65 registers take 73728, of 65536 that a multiprocessor has")
	v.Must(block(896))                         // 28 warps of 2304
	contains(t, block(897), nil, "take 73728") // warps come in fours
	v.Must(s.Synchronize())
}

// TestChain: the meter tells what ran, and how much of it waits for each other.
func TestChain(t *testing.T) {
	m := &Meter{}
	v := drivertest.Open(t, New(Options{Meter: m, Seed: 3}), 0)
	a, b := v.NewStream(), v.NewStream()
	x, y := v.Words(64), v.Words(64)
	fork, join := v.NewEvent(false), v.NewEvent(false)
	longest := func() (chain, kernels int) {
		v.Must(v.Synchronize())
		for _, d := range m.Done {
			chain = max(chain, d.Chain)
			if d.Kernel {
				kernels++
				if d.Name == "store" && (d.Stores.Distinct != 256 || d.Loads.Bytes != 0) {
					t.Errorf("%+v", d)
				}
			}
		}
		m.Done = nil
		return chain, kernels
	}
	want := func(what string, chain, kernels, wantChain, wantKernels int) {
		if chain != wantChain || kernels != wantKernels {
			t.Errorf("%s: a chain of %d, %d kernels; want %d, %d", what, chain, kernels, wantChain, wantKernels)
		}
	}
	v.Must(v.Store(a, x, 1, 64))
	v.Must(v.Store(a, x, 1, 64))
	v.Must(v.Store(b, y, 1, 64))
	chain, kernels := longest()
	want("two streams", chain, kernels, 2, 3)
	v.Must(v.Store(a, x, 1, 64)) // the third of a
	v.Must(a.Record(fork))
	v.Must(b.Wait(fork))
	v.Must(v.Store(b, y, 1, 64))
	chain, kernels = longest()
	want("an event", chain, kernels, 4, 2)
	v.Must(a.BeginCapture())
	v.Must(a.Record(fork))
	v.Must(b.Wait(fork))
	v.Must(v.Store(a, x, 1, 64))
	v.Must(v.Store(b, y, 1, 64))
	v.Must(v.Store(b, y, 1, 64))
	v.Must(b.Record(join))
	v.Must(a.Wait(join))
	g, err := a.EndCapture()
	v.Must(err)
	v.Must(g.Launch(a)) // after the third of a: two more, twice
	v.Must(g.Launch(a))
	chain, kernels = longest()
	want("a graph", chain, kernels, 7, 6)
	v.Must(a.Copy(y, x, 256))
	v.Must(v.Synchronize())
	if len(m.Done) != 1 || m.Done[0].Kernel || m.Done[0].Loads.Distinct != 256 || m.Done[0].Chain != 8 {
		t.Errorf("a copy: %+v", m.Done)
	}
	v.Must(g.Close())
}

// TestMeteredProduct: operands in their format and the result in its own count once, and what is
// added to as well.
func TestMeteredProduct(t *testing.T) {
	for _, c := range []struct {
		call          driver.GemmCall
		loads, stores int64
	}{
		{driver.GemmCall{M: 3, N: 5, K: 7, In: driver.BF16, Out: driver.BF16}, 2 * (3*7 + 5*7), 2 * 3 * 5},
		{driver.GemmCall{M: 3, N: 5, K: 7, In: driver.BF16, Accumulate: true}, 2*(3*7+5*7) + 4*3*5, 4 * 3 * 5},
	} {
		if a := aboutProduct(&c.call); a.Loads.Bytes != c.loads || a.Loads.Distinct != c.loads || a.Stores.Bytes != c.stores {
			t.Errorf("%+v: %+v loaded, %+v stored; want %d and %d bytes", c.call, a.Loads, a.Stores, c.loads, c.stores)
		}
	}
}
