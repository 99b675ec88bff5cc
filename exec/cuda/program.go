package cuda

import (
	"encoding/binary"
	"slices"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// program is all that a rank issues for batches of some sizes: every launch with its
// parameters, built once.
type program struct {
	rank    *rank
	key     programKey
	last    int // when it was used; see programs
	actions []action
	uploads []upload
	outputs []download
	graph   driver.Graph // the whole, captured; nil: not yet
	used    int          // how often it was issued
}

// action is one entry of a stream.
type action struct {
	kind   lowering.Kind // Launch also for kernels of relayouts
	stream lowering.Stream
	event  int
	step   *lowering.Step
	name   string // of the step, for errors
	fn     driver.Function
	config driver.LaunchConfig
	waits  bool             // the kernel itself waits for the launch before it
	gemm   *driver.GemmCall // instead of a launch
	host   *driver.HostCall // likewise
	with   *collective      // of a Collective
}

// sized is the part of a batch's sizes that decides where tensors lie.
func sized(z graph.Sizes) graph.Sizes {
	return graph.Sizes{Tokens: z.Tokens, Seqs: z.Seqs, Rows: z.Rows, Largest: z.Largest}
}

// programKey tells programs apart: the sizes of the batch, where its sequences end if
// ranks have whole ones, which outputs it asks for, and which sequences go token by token; or that
// it is the init steps.
type programKey struct {
	z      graph.Sizes
	ends   string // as varints
	wanted string // a byte per output: 1 if the batch asks for it
	once   bool
	trial  trialKey
}

func keyOf(w *exec.Work, bySequence bool) programKey {
	wanted := make([]byte, len(w.Outputs))
	for i, is := range w.Outputs {
		if is {
			wanted[i] = 1
		}
	}
	key := programKey{z: sized(w.Sizes), wanted: string(wanted)}
	if bySequence {
		var ends []byte
		for _, n := range w.Ends {
			ends = binary.AppendUvarint(ends, uint64(n))
		}
		key.ends = string(ends)
	}
	return key
}

// batch is the batch that the sizes of tensors depend on.
func (k *programKey) batch() *graph.Batch {
	b := &graph.Batch{Sizes: k.z}
	for ends := []byte(k.ends); len(ends) > 0; {
		end, n := binary.Uvarint(ends)
		b.Ends, ends = append(b.Ends, int(end)), ends[n:]
	}
	return b
}

// runs reports whether the program includes a step or an input that serves these outputs. Only the
// first rank gives outputs.
func (r *rank) runs(key programKey, serves []int) bool {
	return serves == nil || r.s.Rank == 0 && slices.ContainsFunc(serves, func(i int) bool { return key.wanted[i] == 1 })
}

// decodes reports whether every sequence has one token, and none is on trial: only such batches are
// captured.
func (p *program) decodes() bool {
	return p.key.z.Seqs > 0 && p.key.z.Tokens == p.key.z.Seqs && p.key.trial == (trialKey{})
}

func (p *program) close() error {
	if p.graph == nil {
		return nil
	}
	return p.graph.Close()
}
