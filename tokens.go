package krait

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/text/tokenizer"
)

// Tokenizer turns text into token ids and back.
type Tokenizer = tokenizer.Tokenizer

// ErrNoTokenizer is why a checkpoint takes token ids only.
var ErrNoTokenizer = errors.New("no tokenizer")

// OpenTokenizer opens the tokenizer of a Hugging Face folder, of a GGUF file or of a
// tokenizer.json. A checkpoint without one whose vocabulary is [tokenizer.ByteVocab] has
// bytes as tokens; a vocab of 0 is looked up in its config. Otherwise the error is
// [ErrNoTokenizer].
func OpenTokenizer(path string, vocab int) (Tokenizer, error) {
	t, err := openTokenizer(path)
	if vocab == 0 && errors.Is(err, ErrNoTokenizer) {
		if m, _, err := models.Describe(path); err == nil {
			vocab = m.Vocab
		}
	}
	return orBytes(t, err, vocab)
}

func openTokenizer(path string) (Tokenizer, error) {
	if file, err := models.GGUFAt(path); err != nil {
		return nil, err
	} else if file != "" {
		return ggufTokenizer(file)
	}
	file := path
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		file = filepath.Join(path, "tokenizer.json")
	}
	t, err := tokenizer.Load(file)
	return t, noTokenizer(path, err)
}

// noTokenizer makes a file that is not there an [ErrNoTokenizer].
func noTokenizer(from string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return missing{fmt.Sprintf("%s: there is no tokenizer.json; add the model's", from)}
	}
	return err
}

// missing is an [ErrNoTokenizer] that says where.
type missing struct{ text string }

func (m missing) Error() string { return m.text }
func (missing) Unwrap() error   { return ErrNoTokenizer }

// orBytes replaces a missing tokenizer by bytes where the vocabulary is theirs.
func orBytes(t Tokenizer, err error, vocab int) (Tokenizer, error) {
	switch {
	case err == nil:
		return t, nil
	case vocab == tokenizer.ByteVocab && errors.Is(err, ErrNoTokenizer):
		return tokenizer.Bytes{}, nil
	}
	return nil, err
}

// ggufTokenizer makes the tokenizer of a GGUF file: of the tokenizer.json that it may
// carry, else of its lists of tokens and merges.
func ggufTokenizer(file string) (Tokenizer, error) {
	f, err := gguf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, config, err := tokenizer.FilesFrom(f.Value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if data == nil {
		return nil, missing{fmt.Sprintf("%s: its metadata have no tokenizer; convert the model from a folder with one", file)}
	}
	t, err := tokenizer.ParseConfigured(data, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}
