// Package safetensors reads and writes tensors in the safetensors format of
// Hugging Face: an 8-byte little-endian header length, a JSON header, and the
// raw little-endian data of all tensors, back to back.
//
// Open maps one file, OpenDir a model folder that may be cut into shards, and Parse reads bytes
// that are already in memory. All of them check the whole header, so a tensor that is returned has
// data of exactly the size that its dtype and shape ask for. Data is a view; nothing is copied.
//
//	f, err := safetensors.Open("model.safetensors") // errors name the file, and the tensor in it
//	if err != nil { … }
//	defer f.Close() // data of tensors is gone then
//	t, ok := f.Tensor("backbone.norm_f.weight")
//	values, err := t.Float64s()
package safetensors

import (
	"maps"
	"slices"

	"github.com/krait-ml/krait/internal/files"
)

// Tensor is one named array of a file.
type Tensor struct {
	Name  string
	DType string // as in the file: F32, BF16, I64, ...
	Shape []int  // empty for a scalar; shared with the file, not to be modified
	Data  []byte // little-endian, row-major; a view, not to be modified
}

// File is one safetensors file. It is safe for concurrent use, but Close must
// not run while another goroutine still uses the file or the data of a tensor.
type File struct {
	name     string
	tensors  map[string]Tensor
	names    []string
	metadata map[string]string
	mapping  *files.Map // nil when the bytes belong to the caller
}

// Name is the path or the name that the file was opened with.
func (f *File) Name() string { return f.name }

// Tensor returns the named tensor, and whether the file holds it. Its data may
// start at any address: alignment is up to the program that wrote the file.
func (f *File) Tensor(name string) (Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Names returns the names of all tensors, sorted.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Metadata returns the header's free-form strings, such as format=pt. It is
// empty when the file has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Close releases the memory of a file from Open. Data of its tensors must not be touched
// afterwards: the memory is gone, and reading it ends the program. A closed file holds no tensors.
// Closing again, or closing a file from Parse, does no harm.
func (f *File) Close() error {
	f.tensors, f.names, f.metadata = nil, nil, nil
	m := f.mapping
	f.mapping = nil
	return m.Close()
}

// Intact is an error when a file from Open is not what it was then, as far as its
// size and the time of its last write tell. It is cheap.
func (f *File) Intact() error { return f.mapping.Intact() }
