package krait

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/krait-ml/krait/gguf"
	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/tokenizer"
)

// Tokenizer turns text into token ids and back.
type Tokenizer = tokenizer.Tokenizer

// OpenTokenizer reads the tokenizer of a Hugging Face folder, or a
// tokenizer.json, or what a GGUF file says of it. A folder without one whose model has a
// vocabulary of 256 is read as bytes; 0 is an unknown vocabulary.
func OpenTokenizer(path string, vocab int) (Tokenizer, error) {
	if file, err := models.GGUFAt(path); err != nil || file != "" {
		return ggufTokenizer(file, vocab, err)
	}
	file := path
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		file = filepath.Join(path, "tokenizer.json")
	}
	return tokenizerOf(vocab, path, func() (Tokenizer, error) { return tokenizer.Load(file) })
}

// tokenizerOf is what load loads, or bytes where there is nothing to load and the
// vocabulary is theirs.
func tokenizerOf(vocab int, from string, load func() (Tokenizer, error)) (Tokenizer, error) {
	t, err := load()
	switch {
	case err == nil:
		return t, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case vocab == 256:
		return tokenizer.Bytes{}, nil
	}
	return nil, fmt.Errorf("%s: there is no tokenizer.json; token ids (--ids) can be used without", from)
}

// ggufTokenizer makes the tokenizer of a GGUF file: of the tokenizer.json that it may
// carry, else of its lists of tokens and merges.
func ggufTokenizer(file string, vocab int, err error) (Tokenizer, error) {
	var f *gguf.File
	if err == nil {
		f, err = gguf.Open(file)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, config, err := tokenizer.FilesFrom(f.Value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if data == nil {
		if vocab == 256 {
			return tokenizer.Bytes{}, nil
		}
		return nil, fmt.Errorf("%s: its metadata have no tokenizer; token ids (--ids) can be used without", file)
	}
	t, err := tokenizer.ParseConfigured(data, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}
