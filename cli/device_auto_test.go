package cli

import (
	"bytes"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/devices"
)

// said runs a command and returns what it writes to standard error.
func said(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &errs)
	}
	return errs.String()
}

// TestAutoDevice: a GPU is chosen if there is one and the model fits, for few weights only if auto
// is given; each choice is said, of the CPU with --verbose. The simulated GPU stands in.
func TestAutoDevice(t *testing.T) {
	defer func(name string, n int64) { autoDevice, autoBytes = name, n }(autoDevice, autoBytes)
	golden := filepath.Join("..", "testdata", "golden", "mamba-a")
	const gpu, cpu = "krait: using cuda-sim: ", "krait: using the CPU: "
	for _, c := range []struct {
		name, device string
		least        int64
		flags        string
		want         string
	}{
		{"default, few weights", "cuda-sim", 100e6, "", cpu + "the weights have less than 100.0 MB"},
		{"auto, few weights", "cuda-sim", 100e6, "--device auto", gpu + "simulated has room for the weights of 470.5 kB; "},
		{"default, many weights", "cuda-sim", 1, "", gpu},
		{"named", "cuda-sim", 1, "--device cpu", ""},
		{"ranks", "cuda-sim:2", 1, "--tp 2", "krait: using cuda-sim:2: 2 × "},
		{"random", "cuda-sim", 1, "--random-weights 1", gpu},
		{"threads", "cuda-sim", 1, "--threads 2", cpu + "--threads is for it"},
		{"int8", "cuda-sim", 1, "--math int8", cpu + "--math int8 is for it"},
		{"reference", "cuda-sim", 1, "--reference", cpu + "--reference has its kernels there"},
		{"no GPU", "cuda", 1, "", cpu + "open libcuda.so.1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			autoDevice, autoBytes = c.device, c.least
			args := append([]string{"generate", golden, "--ids", "1,2,3", "-n", "1", "--verbose"}, strings.Fields(c.flags)...)
			got := said(t, args...)
			if line := firstWith(got, "krait: using "); !strings.HasPrefix(line, c.want) || (c.want == "") != (line == "") {
				t.Errorf("%q, want %q; all it said is\n%s", line, c.want, got)
			}
			if on := strings.Contains(got, " on cuda-sim"); on != strings.HasPrefix(c.want, "krait: using cuda-sim") {
				t.Errorf("it ran elsewhere:\n%s", got)
			}
		})
	}
	autoDevice, autoBytes = "cuda-sim", 1
	if got := said(t, "generate", golden, "--ids", "1,2,3", "-n", "1", "-q"); got != "" {
		t.Errorf("--quiet says %q", got)
	}
	autoDevice = "cuda"
	if got := said(t, "generate", golden, "--ids", "1,2,3", "-n", "1"); strings.Contains(got, "using") {
		t.Errorf("the CPU is said without --verbose: %q", got)
	}
}

// firstWith returns the first line that begins with a text.
func firstWith(text, begin string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begin) {
			return line
		}
	}
	return ""
}

// TestFits: weights of ranks that share a GPU add up.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		device  string // GPUs of 16 GB
		weights int64
		ranks   int
		want    string
	}{
		{"cuda-sim", 11.5e9, 1, "simulated has room for the weights of 11.5 GB"},
		{"cuda-sim", 11.6e9, 1, ""},
		{"cuda-sim", 11.5e9, 4, "simulated has room for the weights of 11.5 GB"},
		{"cuda-sim:2", 11.6e9, 1, ""},
		{"cuda-sim:2", 23e9, 2, "2 × simulated has room for the weights of 23.0 GB"},
		{"cuda-sim:2", 11.6e9, 4, ""}, // all on the first
	} {
		d, err := devices.Driver(c.device)
		if err != nil {
			t.Fatal(err)
		}
		list, err := d.Devices()
		if err != nil {
			t.Fatal(err)
		}
		got, why := fits(&cuda.Device{Driver: d}, list, c.weights, c.ranks)
		if got != c.want || (why == "") != (c.want != "") {
			t.Errorf("%s, %d bytes on %d ranks: %q, %q; want %q", c.device, c.weights, c.ranks, got, why, c.want)
		}
	}
}

// TestFitsBeside: what other programs hold of a GPU is no room for a model.
func TestFitsBeside(t *testing.T) {
	gpu := sim.New(sim.Options{Memory: 1e6, Devices: 2})
	device := &cuda.Device{Driver: gpu}
	list, err := gpu.Devices()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	other, err := gpu.Open(1)
	if err == nil {
		err = other.Bind()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Alloc(600e3); err != nil {
		t.Fatal(err)
	}
	if got, why := fits(device, list, 700e3, 1); got == "" {
		t.Errorf("the first is free: %s", why)
	}
	const want = "a GPU would have weights of 350.0 kB, more than four fifths of the 400.0 kB that are free on simulated"
	if got, why := fits(device, list, 700e3, 2); got != "" || why != want {
		t.Errorf("%q, %q; want %q", got, why, want)
	}
}

// TestAutoFull: a GPU without room for the model is said without --verbose, and the CPU runs it.
func TestAutoFull(t *testing.T) {
	defer func(name string, find func(string) (driver.Driver, error), n int64) {
		autoDevice, autoDriver, autoBytes = name, find, n
	}(autoDevice, autoDriver, autoBytes)
	autoDevice, autoBytes = "cuda-sim", 1
	autoDriver = func(string) (driver.Driver, error) { return sim.New(sim.Options{Memory: 500e3}), nil }
	args := []string{"generate", filepath.Join("..", "testdata", "golden", "mamba-a"), "--ids", "1,2,3", "-n", "1"}
	const want = "krait: using the CPU: a GPU would have weights of 470.5 kB, more than four fifths of the 450.0 kB that a model may take on simulated\n"
	if got := said(t, args...); firstWith(got, "krait: using ") != want || !strings.Contains(got, " on cpu") {
		t.Errorf("it said\n%s; want %s", got, want)
	}
	if got := said(t, append(args, "-q")...); got != "" {
		t.Errorf("--quiet says %q", got)
	}
}

// TestAutoInstead: where the GPU that was chosen cannot open the model, the CPU runs it, and why
// is said.
func TestAutoInstead(t *testing.T) {
	defer func(name string, open func(string, devices.Options) (exec.Device, error)) {
		autoDevice, openDevice = name, open
	}(autoDevice, openDevice)
	autoDevice = "cuda-sim"
	openDevice = func(name string, o devices.Options) (exec.Device, error) {
		if name == "cuda-sim" {
			return nil, driver.CUDA("cuMemAlloc_v2", driver.OutOfMemory)
		}
		return devices.Open(name, o)
	}
	got := said(t, "generate", "-n", "1", "--device", "auto", "In")
	if !strings.Contains(got, "\nkrait: using the CPU: cuda-sim cannot open the model: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY") || !strings.Contains(got, " on cpu") {
		t.Errorf("%s", got)
	}
}
