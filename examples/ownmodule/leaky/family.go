package leaky

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// ModelType is what config.json calls the family.
const ModelType = "acme_leaky"

func init() { models.Register(ModelType, read) }

// read reads config.json. A block is h + out(integrate(in(norm h)) · silu(gate(norm h))).
func read(c *models.Config) *models.Model {
	vocab, width := c.Int("vocab_size", 256, 1), c.Int("hidden_size", 32, 1)
	inner := c.Int("intermediate_size", 2*width, 1)
	eps := c.Positive("layer_norm_epsilon", 1e-5)
	layers := c.Layers(2)
	return models.Define(vocab, layers, func(p *models.Parts) {
		// Units are what ranks may own: tokens of the vocabulary, channels. The
		// model's width has none.
		words, d, ch := graph.Units(vocab, 1), graph.Size(width), graph.Units(inner, 1)
		table := p.Matrix("embeddings.weight", words, d)
		h := p.Embedding("h", p.IDs(), table)
		for i := range layers {
			l := p.In("layers", i)
			n := l.RMSNorm("norm", h, l.Vector("norm.weight", d), eps)
			m := l.In("mixer")
			state := m.State("ssm", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), ch))
			x := m.MatMul("in", n, m.Matrix("in_proj.weight", ch, d))
			y := Integrate(m.Builder, "scan", x, m.Vector("decay", ch), state, p.Seg())
			gate := m.Map("gate", "silu", m.MatMul("gate_w", n, m.Matrix("gate_proj.weight", ch, d)))
			out := m.MatMul("out", m.Mul("gated", y, gate), m.Matrix("out_proj.weight", d, ch))
			h = l.Add("h", h, out)
		}
		h = p.SelectRows("wanted", h, p.Rows())
		p.Logits(p.RMSNorm("norm_f", h, p.Vector("norm_f.weight", d), eps), table)
	})
}
