package exec

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Device runs ranks: exec/cpu, exec/cuda, or another package's.
type Device interface {
	// Open makes a machine for the schedules of this process's ranks, in the order of their ranks,
	// and loads their weights. They take part in collectives through the world, or by links of the
	// device's own.
	Open(local []*lowering.Schedule, world comm.World, o Setup) (Machine, error)
}

// Setup configures a machine.
type Setup struct {
	// Tensor finds a tensor of the checkpoint, whose memory stays valid as long as the machine is
	// used. nil: results do not matter, and devices that can (cuda, virtual) allocate weights
	// without loading them.
	Tensor func(name string) (graph.Array, error)
	// Slots is the number of slots that steps see: those of sequences, and spares for trials.
	Slots int
	// Trials is the number of spares. Devices without trials return an error that says so, before
	// they load weights, where it is not 0.
	Trials int
	// Context is the most tokens of a sequence, 0: no limit, and PageTokens the tokens of a KV
	// page.
	Context, PageTokens int
	// LocalRanks is the number of processes of the world on this host, this one included, and
	// LocalRank how many of them have lower ranks; 0: all ranks are in this process.
	LocalRanks, LocalRank int
	// Follower says that rank 0, in another process, has the outputs.
	Follower bool
	// Progress is called with the bytes of weights that were loaded; nil: not called.
	Progress func(done, total int64)
	// Record is called with what ranks did when; nil: nothing is measured.
	Record Recorder
	// Recording is called before each step: whether to record it; nil: always. A device may record
	// nevertheless.
	Recording func() bool
	// CheckFiles is that of [Options], for the processes of followers.
	CheckFiles func() error
}

// Sized is a [Device] that knows the size of its memory.
type Sized interface {
	// Memory is the number of bytes that a number of ranks may take of one of the devices that they
	// run on, of the smallest; 0: unknown. Share is how many of the ranks share a device: all, or
	// one.
	Memory(ranks int) (bytes int64, share int)
}

// Machine holds ranks: their weights, states and arenas. An [Engine] calls it from one goroutine at
// a time.
type Machine interface {
	state.Memory
	// Step runs a batch and returns the outputs, in the order of the schedules, in host memory that
	// is valid until the next step; outputs that the batch leaves out have no data. After an error
	// the machine can run other steps.
	Step(ctx context.Context, w *Work) ([]kernels.Tensor, error)
	// Replay runs recurrences again: on each slot given, which has the states before a trial, the
	// first of the trial's tokens, whose operands are in the ring. The step's outputs stay valid.
	Replay(ctx context.Context, list []state.Replay) error
	// Collectives counts the collectives since ResetCounts.
	Collectives() []CollectiveCount
	ResetCounts()
	// Transport describes how collectives travel, if the device has several ways.
	Transport() string
	Close()
}

// Chains is a [Device] whose ranks may pass states along a chain ([lowering.Stages]).
type Chains interface{ Chains() bool }

// Pipelines is a [Device] whose machines are a [Pipeline].
type Pipelines interface{ Pipelines() }

// Pipeline is a [Machine] whose ranks may be in stages and replicas. Each batch runs on the ranks
// of its replica; those of one replica follow each other through its stages, in their order.
type Pipeline interface {
	Machine
	// StepEach runs batches. It calls next for more when the first rank has run all given so far,
	// until there are none: the others may still run them.
	StepEach(ctx context.Context, next func(Await) []*Work) error
}

// Await waits until all ranks have run the n-th batch of a [Pipeline.StepEach], and returns its
// outputs as Step does. Its error ends the StepEach.
type Await func(n int) ([]kernels.Tensor, error)

