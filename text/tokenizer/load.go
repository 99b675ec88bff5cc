package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/files"
)

// Load reads a tokenizer.json, or the one in a folder, and what the
// tokenizer_config.json beside it says of special tokens, if there is one.
//
// It returns an error that names the place if a file is malformed, or uses
// something that is not supported.
func Load(path string) (*Pipeline, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "tokenizer.json")
	}
	return load(path, filepath.Join(filepath.Dir(path), "tokenizer_config.json"), files.Read)
}

// LoadFS is Load of the tokenizer.json in the root of a file system.
func LoadFS(fsys fs.FS) (*Pipeline, error) {
	return load("tokenizer.json", "tokenizer_config.json", func(name string, limit int64) ([]byte, error) {
		return files.ReadFS(fsys, name, limit)
	})
}

// load reads the two files of a tokenizer, of which there need not be the second.
func load(path, config string, read func(path string, limit int64) ([]byte, error)) (*Pipeline, error) {
	data, err := read(path, files.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	p, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	path = config
	data, err = read(path, files.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = p.configure(data)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	return p, nil
}

// Parse reads the contents of a tokenizer.json.
//
// Truncation and padding in the file are ignored. For other features that are not supported, and
// for malformed files, it returns an error that names the place.
func Parse(data []byte) (*Pipeline, error) {
	p, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return p, nil
}

func parse(data []byte) (*Pipeline, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the file is not UTF-8")
	}
	o := newObject("the file", data)
	version := "1.0"
	if o.optional("version", &version); version != "1.0" {
		o.failField("version", "%q is not supported (supported: 1.0)", version)
	}
	o.ignore("truncation", "padding")
	encoding := &chain{}
	normalize, err := parseNormalizer(o.take("normalizer"), encoding)
	o.abort(err)
	preTokenize, err := parsePreTokenizer(o.take("pre_tokenizer"), encoding)
	o.abort(err)
	template, err := parsePostProcessor(o.take("post_processor"))
	o.abort(err)
	decoder, err := parseDecoder(o.take("decoder"))
	o.abort(err)
	model, err := parseModel(o.take("model"))
	o.abort(err)
	added := o.take("added_tokens")
	if err := o.done(); err != nil {
		return nil, err
	}
	p := &Pipeline{
		normalize: normalize, preTokenize: preTokenize, model: model,
		template: template, decoder: decoder,
	}
	return p, p.index(added)
}

func asWritten(s string) (string, error) { return s, nil }

// normalized is how an added token is looked for.
func (p *Pipeline) normalized(s string) (_ string, err error) {
	m := newMeter(len(s))
	defer m.end(&err)
	return p.normalize(m, s), nil
}

// index reads the added tokens and fills the tables of all tokens.
func (p *Pipeline) index(added json.RawMessage) error {
	p.pieces = make(map[int]string, len(p.model.vocab))
	for piece, id := range p.model.vocab {
		if other, ok := p.pieces[int(id)]; ok {
			return fmt.Errorf("model: %q and %q have the same id %d", min(piece, other), max(piece, other), id)
		}
		p.pieces[int(id)] = piece
	}
	tokens, err := parseAdded(added, p.model.vocab)
	if err != nil {
		return err
	}
	p.addedIDs = map[string]int{}
	p.special = map[int]bool{}
	var raw, normalized []*addedToken
	for _, t := range tokens {
		p.pieces[t.id] = t.content
		p.addedIDs[t.content] = t.id
		p.special[t.id] = t.special
		if t.normalized {
			normalized = append(normalized, t)
		} else {
			raw = append(raw, t)
		}
	}
	if p.added, err = newFinder(raw, asWritten); err != nil {
		return err
	}
	if p.addedNormalized, err = newFinder(normalized, p.normalized); err != nil {
		return err
	}
	return p.template.check(p.pieces)
}
