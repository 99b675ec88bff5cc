package sim

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
)

// errWaits is what a kernel's work returns that waits for another device, and has done nothing yet.
var errWaits = errors.New("it waits for another device")

// signals are what kernels tell those of other devices, by stores that they release and acquire.
type signals struct {
	last  ptx.Peers // of the kernel that ran last
	given int       // counts what may end a wait: kernels that have released, and all that is no kernel
}

// begin is for a kernel of a device.
func (s *signals) begin(p *primary) *ptx.Peers {
	if len(p.devices) < 2 {
		return nil
	}
	s.last.Reaches = func(at uint64) string {
		b := p.blocks.find(driver.Ptr(at))
		if b == nil || b.p == p || p.peers[b.p] {
			return ""
		}
		return fmt.Sprintf("in the memory of device %d, to which device %d has no peer access", b.p.info.Index, p.info.Index)
	}
	return &s.last
}

// of is what an op that has just run has told, if it is a kernel.
func (s *signals) of(o *op) *ptx.Peers {
	if o.task == nil || !o.about.Kernel {
		return &ptx.Peers{}
	}
	return &s.last
}
