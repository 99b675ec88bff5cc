package sim

import (
	"errors"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
)

// lose makes the context useless, for the fault of one of its ops. The fault of a kernel leaves the
// process in an inconsistent state (cuda.h): every call on every device returns it from then on.
func (p *primary) lose(call string, fault error) {
	e, ok := fault.(*driver.Error)
	if !ok {
		e = driver.CUDA(call, faultCode(fault)).Because("%s: %v", call, fault)
		e.Cause = fault
	}
	for _, v := range p.devices {
		if v.primary == nil || v.primary != p && e.Kind != driver.ErrKernelFault {
			continue
		}
		v.primary.lost = e
		v.primary.drop("lost its device")
	}
	if e.Kind == driver.ErrKernelFault {
		p.fault = e
	}
}

// faultCode is the number that CUDA gives for a fault. What CUDA does not
// detect is a failed launch.
func faultCode(err error) int {
	var f *ptx.Fault
	if !errors.As(err, &f) {
		return driver.IllegalAddress
	}
	switch f.Kind {
	case ptx.OutOfBounds:
		return driver.IllegalAddress
	case ptx.Misaligned:
		return driver.Misaligned
	case ptx.TooLong:
		return driver.LaunchTimeout
	}
	return driver.LaunchFailed
}
