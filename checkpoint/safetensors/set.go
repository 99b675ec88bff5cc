package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/files"
)

// The names of the weights in a Hugging Face model folder.
const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// Set is the tensors of one model, from one file or from several shards. It is
// safe for concurrent use with the same care about Close as File.
type Set struct {
	opened []*File
	owner  map[string]*File // of each tensor
	names  []string
}

// SetOf makes a set of the tensors of one file, such as a model in memory.
// Closing the set closes the file.
func SetOf(f *File) *Set {
	s, _ := newSet([]*File{f}) // names of one file are distinct
	return s
}

// OpenDir opens the weights in a Hugging Face model folder: model.safetensors or, when that is not
// there, the shards that model.safetensors.index.json lists. With both, model.safetensors is read
// and the index is ignored, as Hugging Face does. All tensors of the shards are in the set, also
// those that the index leaves out.
//
// It is an error when dir does not exist or is not a directory, when it holds neither file (the
// error says what it holds instead), when the index is malformed or names a path outside dir, when
// a shard is missing or lacks a tensor that the index expects in it, when two shards hold a tensor
// of the same name, and in every case in which Open fails.
func OpenDir(dir string) (*Set, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("model directory: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: is a file; give the directory that holds %s", dir, singleName)
	}
	single, index := filepath.Join(dir, singleName), filepath.Join(dir, indexName)
	switch {
	case exists(single):
		f, err := Open(single)
		if err != nil {
			return nil, err
		}
		return SetOf(f), nil
	case exists(index):
		weightMap, err := ReadIndex(index)
		if err != nil {
			return nil, err
		}
		return openShards(dir, index, weightMap, func(shard string) (*File, error) { return Open(filepath.Join(dir, shard)) })
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("model directory: %w", err)
	}
	return nil, noWeights(dir, entries)
}

// InDir reports whether dir has what OpenDir reads; it may still be malformed.
func InDir(dir string) bool {
	return exists(filepath.Join(dir, singleName)) || exists(filepath.Join(dir, indexName))
}

// Tensor returns the named tensor, and whether the set holds it.
func (s *Set) Tensor(name string) (Tensor, bool) {
	f, ok := s.owner[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensor(name)
}

// FileOf returns the name of the file that holds the named tensor, for errors.
// It is empty when the set does not hold the tensor.
func (s *Set) FileOf(name string) string {
	if f, ok := s.owner[name]; ok {
		return f.Name()
	}
	return ""
}

// Note returns what the metadata of the file that holds the named tensor say under a
// key; empty when they say nothing.
func (s *Set) Note(name, key string) string {
	if f, ok := s.owner[name]; ok {
		return f.metadata[key]
	}
	return ""
}

// Files returns the files, in order.
func (s *Set) Files() []*File { return slices.Clone(s.opened) }

// Names returns the names of all tensors, sorted.
func (s *Set) Names() []string { return slices.Clone(s.names) }

// Intact is File.Intact of all files.
func (s *Set) Intact() error {
	for _, f := range s.opened {
		if err := f.Intact(); err != nil {
			return err
		}
	}
	return nil
}

// Close closes all files. Data of the tensors must not be touched afterwards.
func (s *Set) Close() error {
	s.owner, s.names = nil, nil
	var errs []error
	for _, f := range s.opened {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func newSet(opened []*File) (*Set, error) {
	s := &Set{opened: opened, owner: map[string]*File{}}
	for _, f := range opened {
		for _, name := range f.names {
			if other, ok := s.owner[name]; ok {
				return nil, fmt.Errorf("tensor %s is in two shards, %s and %s", files.Quote(name), other.name, f.name)
			}
			s.owner[name] = f
			s.names = append(s.names, name)
		}
	}
	slices.Sort(s.names)
	return s, nil
}

// openShards opens the shards of an index and compares them with it.
func openShards(dir, index string, weightMap map[string]string, open func(shard string) (*File, error)) (_ *Set, err error) {
	var opened []*File
	defer func() {
		if err != nil {
			for _, f := range opened {
				f.Close()
			}
		}
	}()
	shards := slices.Sorted(maps.Values(weightMap))
	for _, shard := range slices.Compact(shards) {
		f, err := open(shard)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s names the shard %s, which is missing; download it: %w", index, files.Quote(shard), err)
		}
		if err != nil {
			return nil, err
		}
		opened = append(opened, f)
	}
	s, err := newSet(opened)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		if want, found := filepath.Join(dir, weightMap[name]), s.FileOf(name); found == "" {
			return nil, fmt.Errorf("%s expects tensor %s in %s, but no shard holds it", index, files.Quote(name), want)
		} else if found != want {
			return nil, fmt.Errorf("%s expects tensor %s in %s, but it is in %s", index, files.Quote(name), want, found)
		}
	}
	return s, nil
}

// exists also says yes to what cannot be looked at: opening it tells why.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// noWeights explains a folder in which there is nothing that we can read.
func noWeights(dir string, entries []fs.DirEntry) error {
	var names, shards, others, pickles []string
	for _, e := range entries {
		name := e.Name()
		names = append(names, name)
		switch filepath.Ext(name) {
		case ".safetensors":
			if strings.HasPrefix(name, "model-") && strings.Contains(name, "-of-") {
				shards = append(shards, name)
			} else {
				others = append(others, name)
			}
		case ".bin", ".pt", ".pth":
			pickles = append(pickles, name)
		}
	}
	var hint string
	switch {
	case len(shards) > 0:
		hint = fmt.Sprintf("there are shards (%s), but the index that lists them is missing; download it too", list(shards))
	case len(others) > 0:
		hint = fmt.Sprintf("there is %s; rename the weights to %s", list(others), singleName)
	case len(pickles) > 0:
		hint = fmt.Sprintf("there is %s, but no safetensors; convert it in Python with "+
			"transformers: AutoModelForCausalLM.from_pretrained(dir).save_pretrained(dir, safe_serialization=True)", list(pickles))
	case len(names) > 0:
		hint = "there is " + list(names)
	default:
		hint = "the directory is empty"
	}
	return fmt.Errorf("%s: neither %s nor %s found: %s", dir, singleName, indexName, hint)
}

// list writes a few names.
func list(names []string) string {
	const most = 6
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
