package driver

// UniqueID names a group of ranks.
type UniqueID [128]byte

// Collectives is one rank's communicator. Each call puts work into a stream;
// it runs when all ranks it is about have come to it. All ranks make the same
// calls in the same order; send and receive match in the order of each pair.
//
// What allocates, frees, loads a module or ends a capture may wait for the work of
// all devices of the group, and so for a collective that waits for this rank: all
// ranks do such things before any of them begins with collectives, and synchronise
// on the host in between.
type Collectives interface {
	// AllReduce sums count elements of all ranks. send may be recv.
	AllReduce(s Stream, send, recv Ptr, count int64, f Format) error
	// ReduceScatter sums count·ranks elements; rank i gets the i-th part of
	// count.
	ReduceScatter(s Stream, send, recv Ptr, count int64, f Format) error
	// AllGather lays the count elements of each rank one after the other.
	AllGather(s Stream, send, recv Ptr, count int64, f Format) error
	// Broadcast copies count elements of root to all.
	Broadcast(s Stream, send, recv Ptr, count int64, f Format, root int) error
	// Send and Recv move count elements from one rank to another.
	Send(s Stream, buf Ptr, count int64, f Format, peer int) error
	// Recv is the other end of Send.
	Recv(s Stream, buf Ptr, count int64, f Format, peer int) error
	// GroupStart lets the calls up to GroupEnd run together, so that none
	// waits for another: a rank that sends and receives must group them.
	GroupStart() error
	// GroupEnd puts the group's calls into their streams.
	GroupEnd() error
	// AsyncError is what went wrong since, perhaps with another rank.
	AsyncError() error
	// Abort ends this rank's part, whatever it waits for; any goroutine may
	// call it. The other ranks wait on until theirs are aborted: when one
	// fails, abort all.
	Abort() error
	// Close gives the communicator back when all its work is done.
	Close() error
}
