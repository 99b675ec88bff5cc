// Package folder makes folders of checkpoints, whole or not at all.
package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/krait-ml/krait/internal/files"
)

// Folder is where a checkpoint comes to lie. Weights are in temporary files until all are written.
type Folder struct {
	dir, advice string
	total       int64
	made        bool        // by New
	files       []temporary // one per shard
}

type temporary struct {
	path    string
	tensors []string
}

// New creates the folder and checks that the disk has room for total bytes of weights; advice is
// added to the error if it has not. A folder that is not empty is an error unless forced; flag is
// the flag that forces it, which the error names; empty: a folder is never replaced.
func New(dir string, total int64, advice, flag string, forced bool) (*Folder, error) {
	f := &Folder{dir: filepath.Clean(dir), advice: advice, total: total}
	if err := f.begin(flag, forced); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Folder) begin(flag string, forced bool) error {
	entries, err := os.ReadDir(f.dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.made = true
		if err := os.MkdirAll(f.dir, 0o755); err != nil {
			return err
		}
	case err != nil:
		return err
	case len(entries) > 0 && flag == "":
		return fmt.Errorf("%s is not empty; name another folder", f.dir)
	case len(entries) > 0 && !forced:
		return fmt.Errorf("%s is not empty; name another folder, or overwrite it with %s", f.dir, flag)
	}
	if free, ok := FreeBytes(f.dir); ok && free < f.total {
		f.End()
		return f.full(fmt.Sprintf("%.1f GB are free", float64(free)/1e9))
	}
	return nil
}

// full is the error of a disk without room.
func (f *Folder) full(detail string) error {
	return fmt.Errorf("%s: the weights take %.1f GB, and %s; make room, or name a folder on another disk%s", f.dir, float64(f.total)/1e9, detail, f.advice)
}

// Shard writes a file of weights, with the tensors named.
func (f *Folder) Shard(tensors []string, write func(file *os.File) error) error {
	file, err := os.CreateTemp(f.dir, ".model.*.tmp")
	if err != nil {
		return err
	}
	f.files = append(f.files, temporary{file.Name(), tensors})
	err = write(file)
	if err == nil {
		err = file.Chmod(0o644) // temporary files are private
	}
	if err = errors.Join(err, file.Close()); errors.Is(err, syscall.ENOSPC) {
		return f.full("the disk is full")
	}
	return err
}

// Finish takes away what was there, and puts the files in their places; the
// config is last, since without it there is no model.
func (f *Folder) Finish(config []byte) error {
	if err := f.clear(); err != nil {
		return err
	}
	index := struct {
		Metadata map[string]int64  `json:"metadata"`
		Map      map[string]string `json:"weight_map"`
	}{map[string]int64{"total_size": f.total}, map[string]string{}}
	for i, file := range f.files {
		name := "model.safetensors"
		if len(f.files) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(f.files))
		}
		if err := os.Rename(file.path, filepath.Join(f.dir, name)); err != nil {
			return err
		}
		for _, t := range file.tensors {
			index.Map[t] = name
		}
	}
	if len(f.files) > 1 {
		text, err := json.MarshalIndent(index, "", "  ")
		if err == nil {
			err = files.Write(filepath.Join(f.dir, "model.safetensors.index.json"), text)
		}
		if err != nil {
			return err
		}
	}
	f.files = nil
	return files.Write(filepath.Join(f.dir, "config.json"), config)
}

// clear removes an older checkpoint, of which a file may be in the new one's way.
func (f *Folder) clear() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		for _, pattern := range []string{"config.json", "model.safetensors", "model-*.safetensors", "model.safetensors.index.json"} {
			if old, _ := filepath.Match(pattern, e.Name()); !old { // the patterns are good
				continue
			}
			if err := os.Remove(filepath.Join(f.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// End removes what is not finished.
func (f *Folder) End() {
	for _, file := range f.files {
		_ = os.Remove(file.path) // it may have been renamed
	}
	if f.made {
		_ = os.Remove(f.dir) // fails if it is not empty
	}
}
