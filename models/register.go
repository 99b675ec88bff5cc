package models

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Register adds a family: read is called for checkpoints whose config.json has that model_type.
// It reads the keys through the getters of [Config], which collect what is wrong with them, and
// returns what [Define] makes. A key that no getter reads is a warning: [Config.Without]
// names those that change nothing, [Config.Refuse] those that are not supported.
//
//	models.Register("acme", func(c *models.Config) *models.Model {
//		width, vocab := c.Int("hidden_size", 64, 1), c.Int("vocab_size", 256, 1)
//		return models.Define(vocab, c.Layers(2), func(p *models.Parts) { … })
//	})
//
// It is called from an init function, before any checkpoint is opened; a model_type that is
// known panics.
func Register(modelType string, read func(c *Config) *Model) {
	if modelType == "" || read == nil {
		panic("models.Register: a family needs a model_type and a function that reads its config")
	}
	if _, ok := families[modelType]; ok {
		panic(fmt.Sprintf("models.Register: the family %q is there already", modelType))
	}
	families[modelType] = read
}

// Families lists the values of model_type that are known, sorted.
func Families() []string { return slices.Sorted(maps.Keys(families)) }

// Define is a model of a family that is registered: the size of its vocabulary, its number of
// layers, and what builds its graph. The graph's output is logits, f32[o v]: [Parts.Logits] makes
// it. Where values are called layers.i.h, layers.i.mixer.… as in Krait's own families, krait
// check, explain and the drawings speak of blocks.
func Define(vocab, layers int, build func(p *Parts)) *Model {
	return &Model{Vocab: vocab, Layers: layers, build: func(p *parts) {
		own := &Parts{Builder: p.Builder, parts: p, root: &root{vocab: vocab, builder: p.Builder}}
		build(own)
		if p.Err() == nil && p.err == nil && !own.root.logits {
			p.err = errors.New("the family's graph has no logits: its last line is p.Logits(h, table)")
		}
	}}
}

// Parts builds the graph of a family that is registered: a [graph.Builder] that knows how the
// checkpoint stores tensors, and the inputs of every batch.
type Parts struct {
	*graph.Builder
	parts *parts
	root  *root
}

// root is what the parts of all scopes have in common.
type root struct {
	builder *graph.Builder
	vocab   int
	logits  bool
}

// In is the parts of a scope below, whose tensors are below it in the file too:
// p.In("layers", 3).
func (p *Parts) In(path ...any) *Parts {
	q := p.parts
	for _, x := range path {
		q = q.in(x)
	}
	return &Parts{q.Builder, q, p.root}
}

// Under is the same scope with tensors under another prefix of the file, which says all
// of it: "model.layers.3.".
func (p *Parts) Under(prefix string) *Parts {
	q := p.parts.under(prefix)
	return &Parts{q.Builder, q, p.root}
}

// Matrix is the tensor out × in of this scope in the number format of the file, so that it
// stays where the file has it.
func (p *Parts) Matrix(tensor string, out, in graph.Dim) *graph.Value {
	return p.parts.matrix(tensor, out, in)
}

// Vector is a tensor of this scope in f32, whatever the file has: one of few elements, such as
// biases, norms and rates.
func (p *Parts) Vector(tensor string, dims ...graph.Dim) *graph.Value {
	return p.parts.small(tensor, dims...)
}

// IDs is the batch's tokens, i32[t].
func (p *Parts) IDs() *graph.Value { return p.parts.ids }

// Seg says where each sequence of the batch begins, how many tokens it has, and its state's
// slot: i32[s 3].
func (p *Parts) Seg() *graph.Value { return p.parts.seg }

// Past is how many tokens each sequence had before: i32[s].
func (p *Parts) Past() *graph.Value {
	if p.parts.past == nil {
		p.parts.past = p.root.builder.Input("past", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs)))
	}
	return p.parts.past
}

// Rows lists the tokens whose logits are wanted: i32[o].
func (p *Parts) Rows() *graph.Value { return p.parts.rows }

// Logits makes the outputs: of rows h[o width], which [graph.Builder.SelectRows] keeps of all
// tokens, the product with table[vocabulary width], and the tokens chosen from it.
func (p *Parts) Logits(h, table *graph.Value) {
	b := p.root.builder
	if b.Err() != nil {
		return
	}
	if n := table.Type.Dims[0].Len(); n != p.root.vocab {
		p.parts.err = fmt.Errorf("the table of logits has %d rows, and the vocabulary %d tokens", n, p.root.vocab)
		return
	}
	logits := b.MatMul("logits", h, table)
	b.Output("logits", logits)
	b.Tokens(logits)
	p.root.logits = true
}
