// Package gguf reads and writes GGUF, the file format of llama.cpp and what is built on
// ggml: a header, metadata (keys with typed values), the descriptions of the tensors, and
// their aligned little-endian data.
//
// [Open] maps a file, or all files of a model that was cut into parts, and [Parse] reads
// bytes that are already in memory. Both check every count, size and place in the file,
// so a tensor that is returned has data of exactly the size that its type and shape ask
// for. Data is a view; nothing but the metadata is copied:
//
//	f, err := gguf.Open("model.gguf")
//	if err != nil { … }
//	defer f.Close()
//	t, ok := f.Tensor("token_embd.weight") // t.Shape is [vocabulary, width]
//	values, err := t.Float32s()
//
// Shapes are those of this house, with the axis whose elements lie beside each other
// last; the file has them the other way round.
package gguf

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/krait-ml/krait/internal/files"
)

// File is the tensors and the metadata of a model. It is safe for concurrent use, but
// Close must not run while another goroutine still uses the file or the data of a tensor.
type File struct {
	name    string
	version uint32
	keys    []string // in the order of the file
	values  map[string]any
	tensors map[string]Tensor
	owner   map[string]string // the file of each tensor
	names   []string
	maps    []*files.Map // of the parts; none when the bytes belong to the caller
}

// Name is the path or the name that the file was opened with; of a model in parts that
// of the first.
func (f *File) Name() string { return f.name }

// Version is that of the format: 2 or 3.
func (f *File) Version() int { return int(f.version) }

// Tensor returns the named tensor, and whether the file holds it.
func (f *File) Tensor(name string) (Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Names returns the names of all tensors, sorted.
func (f *File) Names() []string { return slices.Clone(f.names) }

// FileOf returns the name of the file that holds the named tensor, for errors: a model
// may be in several. It is empty when none does.
func (f *File) FileOf(name string) string { return f.owner[name] }

// Keys returns the keys of the metadata, in the order of the file.
func (f *File) Keys() []string { return slices.Clone(f.keys) }

// Value returns what the metadata say under a key, and whether they do: a number of the
// Go type of the same size and kind (uint8 to float64), a bool, a string, a slice of one
// of these, or of slices ([]any).
func (f *File) Value(key string) (any, bool) {
	v, ok := f.values[key]
	return v, ok
}

// Metadata returns all keys and values.
func (f *File) Metadata() map[string]any { return maps.Clone(f.values) }

// String returns a text of the metadata; an error where it is something else. Where the
// key is absent it is empty.
func (f *File) String(key string) (string, error) { return value[string](f, key, "a text") }

// Strings returns a list of texts; nil where the key is absent.
func (f *File) Strings(key string) ([]string, error) {
	return value[[]string](f, key, "a list of texts")
}

func value[T any](f *File, key, want string) (T, error) {
	v, ok := f.values[key]
	t, is := v.(T)
	if ok && !is {
		return t, fmt.Errorf("%s: %s is %s; it must be %s", f.name, files.Quote(key), kindOf(v), want)
	}
	return t, nil
}

// Intact is an error when a file from Open is not what it was then, as far as its size
// and the time of its last write tell. It is cheap.
func (f *File) Intact() error {
	for _, m := range f.maps {
		if err := m.Intact(); err != nil {
			return err
		}
	}
	return nil
}

// Close releases the memory of a file from Open. Data of its tensors must not be touched
// afterwards. Closing again, or closing a file from Parse, does no harm.
func (f *File) Close() error {
	f.tensors, f.names, f.owner = nil, nil, nil
	var errs []error
	for _, m := range f.maps {
		errs = append(errs, m.Close())
	}
	f.maps = nil
	return errors.Join(errs...)
}

// kindOf says what a value of the metadata is.
func kindOf(v any) string {
	switch {
	case v == nil:
		return "absent"
	case reflect.TypeOf(v).Kind() == reflect.Slice:
		return "a list"
	case reflect.TypeOf(v).Kind() == reflect.String:
		return "a text"
	}
	return fmt.Sprint(v)
}
