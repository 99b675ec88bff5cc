package safetensors

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/ordered"
)

// Write writes a safetensors file. The same tensors and metadata give the same
// bytes, whatever their order: tensors are sorted by falling element size, then
// by name, so that each is aligned to its elements in an aligned buffer.
//
// It is an error when two tensors have the same name or one is named __metadata__, when a dtype is
// unknown, when data does not have the size that dtype and shape ask for, when a text is not valid
// UTF-8, when the header is over the format's limit, and when w fails.
func Write(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	ordered.Sort(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(dtypeBits[b.DType], dtypeBits[a.DType]), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range tensors {
		if err := t.check(); err != nil {
			return err
		}
	}
	header, _, err := Header(tensors, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range tensors {
		if _, err := w.Write(t.Data); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile writes a safetensors file at path. It writes to a temporary file
// beside it first, so that path never holds half a file; a file that was there
// is replaced. Errors are those of Write and of the file system.
func WriteFile(path string, tensors []Tensor, metadata map[string]string) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	buffered := bufio.NewWriterSize(tmp, 1<<20)
	if err := Write(buffered, tensors, metadata); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil { // temporary files are private
		return err
	}
	if err := tmp.Sync(); err != nil { // before the rename, or a crash may leave an empty file
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Header is how a file of these tensors begins, whose data follow in this order,
// and where each of them begins in the file. Their Data is not looked at: who
// writes tensors one by one need not have them all.
func Header(tensors []Tensor, metadata map[string]string) (header []byte, begins []int64, err error) {
	text, begins, err := encodeHeader(tensors, metadata)
	if err != nil {
		return nil, nil, err
	}
	header = append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	for i := range begins {
		begins[i] += int64(len(header))
	}
	return header, begins, nil
}

// encodeHeader writes the JSON that describes the tensors, padded with spaces so
// that the data after it is aligned to 8 bytes.
func encodeHeader(tensors []Tensor, metadata map[string]string) (header []byte, begins []int64, err error) {
	fields := make([]field, 0, len(tensors)+1)
	if len(metadata) > 0 {
		for key, value := range metadata {
			if !utf8.ValidString(key) || !utf8.ValidString(value) {
				return nil, nil, fmt.Errorf("metadata %s: not valid UTF-8", files.Quote(key))
			}
		}
		fields = append(fields, field{metadataKey, metadata})
	}
	seen := map[string]bool{}
	begin := 0
	for _, t := range tensors {
		if err := checkName(t.Name, seen); err != nil {
			return nil, nil, err
		}
		size, err := byteSize(t.DType, t.Shape)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %s: %w", files.Quote(t.Name), err)
		}
		end := begin + size
		begins = append(begins, int64(begin))
		fields = append(fields, field{t.Name, struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}{t.DType, append([]int{}, t.Shape...), [2]int{begin, end}}}) // never nil, which would be null
		begin = end
	}
	header, err = encodeObject(fields)
	if err != nil {
		return nil, nil, err
	}
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	if len(header) > maxHeader {
		return nil, nil, fmt.Errorf("the header takes %d bytes, the format's limit is %d; write fewer tensors or less metadata", len(header), maxHeader)
	}
	return header, begins, nil
}

func checkName(name string, seen map[string]bool) error {
	switch {
	case name == metadataKey:
		return fmt.Errorf("a tensor must not be named %s", metadataKey)
	case !utf8.ValidString(name):
		return fmt.Errorf("tensor %s: the name is not valid UTF-8", files.Quote(name))
	case seen[name]:
		return fmt.Errorf("two tensors are named %s", files.Quote(name))
	}
	seen[name] = true
	return nil
}

// field is one key and value of a JSON object.
type field struct {
	key   string
	value any
}

// encodeObject writes a JSON object with its keys in the given order.
func encodeObject(fields []field) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(f.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
