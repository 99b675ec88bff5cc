// Package devices opens devices by name: cpu, cuda, cuda-sim and, in a program that
// is built with the tag gorgonia_cu, gorgonia-cu. Importing it links the bindings of
// the CUDA driver, and with them the C library's loader: on Linux the program then
// needs glibc, unless it is built with the tag nocuda or static.
package devices

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	kernels "github.com/krait-ml/krait/kernels/cuda"
)

// Names lists the devices.
var Names = []string{"cpu", "cuda", "cuda-sim", "gorgonia-cu"}

// Help describes the names.
const Help = "cpu, cuda, cuda-sim: a simulated GPU, slow and strict (cuda-sim:4 for four), or gorgonia-cu: through gorgonia.org/cu, if it is built in"

// Options configure a device.
type Options struct {
	// Math is how products are computed: f32 (also for an empty one); bf16, which rounds
	// activations: on a GPU products of many rows, on tensor cores, on the CPU products with
	// weights in bf16, which AMX and AVX512_BF16 do faster than f32; or on the CPU int8, which
	// rounds those of weights in blocks to 8 bits.
	Math string
	// NoGraphs launches kernels one by one instead of a captured graph, on a GPU.
	NoGraphs bool
	// NoDependent turns programmatic dependent launch off, on GPUs that have it.
	NoDependent bool
	// PeerBytes is the largest all-reduce, in bytes, that runs over peer memory; NCCL runs larger
	// ones. 0: 512 KiB; below 0: NCCL runs all.
	PeerBytes int
	// BatchInvariant lets the bits of a sequence not depend on what runs beside it, on GPUs. The CPU
	// always does so.
	BatchInvariant bool
}

// Open opens a device.
func Open(name string, o Options) (exec.Device, error) {
	math, ok := map[string]kernels.Math{"": kernels.F32, "f32": kernels.F32, "bf16": kernels.BF16, "int8": kernels.F32}[o.Math]
	if !ok {
		return nil, fmt.Errorf("math is %q; it must be f32, bf16 or int8", o.Math)
	}
	if name == "" || name == "cpu" {
		if o.NoGraphs {
			return nil, errors.New("CUDA graphs are for GPUs: leave out --no-graphs on the cpu")
		}
		if o.NoDependent {
			return nil, errors.New("dependent launch is for GPUs: leave out --no-dependent-launch on the cpu")
		}
		if o.PeerBytes != 0 {
			return nil, errors.New("peer memory is for GPUs: leave out --peer-bytes on the cpu")
		}
		return &cpu.Device{Math: o.Math}, nil
	}
	if o.Math == "int8" {
		return nil, errors.New("math is int8, which is for the cpu; on GPUs it must be f32 or bf16")
	}
	d, err := Driver(name)
	if err != nil {
		return nil, err
	}
	return &cuda.Device{Driver: d, Math: math, NoGraphs: o.NoGraphs || name == "gorgonia-cu", NoDependent: o.NoDependent, PeerBytes: o.PeerBytes,
		BatchInvariant: o.BatchInvariant}, nil // which has no graphs
}

// Driver finds the driver of a device other than the CPU.
func Driver(name string) (driver.Driver, error) {
	switch name {
	case "cuda":
		return nvidiaDriver()
	case "gorgonia-cu":
		return gorgoniaDriver()
	}
	kind, number, several := strings.Cut(name, ":")
	n, err := strconv.Atoi(number)
	switch {
	case kind != "cuda-sim":
		return nil, fmt.Errorf("unknown device %q; the devices are %s", name, Help)
	case !several:
		n = 1
	case err != nil || n < 1 || n > 16:
		return nil, fmt.Errorf("device %q: a number of simulated GPUs is 1 to 16", name)
	}
	return sim.New(sim.Options{Devices: n, Memory: simMemory, Registers: kernels.Registers}), nil
}

// simMemory is the memory of a simulated GPU; the host gives it when it is used.
const simMemory = 16e9
