package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/files"
)

// metadataKey is the one key of a header that is not a tensor.
const metadataKey = "__metadata__"

// entry is what the header says about one tensor.
type entry struct {
	name       string
	dtype      string
	shape      []int
	begin, end int // in the data, after the header
}

// readHeader reads the JSON of a header. It goes through the tokens, because
// decoding into a struct would let duplicate and misspelt keys pass.
func readHeader(header []byte) (entries []entry, metadata map[string]string, err error) {
	err = readDocument(header, func(r *reader, key string) error {
		if key == metadataKey {
			metadata, err = r.stringMap()
			return within(key, err)
		}
		e, err := r.entry(key)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", files.Quote(key), err)
		}
		if entries = append(entries, e); len(entries) > maxTensors {
			return fmt.Errorf("more than %d tensors, which is the most that Krait reads from one file", maxTensors)
		}
		return nil
	})
	return entries, metadata, err
}

// entry reads the description of one tensor.
func (r *reader) entry(name string) (entry, error) {
	e := entry{name: name}
	var offsets []int
	var hasDType, hasShape, hasOffsets bool
	err := r.object(func(key string) (err error) {
		switch key {
		case "dtype":
			hasDType = true
			e.dtype, err = r.string()
		case "shape":
			hasShape = true
			e.shape, err = r.ints(maxAxes)
		case "data_offsets":
			hasOffsets = true
			offsets, err = r.ints(2)
		default: // for later versions of the format
			err = r.skip()
		}
		return within(key, err)
	})
	switch {
	case err != nil:
		return e, err
	case !hasDType:
		return e, errors.New("no dtype")
	case !hasShape:
		return e, errors.New("no shape")
	case !hasOffsets:
		return e, errors.New("no data_offsets")
	case len(offsets) != 2:
		return e, fmt.Errorf("data_offsets has %d entries, want 2: begin and end", len(offsets))
	}
	e.begin, e.end = offsets[0], offsets[1]
	return e, nil
}

// reader reads JSON tokens and expects each to be of a certain kind.
type reader struct{ *json.Decoder }

// readDocument reads data, which must be one JSON object and nothing else, and
// calls field at the value of each key.
func readDocument(data []byte, field func(r *reader, key string) error) error {
	if !utf8.Valid(data) {
		return errors.New("the JSON is not valid UTF-8")
	}
	r := &reader{json.NewDecoder(bytes.NewReader(data))}
	r.UseNumber()
	if err := r.object(func(key string) error { return field(r, key) }); err != nil {
		return err
	}
	if _, err := r.Token(); err != io.EOF {
		return fmt.Errorf("there is more after the end of the JSON object at byte %d", r.InputOffset())
	}
	return nil
}

// object reads an object and calls field at the value of each key. A key that
// comes twice is an error.
func (r *reader) object(field func(key string) error) error {
	if err := r.delim('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for r.More() {
		key, err := r.string() // the decoder checks that it is one
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("%s appears twice", files.Quote(key))
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	return r.delim('}')
}

// stringMap reads an object whose values are all strings.
func (r *reader) stringMap() (map[string]string, error) {
	m := map[string]string{}
	err := r.object(func(key string) (err error) {
		m[key], err = r.string()
		return within(key, err)
	})
	return m, err
}

// ints reads an array of at most some whole numbers.
func (r *reader) ints(most int) ([]int, error) {
	if err := r.delim('['); err != nil {
		return nil, err
	}
	list := []int{}
	for r.More() {
		tok, err := r.token()
		if err != nil {
			return nil, err
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, r.unexpected("a whole number", tok)
		}
		n, err := strconv.Atoi(num.String())
		if err != nil {
			return nil, fmt.Errorf("%s is not a whole number in the range of int", files.Quote(num.String()))
		}
		if list = append(list, n); len(list) > most {
			return nil, fmt.Errorf("more than %d numbers", most)
		}
	}
	return list, r.delim(']')
}

func (r *reader) string() (string, error) {
	tok, err := r.token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", r.unexpected("a string", tok)
	}
	return s, nil
}

func (r *reader) delim(want json.Delim) error {
	tok, err := r.token()
	if err != nil {
		return err
	}
	if tok != want {
		return r.unexpected("'"+want.String()+"'", tok)
	}
	return nil
}

// skip reads a value of any kind.
func (r *reader) skip() error {
	var value json.RawMessage
	return r.located(r.Decode(&value))
}

func (r *reader) token() (json.Token, error) {
	tok, err := r.Token()
	return tok, r.located(err)
}

// located adds the place of a JSON error.
func (r *reader) located(err error) error {
	if err == nil {
		return nil
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the JSON ends too early")
	}
	return fmt.Errorf("malformed JSON near byte %d: %w", r.InputOffset(), err)
}

func (r *reader) unexpected(want string, found json.Token) error {
	text := "null"
	if found != nil {
		text = files.Quote(fmt.Sprint(found))
	}
	return fmt.Errorf("expected %s at byte %d of the JSON, found %s", want, r.InputOffset(), text)
}

// within says at which key an error happened.
func within(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", files.Quote(key), err)
}
