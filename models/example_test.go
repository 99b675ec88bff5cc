package models_test

import (
	"fmt"
	"log"
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// register is called from an init function as a rule, once.
var register = sync.OnceFunc(func() {
	models.Register("acme_gate", func(c *models.Config) *models.Model {
		vocab, width := c.Int("vocab_size", 256, 1), c.Int("hidden_size", 8, 1)
		return models.Define(vocab, c.Layers(1), func(p *models.Parts) {
			words, d := graph.Units(vocab, 1), graph.Size(width)
			table := p.Matrix("table.weight", words, d)
			h := p.Embedding("h", p.IDs(), table)
			h = p.Mul("gated", h, p.Map("gate", "silu", h))
			p.Logits(p.SelectRows("wanted", h, p.Rows()), table)
		})
	})
})

// A program registers a family: a table, a gate, and a head.
func ExampleRegister() {
	register()
	c, err := models.ParseConfig("config.json", []byte(`{"model_type": "acme_gate", "vocab_size": 32, "hidden_sise": 4}`))
	if err != nil {
		log.Fatal(err)
	}
	m, err := models.Read(c)
	if err != nil {
		log.Fatal(err)
	}
	g, err := m.Graph(nil)
	fmt.Println(m.Family, m.Vocab, m.Unknown, g.Outputs[0].Value.Type, err)
	// Output:
	// acme_gate 32 [hidden_sise] f32[o 32/1] <nil>
}
