package bench

import "github.com/krait-ml/krait/cuda/driver"

// perClock is the floating-point operations of a multiprocessor per clock, by compute capability:
// in f32, and in bf16 on tensor cores (dense, f32 accumulation). From NVIDIA's white papers.
var perClock = map[[2]int][2]float64{
	{8, 0}: {128, 2048},
	{8, 6}: {256, 1024},
	{8, 9}: {256, 1024},
	{9, 0}: {256, 4096},
}

// peak returns the operations per second of a device at its highest clock; 0: unknown.
func peak(d driver.DeviceInfo) (f32, bf16 float64) {
	p := perClock[d.Capability]
	clocks := float64(d.SMs) * float64(d.ClockKHz) * 1e3
	return p[0] * clocks, p[1] * clocks
}
