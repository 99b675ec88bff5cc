package krait

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/krait-ml/krait/tokenizer"
)

// Tokenizer turns text into token ids and back.
type Tokenizer = tokenizer.Tokenizer

// OpenTokenizer reads the tokenizer of a Hugging Face folder, or a
// tokenizer.json. A folder without one whose model has a vocabulary of 256 is
// read as bytes; 0 is an unknown vocabulary.
func OpenTokenizer(path string, vocab int) (Tokenizer, error) {
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
