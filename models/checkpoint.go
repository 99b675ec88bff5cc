package models

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/safetensors"
)

// Checkpoint is a Hugging Face folder: its model as a graph, and its weights.
type Checkpoint struct {
	Model *Model
	Graph *graph.Graph
	set   *safetensors.Set
	// Unused lists tensors of the files that the graph has no use for.
	Unused []string
	copied map[string]bool // tensors that are there again under another name
}

// Describe reads the config of dir and builds its graph; the weights are looked
// at for their number format only, and need not be there.
func Describe(dir string) (*Model, *graph.Graph, error) {
	m, err := readDir(dir)
	if err != nil {
		return nil, nil, err
	}
	if !safetensors.InDir(dir) {
		g, err := m.Graph(nil)
		return m, g, err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, nil, err
	}
	defer set.Close()
	g, err := m.Graph(formats(set))
	return m, g, err
}

func readDir(dir string) (*Model, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is no such folder", dir)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is a file; a model is a folder with config.json and model.safetensors", dir)
	}
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	return Read(c)
}

// Open maps the checkpoint in dir and checks that every parameter of the model
// is there.
func Open(dir string) (*Checkpoint, error) {
	m, err := readDir(dir)
	if err != nil {
		return nil, err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	return newCheckpoint(m, set)
}

// FromMemory is Open for a checkpoint whose two files are in memory.
func FromMemory(name string, config, weights []byte) (*Checkpoint, error) {
	c, err := ParseConfig(name+"/config.json", config)
	if err != nil {
		return nil, err
	}
	m, err := Read(c)
	if err != nil {
		return nil, err
	}
	f, err := safetensors.Parse(name+"/model.safetensors", weights)
	if err != nil {
		return nil, err
	}
	return newCheckpoint(m, safetensors.SetOf(f))
}

func newCheckpoint(m *Model, set *safetensors.Set) (*Checkpoint, error) {
	g, err := m.Graph(formats(set))
	if err == nil {
		c := &Checkpoint{Model: m, Graph: g, set: set}
		if err = files.Guard(c.verify); err == nil {
			return c, nil
		}
	}
	set.Close()
	return nil, err
}

// Intact is an error when a file of weights is not what it was when it was opened, as
// far as its size and the time of its last write tell. It is cheap.
func (c *Checkpoint) Intact() error { return c.set.Intact() }

// Close unmaps the files; arrays from Tensor are gone then.
func (c *Checkpoint) Close() error { return c.set.Close() }

// Tensor finds a tensor of the files.
func (c *Checkpoint) Tensor(name string) (graph.Array, error) {
	t, ok := c.set.Tensor(name)
	if !ok {
		return graph.Array{}, fmt.Errorf("tensor %s is missing from the checkpoint", name)
	}
	from := c.set.FileOf(name) + ": tensor " + name
	if shape := c.set.Note(name, BlocksKey(name)); shape != "" || t.DType == "U8" {
		return blocks(t, shape, from)
	}
	d, ok := floats[t.DType]
	if !ok {
		return graph.Array{}, fmt.Errorf("%s has dtype %s; Krait reads F32, BF16, F16 and F64", from, t.DType)
	}
	return graph.Array{DType: d, Shape: t.Shape, Data: t.Data, From: from}, nil
}

var floats = map[string]graph.DType{"F64": graph.F64, "F32": graph.F32, "F16": graph.F16, "BF16": graph.BF16}

// formats tells a graph which tensors there are, and in which format kernels
// can have them: f64 is read as f32, and bytes are blocks.
func formats(set *safetensors.Set) func(string) (graph.DType, bool) {
	return func(name string) (graph.DType, bool) {
		t, ok := set.Tensor(name)
		if t.DType == "U8" {
			return graph.Q8, ok
		}
		switch d := floats[t.DType]; d {
		case graph.F16, graph.BF16:
			return d, ok
		}
		return graph.F32, ok
	}
}

// Copied reports whether a tensor holds the same as one that is used, and is not needed.
func (c *Checkpoint) Copied(name string) bool { return c.copied[name] }

// isCopy reports whether a tensor holds the same as one that is used, as files
// have it for tied heads.
func (c *Checkpoint) isCopy(name string, used map[string]bool) bool {
	t, _ := c.set.Tensor(name)
	for other := range used {
		u, _ := c.set.Tensor(other)
		if u.DType == t.DType && slices.Equal(u.Shape, t.Shape) && bytes.Equal(u.Data, t.Data) {
			return true
		}
	}
	return false
}

// verify looks for every tensor that the graph names, and for those that it
// does not.
func (c *Checkpoint) verify() error {
	used := map[string]bool{}
	c.copied = map[string]bool{}
	var errs []error
	for _, n := range c.Graph.Leaves("param") {
		for _, p := range n.Storage.Pieces {
			if used[p.Tensor] {
				continue
			}
			used[p.Tensor] = true
			a, err := c.Tensor(p.Tensor)
			if err == nil {
				err = n.Storage.Fits(a, n.Results[0].Type)
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	for _, twice := range c.Model.copies {
		if !c.isCopy(twice.again, map[string]bool{twice.first: true}) {
			errs = append(errs, fmt.Errorf("%s: tensors %s and %s are one parameter of the model, and differ", c.set.FileOf(twice.again), twice.first, twice.again))
		}
	}
	for _, name := range c.set.Names() {
		switch {
		case used[name]:
		case c.Model.besides != "" && strings.HasPrefix(name, c.Model.besides):
		case c.isCopy(name, used):
			c.copied[name] = true
		default:
			c.Unused = append(c.Unused, name)
		}
	}
	const most = 5
	if len(errs) > most {
		errs = append(errs[:most], fmt.Errorf("and %d more tensors", len(errs)-most))
	}
	return errors.Join(errs...)
}
