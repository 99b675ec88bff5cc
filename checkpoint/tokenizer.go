// Package checkpoint opens the files of a model: a Hugging Face folder with safetensors or
// pytorch_model.bin, a folder of the state-spaces code, or a GGUF file. It gives the graph with its
// weights, the tokenizer and the chat template. A tensor that is missing or of another shape is an
// error of [Open].
package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/text/chat"
	"github.com/krait-ml/krait/text/tokenizer"
)

// ErrNoTokenizer is the error of a checkpoint without a tokenizer: its prompts are token ids.
var ErrNoTokenizer = errors.New("no tokenizer")

// OpenTokenizer opens the tokenizer of a Hugging Face folder, a GGUF file or a tokenizer.json. A
// checkpoint without one whose vocabulary has [tokenizer.ByteVocab] ids has bytes as tokens; vocab
// 0 is looked up in the config. Otherwise the error is [ErrNoTokenizer].
func OpenTokenizer(path string, vocab int) (tokenizer.Tokenizer, error) {
	t, err := openTokenizer(path)
	if vocab == 0 && errors.Is(err, ErrNoTokenizer) {
		if m, _, err := Describe(path); err == nil {
			vocab = m.Vocab
		}
	}
	return orBytes(t, err, vocab)
}

// OpenTokenizerFS is [OpenTokenizer] for the root of a file system.
func OpenTokenizerFS(fsys fs.FS, vocab int) (tokenizer.Tokenizer, error) {
	t, err := tokenizer.LoadFS(fsys)
	return orBytes(t, noTokenizer("the file system", err), vocab)
}

func openTokenizer(path string) (tokenizer.Tokenizer, error) {
	if file, err := GGUFAt(path); err != nil {
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

// noTokenizer makes a missing file an [ErrNoTokenizer].
func noTokenizer(from string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return missing{fmt.Sprintf("%s: there is no tokenizer.json; add the model's", from)}
	}
	return err
}

// missing is an [ErrNoTokenizer] with its place.
type missing struct{ text string }

func (m missing) Error() string { return m.text }
func (missing) Unwrap() error   { return ErrNoTokenizer }

// orBytes replaces a missing tokenizer by bytes if the vocabulary has that size.
func orBytes(t tokenizer.Tokenizer, err error, vocab int) (tokenizer.Tokenizer, error) {
	switch {
	case err == nil:
		return t, nil
	case vocab == tokenizer.ByteVocab && errors.Is(err, ErrNoTokenizer):
		return tokenizer.Bytes{}, nil
	}
	return nil, err
}

// ggufTokenizer makes the tokenizer of a GGUF file: of its tokenizer.json if it has one, otherwise
// of its lists of tokens and merges.
func ggufTokenizer(file string) (tokenizer.Tokenizer, error) {
	data, config, err := ggufFiles(file)
	if err != nil {
		return nil, err
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

// ggufFiles returns the tokenizer.json and tokenizer_config.json that a GGUF file's metadata stands
// for.
func ggufFiles(file string) (data, config []byte, err error) {
	f, err := gguf.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if data, config, err = tokenizer.FilesFrom(f.Value); err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return data, config, err
}

// ChatTemplate opens the chat template of a folder or a GGUF file; the error is [chat.ErrNone] if
// it has none.
func ChatTemplate(path string) (*chat.Template, error) {
	file, err := GGUFAt(path)
	switch {
	case err != nil:
		return nil, err
	case file == "":
		return chat.Open(os.DirFS(path))
	}
	_, config, err := ggufFiles(file)
	switch {
	case err != nil:
		return nil, err
	case config == nil:
		return nil, chat.ErrNone
	}
	t, err := chat.Parse(config)
	if err != nil && !errors.Is(err, chat.ErrNone) {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return t, err
}
