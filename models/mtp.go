package models

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// mtp is a head for multi-token prediction (DeepSeek-AI 2024, https://arxiv.org/abs/2412.19437,
// section 2.2): a small model that drafts the token after the next. From h, the hidden state of
// token i behind the last norm, and e, the embedding of token i+1, it computes
//
//	x = fc [norm e | norm h]
//	y = norm of what its own blocks make of x
//
// The model's head turns y into logits of token i+2, and y is the h of the draft after. Embedding
// and head are the model's.
type mtp struct {
	key       string // of the config, for the number of layers
	layers    int    // Krait runs 1; 0: there is no head
	said      bool   // the config has the key
	dedicated bool   // it has an embedding of its own
	// Tensors: of the norms of e and h, of fc, and of the last norm.
	normE, normH, fc, last string
	// blocks is what its blocks make of the residual stream x, in the scope of the head.
	blocks func(p *parts, x *graph.Value) *graph.Value
	around *backbone // its model's
}

// check returns an error unless Krait can run the head, of a checkpoint that has it or not.
func (d *mtp) check(there bool) error {
	switch {
	case d.layers > 1:
		return fmt.Errorf("%s is %d; Krait drafts with one MTP layer: use ngram or draft:DIR", d.key, d.layers)
	case d.dedicated:
		return errors.New("mtp_use_dedicated_embeddings is true; Krait drafts with MTP heads that share the model's embedding: use ngram or draft:DIR")
	case d.layers == 0 || !there:
		return fmt.Errorf("the checkpoint has no MTP head (tensor mtp.%s): use ngram or draft:DIR", d.fc)
	}
	return nil
}

// readMTP reads how many layers the head has.
func (c *Config) readMTP(key string) *mtp {
	_, said := c.get(key)
	return &mtp{key: key, layers: c.Int(key, 1, 0), said: said}
}

// build adds the nodes of a head.
func (d *mtp) build(p *parts) {
	m := d.around
	h := p.Input(graph.HiddenOutput, graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), m.hidden))
	e, embeddings := m.embed(p, "e")
	root := p.under("mtp.")
	both := p.Concat("both", "e|h", m.norm(root, "norm_e", e, d.normE), m.norm(root, "norm_h", h, d.normH))
	in := graph.Pack(named("e", m.hidden), named("h", m.hidden))
	x := d.blocks(root, p.MatMul("fc", both, root.matrix(d.fc, m.hidden, in)))
	x = m.norm(root, "norm_f", p.SelectRows("wanted", x, p.rows), d.last)
	p.Output(graph.HiddenOutput, x)
	m.head(p, x, embeddings)
}

// MTP builds the graph of the model's MTP head. Its inputs are those of [Model.Graph], and hidden,
// f32[t hidden], the hidden states of the tokens before ids. Its outputs are logits, tokens, and
// hidden, f32[o hidden], of the tokens that it drafts. tensor is as in Graph.
func (m *Model) MTP(tensor func(name string) (graph.DType, bool)) (*graph.Graph, error) {
	if m.mtp == nil {
		return nil, fmt.Errorf("the family %s has no MTP heads that Krait runs: use ngram or draft:DIR", m.Family)
	}
	there := tensor == nil
	if !there {
		_, there = tensor("mtp." + m.mtp.fc)
	}
	if err := m.mtp.check(there); err != nil {
		return nil, err
	}
	g, _, err := m.graph(m.Family+"_mtp", m.mtp.build, tensor)
	return g, err
}

// HasMTP reports whether the config says that the checkpoint has an MTP head, which [Model.MTP]
// builds.
func (m *Model) HasMTP() bool { return m.mtp != nil && m.mtp.said && m.mtp.check(true) == nil }

// AddHidden adds the output hidden, f32[t hidden], to a graph of [Model.Graph]: the residual stream
// of each token behind the last norm, which an MTP head reads. No other output changes.
func AddHidden(g *graph.Graph) error {
	last, ok := g.Value("norm_f")
	rows, is := g.Value("wanted")
	if !ok || !is {
		return fmt.Errorf("graph %s has no values wanted and norm_f, from which hidden states follow", g.Name)
	}
	n, err := g.Add(last.Def.Op.Name, last.Def.Attrs, []string{graph.HiddenOutput}, rows.Def.Args[0], last.Def.Args[1])
	if err != nil {
		return err
	}
	return g.AddOutput(graph.HiddenOutput, n.Results[0])
}
