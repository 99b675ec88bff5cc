package driver

import "fmt"

// DeviceInfo describes a device.
type DeviceInfo struct {
	Index      int
	Name       string
	Capability [2]int // compute capability: 9, 0
	Memory     int64  // bytes
	SMs        int    // multiprocessors
	ClockKHz   int    // of the multiprocessors
	SharedMax  int    // most shared memory of a block, bytes; see Function.SetMaxShared
	PCI        string // "0000:3b:00.0"
	Links      []Link // to the other devices

	HostReaches     bool // its streams are [HostStream]: it is simulated
	DependentLaunch bool // launches may be LaunchConfig.Dependent, also in graphs
}

// Link is how a device reaches another.
type Link struct {
	Device  int  // the other one
	Access  bool // may read and write its memory (peer-to-peer)
	Atomics bool // with atomics, as over NVLink
	Rank    int  // of the link's speed among those of the machine; lower is faster
}

// String is a line for people.
func (d DeviceInfo) String() string {
	return fmt.Sprintf("%d: %s, sm_%d%d, %s, %d SMs, PCI %s", d.Index, d.Name, d.Capability[0], d.Capability[1], Bytes(d.Memory), d.SMs, d.PCI)
}

// LinkTo finds the link to another device.
func (d DeviceInfo) LinkTo(other int) (Link, bool) {
	for _, l := range d.Links {
		if l.Device == other {
			return l, true
		}
	}
	return Link{}, false
}
