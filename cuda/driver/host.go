package driver

// HostStream is a stream of a device whose memory the host reaches: a simulated one
// ([DeviceInfo.HostReaches]).
type HostStream interface {
	Stream
	// Host puts a function of the host into the queue, in its place among the other work.
	Host(*HostCall) error
}

// HostCall is a function of the host that works on device memory.
type HostCall struct {
	Name string
	// Reads and Writes are the memory that Work may touch.
	Reads, Writes []Range
	Work          func(HostMemory) error
}

// Range is bytes of device memory.
type Range struct {
	At    Ptr
	Bytes int64
}

// HostMemory is device memory within a [HostCall]. To read bytes that nothing has written is an
// error.
type HostMemory interface {
	Read(from Ptr, to []byte) error
	Write(to Ptr, from []byte) error
}
