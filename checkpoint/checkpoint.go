package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/models"
)

// Checkpoint is a model as files have it: as a graph, and its weights.
type Checkpoint struct {
	Model *models.Model
	Graph *graph.Graph
	// Unused lists tensors of the files that the graph has no use for.
	Unused []string
	// LeftOut counts tensors of parts that decoding of text does not use, by the beginning of names.
	LeftOut map[string]int
	weights weights
	copied  map[string]bool // tensors that are there again under another name
}

// weights are the tensors of a checkpoint, by the names that Hugging Face gives them.
type weights interface {
	// Names are those of all tensors, sorted.
	Names() []string
	// Look is a tensor without its data, as Tensor gives it, and whether it is there.
	Look(name string) (graph.Array, bool)
	// Tensor is one that is there, or why it cannot be read.
	Tensor(name string) (graph.Array, error)
	// Same reports whether the files have the same bytes for two tensors.
	Same(a, b string) bool
	// Intact is an error when the files are not what they were; it is cheap.
	Intact() error
	// Close ends what the data of tensors are views of.
	Close() error
}

// Describe reads the config of a checkpoint and builds its graph; the weights of a folder
// are looked at for their number format only, and need not be there.
func Describe(path string) (*models.Model, *graph.Graph, error) {
	m, w, err := load(path, true)
	if err != nil {
		return nil, nil, err
	}
	if w == nil {
		g, err := m.Graph(nil)
		return m, g, err
	}
	defer w.Close()
	g, err := graphOf(m, w)
	return m, g, err
}

// Open maps the checkpoint at path and checks that every parameter of the model is there.
// It is a Hugging Face folder with safetensors or a pytorch_model.bin, a folder in the
// original state-spaces format, or a GGUF file, or a folder with one.
func Open(path string) (*Checkpoint, error) {
	m, w, err := load(path, false)
	if err != nil {
		return nil, err
	}
	return newCheckpoint(m, w)
}

// load reads what a checkpoint describes and finds its weights; nil where a folder has none
// and may do without.
func load(path string, without bool) (*models.Model, weights, error) {
	file, err := GGUFAt(path)
	if err != nil {
		return nil, nil, err
	}
	if file != "" {
		return loadGGUF(file)
	}
	m, err := readDir(path)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case safetensors.InDir(path):
	case torchIn(path):
		w, err := openTorch(path)
		return m, w, err
	case without:
		return m, nil, nil
	}
	set, err := safetensors.OpenDir(path)
	if err != nil {
		return nil, nil, err
	}
	w, err := weightsOf(m, set)
	return m, w, err
}

// weightsOf are the tensors of a folder as its config says that they are quantized.
func weightsOf(m *models.Model, set *safetensors.Set) (weights, error) {
	w := &tensorSet{set}
	q := m.Config().Quantization()
	if q == nil {
		return w, nil
	}
	return published(w, q)
}

func readDir(dir string) (*models.Model, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		what := "folder"
		if filepath.Ext(dir) == ".gguf" {
			what = "file"
		}
		return nil, fmt.Errorf("%s: there is no such %s", dir, what)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is a file; a model is a folder with config.json and model.safetensors, or a .gguf file", dir)
	}
	c, err := models.ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	return models.Read(c)
}

// FromMemory is Open for a checkpoint whose two files are in memory.
func FromMemory(name string, config, weights []byte) (*Checkpoint, error) {
	c, err := models.ParseConfig(name+"/config.json", config)
	if err != nil {
		return nil, err
	}
	m, err := models.Read(c)
	if err != nil {
		return nil, err
	}
	f, err := safetensors.Parse(name+"/model.safetensors", weights)
	if err != nil {
		return nil, err
	}
	w, err := weightsOf(m, safetensors.SetOf(f))
	if err != nil {
		return nil, err
	}
	return newCheckpoint(m, w)
}

func newCheckpoint(m *models.Model, w weights) (*Checkpoint, error) {
	g, err := graphOf(m, w)
	if err == nil {
		c := &Checkpoint{Model: m, Graph: g, weights: w}
		if err = files.Guard(c.verify); err == nil {
			return c, nil
		}
	}
	w.Close()
	return nil, err
}

// graphOf builds the graph of a model with the formats of its tensors. Matrices of which kernels
// cannot take blocks are widened, which the graph in f32 tells.
func graphOf(m *models.Model, w weights) (*graph.Graph, error) {
	if p, ok := w.(*publishedSet); ok {
		g, err := m.Graph(func(name string) (graph.DType, bool) {
			_, ok := w.Look(name)
			return graph.F32, ok
		})
		if err != nil {
			return nil, err
		}
		c := &Checkpoint{Model: m, Graph: g, weights: w}
		p.keep(c.matrices(true))
	}
	return m.Graph(formats(w))
}

// formats tells a graph which tensors there are, and in which format kernels
// can have them: f64 is read as f32.
func formats(w weights) func(string) (graph.DType, bool) {
	return func(name string) (graph.DType, bool) {
		a, ok := w.Look(name)
		if a.DType == graph.F16 || a.DType == graph.BF16 || a.DType.Quantized() {
			return a.DType, ok
		}
		return graph.F32, ok
	}
}

// Intact is an error when a file of weights is not what it was when it was opened, as
// far as its size and the time of its last write tell. It is cheap.
func (c *Checkpoint) Intact() error { return c.weights.Intact() }

