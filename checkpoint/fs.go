package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/models"
)

// OpenFS is [Open] for the root of a file system: config.json and weights in safetensors.
// What cannot be mapped is read into memory. Weights in other formats, GGUF and PyTorch's, are
// opened by path only.
func OpenFS(fsys fs.FS) (*Checkpoint, error) {
	c, err := models.ReadConfigFS(fsys)
	if errors.Is(err, fs.ErrNotExist) {
		if err := inOther(fsys); err != nil {
			return nil, err
		}
		return nil, errors.New("the file system has no config.json in its root; a model is a Hugging Face folder with config.json and model.safetensors (fs.Sub takes a folder)")
	}
	if err != nil {
		return nil, err
	}
	m, err := models.Read(c)
	if err != nil {
		return nil, err
	}
	if err := inOther(fsys); err != nil {
		return nil, err
	}
	set, err := safetensors.OpenFS(fsys)
	if err != nil {
		return nil, err
	}
	w, err := weightsOf(m, set)
	if err != nil {
		return nil, err
	}
	return newCheckpoint(m, w)
}

// inOther is the error of a root that has weights, and those in a format that only [Open] reads.
func inOther(fsys fs.FS) error {
	var others []string
	for _, pattern := range []string{"model*.safetensors*", "*.gguf", "pytorch_model*.bin*"} {
		found, _ := fs.Glob(fsys, pattern) // the pattern is well-formed
		if pattern == "model*.safetensors*" && len(found) > 0 {
			return nil
		}
		others = append(others, found...)
	}
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("the file system has %s, and weights in a file system must be safetensors: open the path (Open), or make a folder of it with krait convert", others[0])
}
