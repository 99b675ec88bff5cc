package cuda

import (
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// program is what a rank issues for batches of some sizes: every launch with its
// parameters, worked out once.
type program struct {
	rank    *rank
	key     programKey
	last    int // when it was used; see programs
	actions []action
	uploads []upload
	outputs []download
	choose  *choosing    // instead of outputs; nil: tokens are not chosen
	graph   driver.Graph // the whole, captured; nil: not yet
	used    int          // how often it was issued
}

// action is one thing that goes into a stream.
type action struct {
	kind   lowering.Kind // Launch also for what relayouts launch
	stream lowering.Stream
	event  int
	name   string // of the step, for errors
	fn     driver.Function
	config driver.LaunchConfig
	gemm   *driver.GemmCall // instead of a launch
	with   *collective      // of an Exchange
}

// sized is the part of a batch's sizes that decides where tensors lie.
func sized(z graph.Sizes) graph.Sizes {
	return graph.Sizes{Tokens: z.Tokens, Seqs: z.Seqs, Rows: z.Rows}
}

// programKey tells programs apart: the sizes of the batch, and the output that tokens are
// chosen from, counted from 1; or what is run once.
type programKey struct {
	z      graph.Sizes
	choose int
	once   bool
}

// decodes reports whether a batch is worth a captured graph: a token per sequence.
func (p *program) decodes() bool {
	return p.key.z.Seqs > 0 && p.key.z.Tokens == p.key.z.Seqs
}

func (p *program) close() error {
	if p.graph == nil {
		return nil
	}
	return p.graph.Close()
}
