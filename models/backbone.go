package models

import "github.com/krait-ml/krait/graph"

// backbone is what is around the mixers: embedding, residual blocks with a norm
// each, the last norm, and the head.
type backbone struct {
	vocab, hidden graph.Dim
	layers        int
	eps           float64
	tied          bool
}

// readBackbone reads the keys of the backbone; the family gives its defaults.
func readBackbone(c *Config, hidden, vocab, layers int, tied bool) backbone {
	// All arithmetic is in f32, the residual stream too.
	c.Bool("residual_in_fp32", true)
	return backbone{
		vocab:  graph.Units(c.Int("vocab_size", vocab, 1), 1),
		hidden: graph.Size(hidden),
		layers: c.Int("num_hidden_layers", layers, 0),
		eps:    c.Positive("layer_norm_epsilon", 1e-5),
		tied:   c.Bool("tie_word_embeddings", tied),
	}
}

// mixer is what a block adds to the residual stream, from the normed stream.
type mixer func(p *parts, n *graph.Value) *graph.Value

func (m *backbone) model(mix mixer) *Model {
	return &Model{Vocab: m.vocab.Len(), Layers: m.layers, build: func(p *parts) { m.build(p, mix) }}
}

func (m *backbone) build(p *parts, mix mixer) {
	root := p.under("backbone.")
	embeddings := root.matrix("embeddings.weight", m.vocab, m.hidden, "backbone.embedding.weight")
	h := p.Embedding("h", p.ids, embeddings)
	for i := range m.layers {
		h = m.block(root.in("layers").in(i), h, mix)
	}
	h = p.SelectRows("wanted", h, p.rows)
	h = p.RMSNorm("norm_f", h, root.small("norm_f.weight", m.hidden), m.eps)
	p.head(h, embeddings, m.vocab, m.hidden, m.tied)
}

// block is h + mixer(norm(h)).
func (m *backbone) block(p *parts, h *graph.Value, mix mixer) *graph.Value {
	n := p.RMSNorm("norm", h, p.small("norm.weight", m.hidden), m.eps)
	return p.Add("h", h, mix(p.in("mixer"), n))
}