// Close unmaps the files; arrays from Tensor are gone then.
func (c *Checkpoint) Close() error { return c.weights.Close() }

// Tensor finds a tensor of the files.
func (c *Checkpoint) Tensor(name string) (graph.Array, error) {
	if _, ok := c.weights.Look(name); !ok {
		return graph.Array{}, fmt.Errorf("tensor %s is missing from the checkpoint", name)
	}
	return c.weights.Tensor(name)
}

// Names are those of all tensors of the files, sorted.
func (c *Checkpoint) Names() []string { return c.weights.Names() }

// Copied reports whether a tensor holds the same as one that is used, and is not needed.
func (c *Checkpoint) Copied(name string) bool { return c.copied[name] }

// isCopy reports whether a tensor holds the same as one that is used, as files
// have it for tied heads.
func (c *Checkpoint) isCopy(name string, used map[string]bool) bool {
	t, _ := c.weights.Look(name)
	for other := range used {
		u, ok := c.weights.Look(other)
		if ok && u.DType == t.DType && slices.Equal(u.Shape, t.Shape) && c.weights.Same(name, other) {
			return true
		}
	}
	return false
}

// fits looks for a tensor that a parameter of type t is stored in.
func (c *Checkpoint) fits(name string, s *graph.Storage, t graph.Type) error {
	a, ok := c.weights.Look(name)
	if !ok || a.DType == 0 { // an error either way
		_, err := c.Tensor(name)
		return err
	}
	return s.Fits(a, t)
}

// verify looks for every tensor that the graph names, and for those that it does not.
func (c *Checkpoint) verify() error {
	used := map[string]bool{}
	c.copied, c.LeftOut = map[string]bool{}, map[string]int{}
	errs := c.params(c.Graph, used)
	for _, twice := range c.Model.Copies() {
		if !c.isCopy(twice[1], map[string]bool{twice[0]: true}) {
			a, _ := c.weights.Look(twice[1])
			errs = append(errs, fmt.Errorf("tensors %s and %s are one parameter of the model, and differ (%s)", twice[0], twice[1], a.From))
		}
	}
	for _, name := range c.weights.Names() {
		switch {
		case used[name]:
		case c.Model.Skips(name) != "":
			c.LeftOut[c.Model.Skips(name)]++
		case c.isCopy(name, used):
			c.copied[name] = true
		default:
			c.Unused = append(c.Unused, name)
		}
	}
	return joined(errs)
}

// params looks for the tensors of a graph's parameters, and adds them to those used.
func (c *Checkpoint) params(g *graph.Graph, used map[string]bool) (errs []error) {
	for _, n := range g.Leaves("param") {
		for _, p := range n.Storage.Pieces {
			if used[p.Tensor] {
				continue
			}
			used[p.Tensor] = true
			if err := c.fits(p.Tensor, n.Storage, n.Results[0].Type); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// joined is the first of the errors of tensors.
func joined(errs []error) error {
	const most = 5
	if len(errs) > most {
		errs = append(errs[:most], fmt.Errorf("and %d more tensors", len(errs)-most))
	}
	return errors.Join(errs...)
}

// MTP builds the graph of the checkpoint's MTP head, whose tensors it checks: see
// [models.Model.MTP]. It reads the tensors mtp.*, which LeftOut does not count any more.
func (c *Checkpoint) MTP() (*graph.Graph, error) {
	g, err := c.Model.MTP(formats(c.weights))
	if err != nil {
		return nil, err
	}
	if err := files.Guard(func() error { return joined(c.params(g, map[string]bool{})) }); err != nil {
		return nil, err
	}
	delete(c.LeftOut, "mtp.")
	return g, nil
}

// tensorSet is the weights of a folder with safetensors.
type tensorSet struct{ *safetensors.Set }

var floats = map[string]graph.DType{"F64": graph.F64, "F32": graph.F32, "F16": graph.F16, "BF16": graph.BF16}

func (w *tensorSet) Look(name string) (graph.Array, bool) {
	t, ok := w.Set.Tensor(name)
	if !ok {
		return graph.Array{}, false
	}
	a, err := w.Tensor(name)
	if err != nil { // which Tensor will tell
		return graph.Array{Shape: t.Shape, From: w.from(name)}, true
	}
	a.Data = nil
	return a, true
}

func (w *tensorSet) from(name string) string { return w.FileOf(name) + ": tensor " + name }

func (w *tensorSet) Tensor(name string) (graph.Array, error) {
	t, _ := w.Set.Tensor(name)
	from := w.from(name)
	if shape := w.Note(name, BlocksKey(name)); shape != "" || t.DType == "U8" {
		return blocks(t, shape, from)
	}
	d, ok := floats[t.DType]
	if !ok && strings.HasPrefix(t.DType, "F8") {
		return graph.Array{}, fmt.Errorf("%s has dtype %s, and the config has no quantization_config that says so", from, t.DType)
	}
	if !ok {
		return graph.Array{}, fmt.Errorf("%s has dtype %s; Krait reads F32, BF16, F16 and F64", from, t.DType)
	}
	return graph.Array{DType: d, Shape: t.Shape, Data: t.Data, From: from}, nil
}

func (w *tensorSet) Same(a, b string) bool {
	t, _ := w.Set.Tensor(a)
	u, _ := w.Set.Tensor(b)
	return bytes.Equal(t.Data, u.Data)
}
