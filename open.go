package krait

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/embedded"
	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/text/chat"
	"github.com/krait-ml/krait/text/tokenizer"
)

// source has the parts that a model is opened from.
type source struct {
	graph   *graph.Graph
	weights Weights
	family  string
	vocab   int
	eos     []int                        // of config.json; nil: none
	ignored func() []string              // parts of the checkpoint without effect, for warnings; nil: none
	mtp     func() (*graph.Graph, error) // of the MTP head; nil: there is none
	intact  func() error                 // an error if the files changed
	close   func() error
}

// Weights returns a tensor by its name: that of the parameter's storage, by default the parameter's
// full name, such as layers.0.norm_w. Arrays must stay valid and unchanged while the model is open;
// they are read in place if possible.
type Weights func(name string) (graph.Array, error)

// Tokenizer turns text into token ids and back.
type Tokenizer = tokenizer.Tokenizer

// ErrNoTokenizer is the error of text for a checkpoint that takes token ids only.
var ErrNoTokenizer = checkpoint.ErrNoTokenizer

// Tensors returns weights that are in memory.
func Tensors(arrays map[string]graph.Array) Weights {
	return func(name string) (graph.Array, error) {
		a, ok := arrays[name]
		if !ok {
			return a, fmt.Errorf("tensor %s is not among the weights", name)
		}
		return a, nil
	}
}

// RandomWeights returns random weights for a graph, so that it runs before it has a checkpoint. The
// same seed gives the same numbers; their scale follows from the operation that reads a parameter,
// so that activations stay near 1: normal matrices over the root of their columns, norms of 1,
// decays as models begin their training. [checkpoint.Save] writes them to a file.
func RandomWeights(g *graph.Graph, seed uint64) Weights { return synth.Weights(g, seed) }

// Open opens a Hugging Face folder: config.json, weights as model.safetensors or shards with an
// index, and a tokenizer if Krait can read it; or a folder with a pytorch_model.bin, also of the
// original state-spaces code; or a GGUF file (docs/checkpoints.md). Weights are memory-mapped until
// [Model.Close]. The model's family is one of [models.Families], or a registered one.
func Open(dir string, o Options) (*Model, error) {
	return o.open(func(o Options) (*Model, error) {
		c, err := checkpoint.Open(dir)
		if err != nil {
			return nil, err
		}
		m := &Model{Name: checkpoint.NameOf(dir), source: sourceOf(c), chat: sync.OnceValues(func() (*chat.Template, error) { return checkpoint.ChatTemplate(dir) })}
		if m.generation, err = models.ReadGeneration(dir); err != nil {
			c.Close()
			return nil, err
		}
		m.tokens, m.noTokens = checkpoint.OpenTokenizer(dir, c.Model.Vocab)
		return m.start(o)
	})
}

// OpenFS is [Open] for the root of a file system, such as an [embed.FS], an archive, or an
// [io/fs.Sub] of one. Files of the operating system, as in [os.DirFS], are memory-mapped; others
// are read into memory. The weights must be safetensors. The model's name is its family.
func OpenFS(fsys fs.FS, o Options) (*Model, error) {
	return o.open(func(o Options) (*Model, error) {
		c, err := checkpoint.OpenFS(fsys)
		if err != nil {
			return nil, err
		}
		m := &Model{Name: c.Model.Family, source: sourceOf(c), chat: sync.OnceValues(func() (*chat.Template, error) { return chat.Open(fsys) })}
		if m.generation, err = models.ReadGenerationFS(fsys); err != nil {
			c.Close()
			return nil, err
		}
		m.tokens, m.noTokens = checkpoint.OpenTokenizerFS(fsys, c.Model.Vocab)
		return m.start(o)
	})
}

// Embedded opens the small Mamba that is part of the program: 0.7 million parameters, trained on
// the King James Bible, a token is a byte.
func Embedded(o Options) (*Model, error) {
	return o.open(func(o Options) (*Model, error) {
		c, err := checkpoint.FromMemory(embedded.Name, embedded.Config, embedded.Weights)
		if err != nil {
			return nil, err
		}
		return (&Model{Name: embedded.Name, source: sourceOf(c), tokens: tokenizer.Bytes{}}).start(o)
	})
}

// New makes a model of a graph, with the same features as [Open]: it generates, evaluates, runs on
// ranks and devices, and generations share steps and the prefix cache.
//
// The engine fills the graph's inputs that have these names and types: ids i32[t], the tokens; seg
// i32[s 3], for each sequence of the batch its first token, its number of tokens and its state's
// slot; past i32[s], the number of tokens before; rows i32[o], the tokens whose logits are
// computed. The graph must have the output logits, f32[o v], with a row for each of rows and a
// column for each token of the vocabulary. Nodes that choose a token ([graph.Builder.Tokens]) are
// added if the graph has none. The graph is copied.
//
// If the tokenizer is nil, prompts are token ids: [Model.GenerateIDs]. A tokenizer's method EOS()
// (id int, ok bool) returns the token that ends a text.
func New(g *graph.Graph, weights Weights, t Tokenizer, o Options) (*Model, error) {
	return o.open(func(o Options) (*Model, error) {
		if g == nil {
			return nil, errors.New("a model needs a graph: graph.New begins one")
		}
		if weights == nil {
			return nil, errors.New("a model needs weights: krait.Tensors, or a function that returns them")
		}
		g, vocab, err := generating(g)
		if err != nil {
			return nil, fmt.Errorf("graph %s: %w", g.Name, err)
		}
		m := &Model{Name: g.Name, tokens: t}
		if t == nil {
			m.noTokens = fmt.Errorf("model %s was made without a tokenizer; give its prompts as token ids", g.Name)
		}
		nothing := func() error { return nil }
		m.source = source{graph: g, weights: weights, family: g.Name, vocab: vocab, intact: nothing, close: nothing}
		return m.start(o)
	})
}

