package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/checkpoint/torchfile"
	"github.com/krait-ml/krait/graph"
)

// The names of the weights in a folder as PyTorch writes them.
const (
	torchName  = "pytorch_model.bin"
	torchIndex = torchName + ".index.json"
)

// torchWeights are tensors of such files.
type torchWeights struct {
	files []*torchfile.File
	owner map[string]*torchfile.File
	names []string
}

// torchIn reports whether a folder has weights of PyTorch.
func torchIn(dir string) bool {
	for _, name := range []string{torchName, torchIndex} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return false
}

// openTorch maps the weights of a folder: the one file, or those of the index.
func openTorch(dir string) (_ *torchWeights, err error) {
	parts := []string{torchName}
	if _, err := os.Lstat(filepath.Join(dir, torchName)); errors.Is(err, os.ErrNotExist) {
		index, err := safetensors.ReadIndex(filepath.Join(dir, torchIndex))
		if err != nil {
			return nil, err
		}
		parts = slices.Compact(slices.Sorted(maps.Values(index)))
	}
	w := &torchWeights{owner: map[string]*torchfile.File{}}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	for _, part := range parts {
		f, err := torchfile.Open(filepath.Join(dir, part))
		if err != nil {
			return nil, err
		}
		w.files = append(w.files, f)
		for _, name := range f.Names() {
			if other, ok := w.owner[name]; ok {
				return nil, fmt.Errorf("tensor %s is in two files, %s and %s", name, other.Name(), f.Name())
			}
			w.owner[name] = f
			w.names = append(w.names, name)
		}
	}
	slices.Sort(w.names)
	return w, nil
}

func (w *torchWeights) Names() []string { return w.names }

func (w *torchWeights) Look(name string) (graph.Array, bool) {
	f, ok := w.owner[name]
	if !ok {
		return graph.Array{}, false
	}
	t, _ := f.Tensor(name)
	return graph.Array{DType: floats[t.DType], Shape: t.Shape, From: f.Name() + ": tensor " + name}, true
}

func (w *torchWeights) Tensor(name string) (graph.Array, error) {
	a, _ := w.Look(name)
	t, _ := w.owner[name].Tensor(name)
	if a.DType == graph.NoDType {
		return a, fmt.Errorf("%s has dtype %s; Krait reads F32, BF16, F16 and F64", a.From, t.DType)
	}
	a.Data = t.Data
	return a, nil
}

func (w *torchWeights) Same(a, b string) bool {
	t, _ := w.owner[a].Tensor(a)
	u, _ := w.owner[b].Tensor(b)
	return t.DType == u.DType && bytes.Equal(t.Data, u.Data)
}

func (w *torchWeights) Intact() error {
	for _, f := range w.files {
		if err := f.Intact(); err != nil {
			return err
		}
	}
	return nil
}

func (w *torchWeights) Close() error {
	var errs []error
	for _, f := range w.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
