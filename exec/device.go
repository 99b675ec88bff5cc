package exec

import (
	"context"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Device is where schedules run: the CPU, or what another package brings.
type Device interface {
	// Open makes a machine for the schedules of all ranks and loads its weights,
	// for so many slots and with so much room in caches as the options say. The
	// data of the inputs is there when a step runs.
	Open(schedules []*lowering.Schedule, tensor func(name string) (graph.Array, error), inputs []*Input, o Options) (Machine, error)
}

// Machine holds the ranks: their weights, their states, their arenas. An [Engine]
// calls it from one goroutine at a time.
type Machine interface {
	// Step runs a batch of these sizes. An error leaves the machine fit for
	// others.
	Step(ctx context.Context, z graph.Sizes) error
	// Output is output i of the schedules after a step, in host memory that is
	// valid until the next.
	Output(i int) (kernels.Tensor, error)

	// Clear makes the states of a slot zero; caches stay as they are.
	Clear(slot int) error
	// Read and Write copy bytes of the memory that a rank's buffer is in, from a byte
	// on: of all states, which has a run of the schedule's Bytes per slot, or of a
	// cache, which has Room rows per slot.
	Read(rank, buffer int, at int64, to []byte) error
	Write(rank, buffer int, at int64, from []byte) error
	// Room is how many tokens per slot the caches have room for; Grow makes more.
	Room() int
	Grow(room int) error

	// Collectives lists what the collectives did since ResetCounts.
	Collectives() []CollectiveCount
	ResetCounts()
	Close()
}

// Input is an input of the graph as a batch gives it, on the host.
type Input struct {
	Name string
	Type graph.Type
	Data []byte

	fill  func(*Batch, *Input) error
	limit int // ids must be below it, unless it is 0
}
