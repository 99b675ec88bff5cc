package models

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/krait-ml/krait/internal/files"
)

// Generation is a generation_config.json: what ends a text, and how tokens are
// chosen. The zero value is greedy.
type Generation struct {
	EOS               []int // nil: not said
	Temperature       float64
	TopK              int
	TopP              float64
	MinP              float64
	RepetitionPenalty float64
}

// ReadGeneration reads dir/generation_config.json; without one, and of a GGUF file, it
// returns the zero value. Sampling parameters count where do_sample is true, with the
// defaults of transformers.
func ReadGeneration(dir string) (Generation, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return Generation{}, nil
	}
	return readGeneration(filepath.Join(dir, "generation_config.json"), files.Read)
}

// ReadGenerationFS is ReadGeneration for the root of a file system.
func ReadGenerationFS(fsys fs.FS) (Generation, error) {
	return readGeneration("generation_config.json", func(path string, limit int64) ([]byte, error) { return files.ReadFS(fsys, path, limit) })
}

func readGeneration(path string, read func(path string, limit int64) ([]byte, error)) (Generation, error) {
	var g Generation
	data, err := read(path, files.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return g, nil
	}
	if err != nil {
		return g, err
	}
	c, err := ParseConfig(path, data)
	if err != nil {
		return g, err
	}
	g.EOS = c.Tokens("eos_token_id")
	if penalty := c.Positive("repetition_penalty", 1); penalty != 1 {
		g.RepetitionPenalty = penalty
	}
	if c.Bool("do_sample", false) {
		g.Temperature = c.Positive("temperature", 1)
		g.TopK = c.Int("top_k", 50, 0)
		if p := c.Positive("top_p", 1); p < 1 {
			g.TopP = p
		}
		g.MinP = c.Share("min_p")
	}
	return g, errors.Join(c.errs...)
}