// generating returns a copy of a graph that chooses tokens, and the size of its vocabulary.
func generating(g *graph.Graph) (*graph.Graph, int, error) {
	if err := graph.Check(g); err != nil {
		return g, 0, err
	}
	copied, err := graph.Parse(graph.Print(g))
	if err != nil {
		return g, 0, err
	}
	var logits *graph.Value
	chooses := false
	for _, o := range copied.Outputs {
		if o.Name == "logits" {
			logits = o.Value
		}
		chooses = chooses || o.Name == graph.ChosenOutput
	}
	if logits == nil {
		return g, 0, errors.New("a model needs the output logits, f32[o v]: krait.NewEngine runs graphs without")
	}
	if d := logits.Type.Dims; logits.Type.DType != graph.F32 || len(d) != 2 || d[0].Sym != graph.Rows || d[1].Sym != 0 {
		return g, 0, fmt.Errorf("the output logits is %s; a model needs f32[o v], a row for each of the input rows (select_rows)", logits.Type)
	}
	if ids, ok := copied.Value("ids"); !ok || ids.Def.Op.Class != graph.Leaf {
		return g, 0, errors.New("a model needs the input ids, i32[t]")
	}
	if !chooses {
		err = graph.AddTokens(copied, logits)
	}
	return copied, logits.Type.Dims[1].Len(), err
}

// NewEngine compiles a graph for the ranks of its sharding, lowers it and makes an engine that runs
// it: for graphs with custom inputs and outputs, which [New] does not take. With
// [Sharding.CheckPayloads] a step fails if a payload overflows.
func NewEngine(g *graph.Graph, weights Weights, o Options) (*exec.Engine, error) {
	if o.Processes != nil {
		if err := o.Sharding.OnProcesses(o.Processes.Ranks()); err != nil {
			return nil, err
		}
	}
	o.fuse(g)
	d, err := o.device()
	if err != nil {
		return nil, err
	}
	prefill, err := session.NewPrefill(g, o.Sharding, o.PieceTokens, d)
	if err != nil {
		return nil, err
	}
	compiled, err := o.Sharding.Compile(g)
	if err != nil {
		return nil, err
	}
	s, err := session.Lower(compiled, o.Sharding, o.PieceTokens, d)
	if err != nil {
		return nil, err
	}
	return newEngine(compiled, s, prefill, weights, nil, d, o)
}

// open opens a model; if that fails, other processes do not wait for this one.
func (o Options) open(f func(o Options) (*Model, error)) (*Model, error) {
	m, err := f(o)
	if err != nil && o.Processes != nil {
		o.Processes.Fail(err)
	}
	return m, err
}

// sourceOf returns the parts of a checkpoint.
func sourceOf(c *checkpoint.Checkpoint) source {
	return source{graph: c.Graph, weights: c.Tensor, family: c.Model.Family, vocab: c.Model.Vocab, eos: c.Model.EOS,
		ignored: func() []string { return ignored(c) }, mtp: c.MTP, intact: c.Intact, close: c.Close}
}

// ignored lists the parts of a checkpoint without effect.
func ignored(c *checkpoint.Checkpoint) (list []string) {
	if u := c.Model.Unknown; len(u) > 0 {
		list = append(list, "config.json has keys that Krait does not know, and ignores: "+names(u))
	}
	if len(c.LeftOut) > 0 {
		var parts []string
		for _, prefix := range slices.Sorted(maps.Keys(c.LeftOut)) {
			parts = append(parts, fmt.Sprintf("%s* (%d)", prefix, c.LeftOut[prefix]))
		}
		list = append(list, "the checkpoint has tensors of parts that decoding of text leaves out: "+strings.Join(parts, ", "))
	}
	if u := c.Unused; len(u) > 0 {
		list = append(list, "the checkpoint has tensors that the model does not use: "+names(u))
	}
	return list
}

// names lists the first of some names from a file: unprintable ones are quoted, long ones cut.
func names(list []string) string {
	const most, longest = 8, 100
	var out []string
	for _, name := range list[:min(most, len(list))] {
		if len(name) > longest {
			name = strings.ToValidUTF8(name[:longest], "") + "…"
		}
		if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			name = strconv.Quote(name)
		}
		out = append(out, name)
	}
	text := strings.Join(out, ", ")
	if len(list) > most {
		text += fmt.Sprintf(" and %d more", len(list)-most)
	}
	return text
}