// StepAll runs batches, and returns the outputs of each.
func StepAll(ctx context.Context, m Pipeline, list []*Work) ([][]kernels.Tensor, error) {
	out, given := make([][]kernels.Tensor, len(list)), false
	var failed error
	err := m.StepEach(ctx, func(await Await) []*Work {
		if !given {
			given = true
			return list
		}
		for i := 0; i < len(list) && failed == nil; i++ {
			out[i], failed = await(i)
		}
		return nil
	})
	return out, cmp.Or(err, failed)
}

// Follower is the [Machine] of a process that runs what rank 0 runs, in another process.
type Follower interface {
	Machine
	Rank() int
	Follow(ctx context.Context) error
}

// Work is a batch as devices see it.
type Work struct {
	graph.Batch
	Inputs []Input
	// BlockTables are the KV pages of each sequence: row i of page k is of token k·PageTokens + i.
	BlockTables [][]int32
	// Outputs says which outputs to compute. Steps and inputs that only others need
	// (lowering.Step.For) are left out. Outputs are those of the first local rank, so other ranks
	// leave out whatever only outputs need.
	Outputs lowering.OutputMask
	// Trials are the sequences on trial, in their order.
	Trials []Trial
	// Wide are the rows of the batch that are in whole blocks of a prompt, see [kernels.Call].
	Wide []graph.Run
	// Replica is the one whose ranks run the batch.
	Replica int
}

// Mix counts sequences of several tokens, which are mostly prefills, their tokens, and sequences of
// one token or on trial, which are mostly decodes.
func (w *Work) Mix() (prefills, tokens, decodes int) {
	from := 0
	for i, end := range w.Ends {
		if n := end - from; n == 1 || slices.ContainsFunc(w.Trials, func(t Trial) bool { return t.Sequence == i }) {
			decodes++
		} else {
			prefills++
			tokens += n
		}
		from = end
	}
	return prefills, tokens, decodes
}

// addWide adds the whole blocks of a sequence that has tokens behind some others, from a row on.
func (w *Work) addWide(row, past, tokens int) {
	const block = graph.PartBlock
	first, end := (past+block-1)/block*block, (past+tokens)/block*block
	if first >= end {
		return
	}
	run := graph.Run{Start: row + first - past, Len: end - first}
	if n := len(w.Wide); n > 0 && w.Wide[n-1].End() == run.Start {
		w.Wide[n-1].Len += run.Len
		return
	}
	w.Wide = append(w.Wide, run)
}

// Runs reports whether a batch needs a step, or an input, that serves some outputs: on the rank
// that returns the outputs, or on another.
func (w *Work) Runs(serves []int, returns bool) bool {
	return serves == nil || returns && w.Outputs.Needs(serves)
}

// Input is an input of the graph, on the host. Its data is the same for all ranks, and is not
// changed before the step has ended.
type Input struct {
	Name string
	Type graph.Type
	Data []byte
	For  []int // the outputs that need it; nil: all ranks do
}

// Inputs lists the inputs of the schedules of all ranks, without data.
func Inputs(schedules []*lowering.Schedule) ([]Input, error) {
	var w Work
	for _, s := range schedules {
		for _, b := range s.Buffers {
			if b.Space != lowering.Input {
				continue
			}
			in := w.Find(b.Name)
			if in == nil {
				w.Inputs = append(w.Inputs, Input{Name: b.Name, Type: b.Type, For: b.For})
				continue
			}
			if !in.Type.Equal(b.Type) {
				return nil, fmt.Errorf("input %s is %s on rank %d and %s on another", b.Name, b.Type, s.Rank, in.Type)
			}
			if b.For == nil {
				in.For = nil
			}
		}
	}
	return w.Inputs, nil
}

// Find returns an input by its name, or nil.
func (w *Work) Find(name string) *Input {
	for i := range w.Inputs {
		if w.Inputs[i].Name == name {
			return &w.Inputs[i]
		}
	}
	return nil
}

// Input returns an input that the schedules name.
func (w *Work) Input(name string) *Input {
	in := w.Find(name)
	if in == nil {
		panic("BUG: the batch has no input " + name)
	}
	return in
}
