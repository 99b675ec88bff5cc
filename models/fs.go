package models

import (
	"errors"
	"io/fs"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/safetensors"
)

// reader reads a file of a bounded size.
type reader = func(path string, limit int64) ([]byte, error)

func inFS(fsys fs.FS) reader {
	return func(path string, limit int64) ([]byte, error) { return files.ReadFS(fsys, path, limit) }
}

// OpenFS is [Open] for the root of a file system: config.json and weights in safetensors.
// What cannot be mapped is read into memory.
func OpenFS(fsys fs.FS) (*Checkpoint, error) {
	const path = "config.json"
	data, err := files.ReadFS(fsys, path, files.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the file system has no config.json in its root; a model is a Hugging Face folder with config.json and model.safetensors (fs.Sub takes a folder)")
	}
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(path, data)
	if err != nil {
		return nil, err
	}
	m, err := Read(c)
	if err != nil {
		return nil, err
	}
	set, err := safetensors.OpenFS(fsys)
	if err != nil {
		return nil, err
	}
	return newCheckpoint(m, &tensorSet{set})
}
