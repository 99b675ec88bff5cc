package models

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/ordered"
)

// Model is what a config describes, ready to become a graph.
type Model struct {
	Family string // model_type
	Vocab  int
	Layers int
	BOS    []int // tokens that begin and end a text, as config.json says
	EOS    []int
	// DType is the format of the weights, as config.json says; files tell better.
	DType graph.DType
	// Unknown lists keys of config.json that Krait does not know. They had no
	// effect.
	Unknown []string

	besides []string // what tensors begin with that decoding has no use for
	attends bool     // it reads positions, and keeps keys and values
	build   func(b *parts)
	mtp     *mtp     // its MTP head; nil: Krait knows none of the family
	config  *Config  // what it was read from
	copies  []copied // tensors that the checkpoint has several times
}

// families maps model_type to what reads the family's config; Register adds others.
var families = map[string]func(*Config) *Model{
	"mamba":        readMamba,
	"mamba2":       readMamba2,
	"falcon_mamba": readFalconMamba,
	"zamba":        readZamba,
	"zamba2":       readZamba2,
	"jamba":        readJamba,
	"bamba":        readBamba,
	"falcon_h1":    readFalconH1,

	"granitemoehybrid": readGraniteHybrid,
	"nemotron_h":       readNemotronH,

	"lfm2":     readLFM2,
	"lfm2_moe": readLFM2MoE,

	"qwen3_next":       readQwen3Next,
	"qwen3_5_text":     readQwen35,
	"qwen3_5_moe_text": readQwen35MoE,
}

// Read makes a model from a config, or says which key is wrong.
func Read(c *Config) (*Model, error) {
	if c.isStateSpaces() {
		if c.stateSpaces(); len(c.errs) > 0 {
			return nil, errors.Join(c.errs...)
		}
	}
	if _, nested := c.values["text_config"]; nested {
		if c.textOf(); len(c.errs) > 0 {
			return nil, errors.Join(c.errs...)
		}
	}
	name := c.ModelType()
	read, ok := families[name]
	if !ok {
		return nil, fmt.Errorf("%s: model_type is %q; Krait knows %s", c.Path, name, strings.Join(Families(), ", "))
	}
	c.common()
	m := read(c)
	if m == nil || m.build == nil {
		return nil, errors.Join(append(c.errs, fmt.Errorf("%s: the family %s gave no model: models.Define makes one", c.Path, name))...)
	}
	m.Family = name
	m.DType = c.dtype()
	m.BOS, m.EOS = c.Tokens("bos_token_id"), c.Tokens("eos_token_id")
	m.Unknown = c.Unknown()
	m.config = c
	return m, errors.Join(c.errs...)
}

// Config is the config that the model was read from.
func (m *Model) Config() *Config { return m.config }

// Copies lists pairs of tensors that a checkpoint has for one parameter, once a graph was built.
func (m *Model) Copies() (pairs [][2]string) {
	for _, c := range m.copies {
		pairs = append(pairs, [2]string{c.first, c.again})
	}
	return pairs
}

// Skips returns the prefix by which a tensor is known to be of no use in decoding; "" if it is not.
func (m *Model) Skips(tensor string) string {
	i := slices.IndexFunc(m.besides, func(prefix string) bool { return strings.HasPrefix(tensor, prefix) })
	if i < 0 {
		return ""
	}
	return m.besides[i]
}

// Graph builds the model's graph. tensor tells the number format of a tensor of
// the checkpoint and whether it is there; nil means that all are, in the format
// of the config.
func (m *Model) Graph(tensor func(name string) (graph.DType, bool)) (*graph.Graph, error) {
	g, copies, err := m.graph(m.Family, m.build, tensor)
	m.copies = copies
	return g, err
}

// graph is the graph that build makes with the inputs of a batch, and the tensors that it has
// several times.
func (m *Model) graph(name string, build func(p *parts), tensor func(name string) (graph.DType, bool)) (*graph.Graph, []copied, error) {
	if tensor == nil {
		tensor = func(string) (graph.DType, bool) { return m.DType, true }
	}
	b := graph.New(name)
	p := &parts{Builder: b, shared: &shared{tensor: tensor, made: map[string]*graph.Value{}, copies: map[copied]bool{}}, paths: []string{""}}
	p.ids = b.Input("ids", graph.TypeOf(graph.I32, graph.Symbol(graph.Tokens)))
	p.seg = b.Input("seg", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs), graph.Size(3)))
	p.rows = b.Input("rows", graph.TypeOf(graph.I32, graph.Symbol(graph.Rows)))
	if m.attends {
		p.past = b.Input("past", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs)))
	}
	build(p)
	if p.err != nil {
		return nil, nil, p.err
	}
	copies := ordered.Keys(p.copies, func(a, b copied) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.again, b.again))
	})
	g, err := b.Graph()
	return g, copies, err
}
