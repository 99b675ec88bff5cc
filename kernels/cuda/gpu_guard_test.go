package cuda

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/reference"
)

// simulated is a device like one of KRAIT_TEST_DEVICE, on a simulated GPU of compute capability
// 9.0.
func simulated(t *testing.T, meter *sim.Meter) *device {
	g, err := openGPU(sim.New(sim.Options{Capability: [2]int{9, 0}, Meter: meter}))
	if err != nil {
		t.Fatal(err)
	}
	m := &gpuMemory{gpu: g}
	t.Cleanup(m.release)
	return &device{t: t, mem: m, gpu: g}
}

// TestGuards: on a device what is written before an allocation and behind it is found.
func TestGuards(t *testing.T) {
	dev := simulated(t, nil)
	m := dev.mem.(*gpuMemory)
	dev.alloc(100)
	at := dev.alloc(10)
	if err := m.finish(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   int
		want string
	}{{-1, "byte -1 was written of an allocation of 10 bytes"}, {10, "byte 10 was written of an allocation of 10 bytes"}} {
		to := at + uint64(c.at)
		if err := m.Write(to, []byte{0}); err != nil {
			t.Fatal(err)
		}
		if err := m.finish(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
		if err := m.Write(to, []byte{0xff}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDependentOnDevice: on a device kernels that are to be dependent launches are so behind
// another launch, and give the same results.
func TestDependentOnDevice(t *testing.T) {
	x := shaped(graph.F32, 1, 3000)
	x.F32 = make([]float32, 3000)
	for i := range x.F32 {
		x.F32[i] = float32(i%7) - 3
	}
	y := clone(&x)
	c := call(nil, one(y), x)
	k := reference.Kernels["silu"]
	k.Run(&c, 0, 1)
	for depends, want := range map[bool]int{false: 0, true: 2} {
		meter := &sim.Meter{}
		dev := simulated(t, meter)
		on := &Call{Args: []Tensor{dev.upload(&x, 0)}, Results: []Tensor{dev.empty(&x, 0)}}
		launches := dev.plan(findOp(t, "silu"), on)
		for range 3 {
			if err := dev.gpu.launch(&launches[0], depends); err != nil {
				t.Fatal(err)
			}
		}
		got := clone(&x)
		dev.download(on.Results[0], &got)
		same(t, "silu", &got, &c.Results[0], 1e-6)
		dependent := 0
		for _, d := range meter.Done {
			if d.Dependent {
				dependent++
			}
		}
		if dependent != want {
			t.Errorf("%v: %d launches are dependent, want %d", depends, dependent, want)
		}
	}
}
