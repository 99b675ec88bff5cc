// Package torchfile reads the tensors of files that PyTorch's torch.save wrote, such as
// pytorch_model.bin, without running what is in them.
//
// Such a file is a program for Python's pickle machine, which may call anything. Here it
// runs on a machine that knows what the state dict of a model takes and nothing else:
// dicts, lists, texts, numbers, and the names by which PyTorch makes tensors. Any other
// operation or name is refused by its name, and nothing is ever called.
//
//	f, err := torchfile.Open("pytorch_model.bin")
//	if err != nil { … }
//	defer f.Close()
//	t, ok := f.Tensor("backbone.embedding.weight")
//
// [Open] maps the file; the data of tensors are views of it. Files that PyTorch before
// version 1.6 wrote, which are no archives, are refused.
package torchfile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/internal/files"
)

// Tensor is one named array of a file.
type Tensor struct {
	Name  string
	DType string // as safetensors has it: F32, BF16, I64, …
	Shape []int  // empty for a scalar; not to be modified
	Data  []byte // little-endian, row-major; a view, not to be modified
}

// File is the tensors of a state dict. It is safe for concurrent use, but Close must not
// run while another goroutine still uses the file or the data of a tensor.
type File struct {
	name    string
	tensors map[string]Tensor
	names   []string
	mapping *files.Map // nil when the bytes belong to the caller
}

// Open maps the file at path into memory, read-only, and parses it like [Parse].
func Open(path string) (*File, error) {
	m, err := files.OpenMap(path, "PyTorch")
	if err != nil {
		return nil, err
	}
	f, err := files.ParseMap(m, path, Parse)
	if err != nil {
		return nil, err
	}
	f.mapping = m
	return f, nil
}

// Parse reads a file from bytes in memory. The tensors are views of data, which must not
// change afterwards. The name is used in errors only.
//
// It is an error when the file is no archive that torch.save writes; when its program has
// an operation or a name that the state dict of a model does not take, or makes something
// else than a dict of tensors, with dicts below it; and when a tensor is not contiguous or
// lies outside of its storage.
func Parse(name string, data []byte) (*File, error) {
	tensors, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &File{name: name, tensors: tensors}
	for t := range tensors {
		f.names = append(f.names, t)
	}
	slices.Sort(f.names)
	return f, nil
}

// Name is the path or the name that the file was opened with.
func (f *File) Name() string { return f.name }

// Tensor returns the named tensor, and whether the file holds it.
func (f *File) Tensor(name string) (Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Names returns the names of all tensors, sorted.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Intact is an error when a file from Open is not what it was then, as far as its size
// and the time of its last write tell. It is cheap.
func (f *File) Intact() error { return f.mapping.Intact() }

// Close releases the memory of a file from Open. Data of its tensors must not be touched
// afterwards.
func (f *File) Close() error {
	f.tensors, f.names = nil, nil
	m := f.mapping
	f.mapping = nil
	return m.Close()
}

var errShort = errors.New("its program ends too early")
