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
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		if vocab == 256 {
			return tokenizer.Bytes{}, nil
		}
		return nil, fmt.Errorf("%s: there is no tokenizer.json; token ids (--ids) can be used without", path)
	}
	t, err := tokenizer.Load(file)
	if err != nil {
		return nil, err
	}
	return t, nil
}
