package models

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// mostAbsent is how many tensors a checkpoint may lack before it is no use to build
// more of the model: the config may describe any number of layers.
const mostAbsent = 1000

// backbone is what is around the blocks: embedding, the last norm, and the head.
type backbone struct {
	vocab, hidden graph.Dim
	layers        int
	eps           float64
	tied          bool
	names         TensorNames
	embedScale    float64 // of the embeddings; 1 as a rule
	logitScale    float64
	other         string // another prefix that tensors may have; empty: none
	centred       bool   // norms are zero-centred: their weights are 1 more than the tensors
}

// norm is that of the stream h, with the weight of a tensor.
func (m *backbone) norm(p *parts, name string, h *graph.Value, tensor string) *graph.Value {
	return p.RMSNorm(name, h, p.weight(name, tensor, m.hidden, m.centred), m.eps)
}

// TensorNames are what families call the tensors around their blocks: what all names begin with, an
// older name of the embeddings, and those of the embeddings and the last norm.
type TensorNames struct{ Prefix, Older, Embeddings, Norm string }

// The names that most families have.
var (
	BackboneNames = TensorNames{"backbone.", "backbone.embedding.weight", "embeddings.weight", "norm_f.weight"}
	ModelNames    = TensorNames{"model.", "", "embed_tokens.weight", "final_layernorm.weight"}
)

// block is one layer: what it makes of the residual stream h; e is the stream as
// the embedding left it.
type block func(p *parts, i int, h, e *graph.Value) *graph.Value

func (m *backbone) model(b block) *Model {
	return &Model{Vocab: m.vocab.Len(), Layers: m.layers, build: func(p *parts) { m.build(p, b) }}
}

// hybrid is a model of which some blocks attend.
func (m *backbone) hybrid(b block) *Model {
	h := m.model(b)
	h.attends = true
	return h
}

func (m *backbone) build(p *parts, b block) {
	root := p.under(m.prefixes()...)
	e, embeddings := m.embed(p, "h")
	h := e
	for i := range m.layers {
		if len(p.absent) > mostAbsent {
			p.err = fmt.Errorf("the checkpoint lacks %d tensors of the first %d of %d layers, such as %s; it is another model's, or not complete", len(p.absent), i, m.layers, p.absent[0])
			return
		}
		h = b(root.in("layers").in(i), i, h, e)
	}
	h = p.SelectRows("wanted", h, p.rows)
	m.head(p, m.norm(root, "norm_f", h, m.names.Norm), embeddings)
}

// prefixes are those of the tensors of the backbone.
func (m *backbone) prefixes() []string {
	if m.other == "" {
		return []string{m.names.Prefix}
	}
	return []string{m.names.Prefix, m.other}
}

// embed is the embeddings of ids, scaled, and their matrix.
func (m *backbone) embed(p *parts, name string) (e, embeddings *graph.Value) {
	var older []string
	if m.names.Older != "" {
		older = append(older, m.names.Older)
	}
	embeddings = p.under(m.prefixes()...).matrix(m.names.Embeddings, m.vocab, m.hidden, older...)
	return p.times(name+"_scaled", p.Embedding(name, p.ids, embeddings), m.embedScale), embeddings
}

// head adds the outputs of normed rows h.
func (m *backbone) head(p *parts, h, embeddings *graph.Value) {
	if !m.tied {
		embeddings = p.under("").matrix("lm_head.weight", m.vocab, m.hidden)
	}
	logits := p.timesTo("logits", m.logitScale, func(name string) *graph.Value { return p.MatMul(name, h, embeddings) })
	p.Output("logits", logits)
	p.Tokens(logits)
}

// mixer is what a block adds to the residual stream, from the normed stream.
type mixer func(p *parts, n *graph.Value) *graph.Value

// residual is the block h + mixer(norm(h)).
func (m *backbone) residual(mix mixer) block {
	return func(p *parts, _ int, h, _ *graph.Value) *graph.Value {
		n := p.RMSNorm("norm", h, p.small("norm.weight", m.hidden), m.eps)
		return p.Add("h", h, mix(p.in("mixer"), n))
	}
}

// transformer is the block of transformers: h = h + mixer(norm(h)), and then
// h + feed forward(norm(h)).
func (m *backbone) transformer(p *parts, h *graph.Value, mix, feedForward mixer) *graph.Value {
	n := p.RMSNorm("norm", h, p.small("input_layernorm.weight", m.hidden), m.eps)
	h = p.Add("mixed", h, mix(p, n))
	n = p.RMSNorm("norm_ff", h, p.small("pre_ff_layernorm.weight", m.hidden), m.eps)
	return p.Add("h", h, feedForward(p.as("mlp", "feed_forward."), n))
}

// readModel reads the keys of a backbone that hybrids share; the family gives
// its defaults.
func readModel(c *Config, vocab, hidden, layers int, eps float64, tied bool) backbone {
	return backbone{
		vocab:      graph.Units(c.Int("vocab_size", vocab, 1), 1),
		hidden:     graph.Size(c.Int("hidden_size", hidden, 1)),
		layers:     c.Layers(layers),
		eps:        c.Positive("rms_norm_eps", eps),
		tied:       c.Bool("tie_word_embeddings", tied),
		names:      ModelNames,
		embedScale: 1,
		logitScale: 1,
	}
}
