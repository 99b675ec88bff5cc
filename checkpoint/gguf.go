package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// GGUFAt is the GGUF file that a path means: it itself, or the only one (or the first
// part of the only one) of a folder without a config.json; empty where it means none.
func GGUFAt(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		if err == nil && filepath.Ext(path) == ".gguf" {
			return path, nil
		}
		return "", nil // another's error
	}
	if _, err := os.Stat(filepath.Join(path, "config.json")); !errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range entries {
		number, _, part := gguf.Part(e.Name())
		if filepath.Ext(e.Name()) == ".gguf" && (!part || number == 1) && !strings.HasPrefix(e.Name(), "mmproj") {
			found = append(found, e.Name())
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return filepath.Join(path, found[0]), nil
	}
	return "", fmt.Errorf("%s: there are %d GGUF files, such as %s and %s; name the one that is meant", path, len(found), found[0], found[1])
}

// loadGGUF reads the config that the metadata of a GGUF file describe, and its tensors by
// the names that Hugging Face gives them.
func loadGGUF(path string) (*models.Model, weights, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, nil, err
	}
	m, w, err := readGGUF(f)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return m, w, nil
}

func readGGUF(f *gguf.File) (*models.Model, weights, error) {
	c, a, err := ggufConfigOf(f)
	if err != nil {
		return nil, nil, err
	}
	m, err := models.Read(c)
	if err != nil {
		return nil, nil, err
	}
	w, err := newGGUF(f, a)
	return m, w, err
}

// ggufWeights are the tensors of a GGUF file. Those whose numbers kernels can have as they
// lie are views of it; others are made when they are first asked for, and kept.
type ggufWeights struct {
	file  *gguf.File
	parts map[string]ggufPart
	names []string
	wide  sync.Map // of names to what makes the array
}

// ggufPart is where the file has a tensor of a model: in some rows of another.
type ggufPart struct {
	gguf.Tensor       // cut to the rows
	shape       []int // that the family expects
	turned      int   // heads whose rows stand in llama.cpp's order of the rotary embedding; 0: none
	exact       bool  // it decides something, or blocks cross heads: it is not taken in blocks
	centred     bool  // it is 1 more than the model's

	rest  string // of its name, where heads of values stand in llama.cpp's order
	delta ggufHeads
}

func newGGUF(f *gguf.File, a *ggufArch) (weights, error) {
	w := &ggufWeights{file: f, parts: map[string]ggufPart{}}
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		parts, err := a.parts(t)
		if err != nil {
			return nil, fmt.Errorf("%s: tensor %s: %w", f.FileOf(name), name, err)
		}
		for theirs, p := range parts {
			if old, ok := w.parts[theirs]; ok {
				return nil, fmt.Errorf("%s: tensors %s and %s are both the model's %s", f.Name(), old.Name, name, theirs)
			}
			w.parts[theirs] = p
			w.names = append(w.names, theirs)
		}
	}
	slices.Sort(w.names)
	return w, nil
}

func (w *ggufWeights) Names() []string { return w.names }
func (w *ggufWeights) Intact() error   { return w.file.Intact() }
func (w *ggufWeights) Close() error    { return w.file.Close() }

func (w *ggufWeights) Look(name string) (graph.Array, bool) {
	p, ok := w.parts[name]
	if !ok {
		return graph.Array{}, false
	}
	d := p.Type.DType()
	if d.Quantized() && (len(p.shape) < 2 || p.exact) || d != graph.NoDType && p.centred {
		d = graph.F32
	}
	return graph.Array{DType: d, Shape: p.shape, From: w.file.FileOf(p.Name) + ": tensor " + p.Name}, true
}

func (w *ggufWeights) Tensor(name string) (graph.Array, error) {
	p := w.parts[name]
	a, _ := w.Look(name)
	if a.DType == p.Type.DType() && a.DType != graph.NoDType && p.turned == 0 && p.rest == "" && !p.centred {
		a.Data = p.Data
		return a, nil
	}
	make := sync.OnceValues(func() ([]byte, error) { return p.make(a.DType) })
	kept, _ := w.wide.LoadOrStore(name, make)
	var err error
	if a.Data, err = kept.(func() ([]byte, error))(); err != nil {
		return graph.Array{}, fmt.Errorf("%s: %w", w.file.FileOf(p.Name), err)
	}
	return a, nil
}

// make is the part's data where they are not the file's.
func (p ggufPart) make(d graph.DType) ([]byte, error) {
	data := p.Data
	if d == graph.NoDType || d != p.Type.DType() || p.centred {
		values, err := p.Float32s()
		if err != nil {
			return nil, err
		}
		a := graph.ArrayOf(values, p.shape...)
		if p.centred {
			a = plus(a, -1)
		}
		data = a.Data
	}
	if p.rest != "" {
		data = p.delta.order(data, p.delta.tiles(p.rest, p.Shape[0], len(data)/p.Shape[0]), true)
	}
	if p.turned > 0 {
		data = turn(data, p.Shape[0], p.turned, true)
	}
	return data, nil
}

// turn reorders the rows of a query or key projection: llama.cpp rotates channels 2i and 2i+1 of
// a head together, Hugging Face i and i + half. If back is set, it converts llama.cpp's order to
// Hugging Face's.
func turn(data []byte, rows, heads int, back bool) []byte {
	out := make([]byte, len(data))
	line, half := len(data)/rows, rows/heads/2
	for r := range rows {
		head, i := r/(2*half), r%(2*half)
		theirs := head*2*half + i%half*2 + i/half // where row r of Hugging Face's is in llama.cpp's
		if back {
			copy(out[r*line:][:line], data[theirs*line:])
		} else {
			copy(out[theirs*line:][:line], data[r*line:])
		}
	}
	return out
}

func (w *ggufWeights) Same(a, b string) bool {
	p, q := w.parts[a], w.parts[b]
	return p.Type == q.Type && p.turned == q.turned && p.rest == q.rest && p.centred == q.centred && bytes.Equal(p.Data, q.Data)
}
