package sim

import (
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
)

// Host runs a function of the host in the stream's order. A dry meter leaves it out.
func (s *stream) Host(c *driver.HostCall) error {
	const call = "cuLaunchHostFunc"
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	t := &task{name: call + " of " + c.Name, cost: 5 * time.Microsecond, work: func() error {
		if s.o.Meter.dry() {
			return nil
		}
		return c.Work(hostMemory{s.mem})
	}}
	t.about.Done = Done{For: c.Name, Name: call}
	for _, list := range []struct {
		ranges []driver.Range
		to     *[]ptx.Piece
	}{{c.Reads, &t.about.touches.loads}, {c.Writes, &t.about.touches.stores}} {
		for _, r := range list.ranges {
			if r.Bytes == 0 {
				continue
			}
			if err := s.owns(call, r.At, r.Bytes); err != nil {
				return err
			}
			*list.to = append(*list.to, piece(r.At, r.Bytes)...)
		}
	}
	s.put(t)
	return nil
}

type hostMemory struct{ mem *ptx.Memory }

func (m hostMemory) Read(from driver.Ptr, to []byte) error  { return m.mem.Read(uint64(from), to) }
func (m hostMemory) Write(to driver.Ptr, from []byte) error { return m.mem.Write(uint64(to), from) }
