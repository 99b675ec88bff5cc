//go:build linux && (amd64 || arm64)

package nvidia

import (
	"os"
	"os/exec"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
)

// gpu is the driver of this machine; without one the test is skipped.
func gpu(t *testing.T) driver.Driver {
	d, err := New()
	if err != nil {
		t.Skip(driver.Explain(err))
	}
	return d
}

// TestConformance runs the cases of all drivers on real devices.
func TestConformance(t *testing.T) {
	for _, v := range gpu(t).Versions() {
		t.Logf("%+v", v)
	}
	drivertest.Run(t, gpu)
}

// TestFault faults a real device, in a process of its own: nothing there works
// afterwards.
func TestFault(t *testing.T) {
	d := gpu(t)
	const name = "KRAIT_TEST_FAULT"
	if os.Getenv(name) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFault$")
		cmd.Env = append(os.Environ(), name+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	v := drivertest.Open(t, d, 0)
	s := v.NewStream()
	v.Must(v.Wild(s))
	contains(t, s.Synchronize(), driver.ErrKernelFault, "cuStreamSynchronize")
	_, err := v.Alloc(4)
	contains(t, err, driver.ErrKernelFault, "cu")
}
