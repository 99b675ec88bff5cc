package exec

import (
	"context"

	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Device is where ranks run: exec/cpu, exec/cuda, or what another package brings.
type Device interface {
	// Open makes a machine for the schedules of this process's ranks, in the order of
	// their ranks, and loads their weights. They take part in collectives through the
	// world, or by links of the device's own.
	Open(local []*lowering.Schedule, world comm.World, o Setup) (Machine, error)
}

// Setup says what a machine has room for, and where its weights are.
type Setup struct {
	// Tensor finds a tensor of the checkpoint, whose memory stays valid as long as
	// the machine is used. Nil: nobody is interested in results, and devices that can do
	// without (cuda, virtual) have memory for weights with nothing in it.
	Tensor func(name string) (graph.Array, error)
	// Slots is how many sequences have states.
	Slots int
	// Context is how many tokens a sequence has at most, 0: any number, and PageTokens
	// how many a page of attention caches has.
	Context, PageTokens int
	// Beside is how many processes of the world are on this host, this one included, and
	// Place how many of them have lower ranks; 0: all ranks are in this process.
	Beside, Place int
	// Follows says that outputs are given by rank 0, in another process.
	Follows bool
	// Progress is told of the bytes of weights that were loaded; nil: nobody asks.
	Progress func(done, total int64)
	// Record is told what ranks did when; nil: nobody asks, and nothing is measured.
	Record Recorder
	// Recording is asked before each step whether it is to be recorded; nil: each is. A device
	// may record all the same.
	Recording func() bool
}

// Sized is a [Device] that knows how much memory there is.
type Sized interface {
	// Memory is how many bytes so many ranks may take of the memory of one of the devices that
	// they run on, the least; 0: it is not known. Share is how many of the ranks share one: all,
	// or one.
	Memory(ranks int) (bytes int64, share int)
}

// Machine holds ranks: their weights, their states, their arenas. An [Engine] calls
// it from one goroutine at a time.
type Machine interface {
	// Step runs a batch and returns the outputs, in the order of the schedules, in
	// host memory that is valid until the next step; those that are not wanted are
	// without data. An error leaves the machine fit
	// for other steps.
	Step(ctx context.Context, w *Work) ([]kernels.Tensor, error)

	// KeepSlots makes slots until there are so many in all, those of Setup included.
	// Steps see only these; the others have states that are kept. None moves.
	KeepSlots(n int) error
	// Clear makes the states of a slot zero, and Copy copies them to another slot.
	Clear(slot int) error
	Copy(from, to int) error
	// Read and Write copy bytes of the states that a rank has in a slot, from a byte on.
	Read(rank, slot int, at int64, to []byte) error
	Write(rank, slot int, at int64, from []byte) error

	// Pages makes pages of caches until there are so many in all, each on every rank,
	// for the rows of all its caches. None moves, and nothing is read of one that was
	// not written.
	Pages(n int) error
	// CopyRows copies rows of all caches to the same places of another page.
	CopyRows(from Rows, page int32) error
	// ReadRows and WriteRows copy what a rank's cache has in some rows, in their order.
	ReadRows(rank, buffer int, rows []Rows, to []byte) error
	WriteRows(rank, buffer int, rows []Rows, from []byte) error
	// ReadPage and WritePage copy bytes of the page that a rank has, from a byte on.
	ReadPage(rank int, page int32, at int64, to []byte) error
	WritePage(rank int, page int32, at int64, from []byte) error

	// Collectives lists what the collectives did since ResetCounts.
	Collectives() []CollectiveCount
	ResetCounts()
	// Exchanges says in words how collectives travel, where there are several ways.
	Exchanges() string
	Close()
}

// Rows are some that follow each other in a page.
type Rows struct {
	Page     int32
	First, N int
}

// Work is a batch as devices see it.
type Work struct {
	graph.Batch
	Inputs []Input
	// Pages are those of each sequence, in order: row i of page k is of token
	// k·PageTokens + i.
	Pages [][]int32
	// Wanted says which outputs are wanted. Steps and inputs that serve others alone
	// (lowering.Step.For) are left out, and outputs are those of the first local rank,
	// so that other ranks leave out whatever serves outputs.
	Wanted lowering.Wanted
}

// Mix counts sequences that are fed several tokens, which are prompts, their tokens, and
// sequences of one token, which are mostly those that go on.
func (w *Work) Mix() (prompts, read, continued int) {
	from := 0
	for _, end := range w.Ends {
		if n := end - from; n == 1 {
			continued++
		} else {
			prompts++
			read += n
		}
		from = end
	}
	return prompts, read, continued
}

// Runs reports whether a step, or an input, that serves these outputs is there for a
// batch: on the rank that gives the outputs, or on another.
func (w *Work) Runs(serves []int, gives bool) bool {
	return serves == nil || gives && w.Wanted.Needs(serves)
}

// Input is an input of the graph, on the host. The data is that of all ranks, and
// stays as it is until the step has ended.
type Input struct {
	Name string
	Type graph.Type
	Data []byte
}

// Input finds an input that the schedules name.
func (w *Work) Input(name string) *Input {
	for i := range w.Inputs {
		if w.Inputs[i].Name == name {
			return &w.Inputs[i]
		}
	}
	panic("BUG: the batch has no input " + name)
}
