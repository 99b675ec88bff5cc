package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/krait-ml/krait/internal/files"
)

// Pair is a key of the metadata and its value, of a type as [File.Value] returns.
type Pair struct {
	Key   string
	Value any
}

// alignment is where tensors begin in what we write: at multiples of it, as all do.
const alignment = 32

// Write writes a file of version 3, with the metadata and the tensors in the order given.
//
// It is an error when two keys or two tensors have the same name, when a value is of no
// type that GGUF has, when a tensor has more than 4 axes or its data are not of the size
// that type and shape ask for, and when w fails.
func Write(w io.Writer, metadata []Pair, tensors []Tensor) error {
	header, begins, err := Header(metadata, tensors)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	at := int64(len(header))
	for i, t := range tensors {
		size, _ := t.Type.Size(t.Shape) // Header looked
		if size != len(t.Data) {
			return fmt.Errorf("tensor %s: %s %v needs %d bytes, its data has %d", files.Quote(t.Name), t.Type, t.Shape, size, len(t.Data))
		}
		if _, err := w.Write(append(make([]byte, begins[i]-at, int(begins[i]-at)+size), t.Data...)); err != nil {
			return err
		}
		at = begins[i] + int64(size)
	}
	_, err = w.Write(make([]byte, pad(at)))
	return err
}

// pad is how many bytes there are to the next multiple of the alignment.
func pad(at int64) int64 { return (alignment - at%alignment) % alignment }

// Header is how a file of these tensors begins, and where each of them begins in it. What
// is between them, and up to a multiple of 32 at the end, is zeros. Their Data is not
// looked at: who writes tensors one by one need not have them all.
func Header(metadata []Pair, tensors []Tensor) (header []byte, begins []int64, err error) {
	b := []byte("GGUF")
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(metadata)))
	seen := map[string]bool{}
	for _, p := range metadata {
		if seen[p.Key] {
			return nil, nil, fmt.Errorf("the key %s comes twice", files.Quote(p.Key))
		}
		seen[p.Key] = true
		b = appendText(b, p.Key)
		if b, err = appendValue(b, p.Value); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", files.Quote(p.Key), err)
		}
	}
	clear(seen)
	end := int64(0)
	for _, t := range tensors {
		if seen[t.Name] {
			return nil, nil, fmt.Errorf("two tensors are named %s", files.Quote(t.Name))
		}
		seen[t.Name] = true
		size, err := t.Type.Size(t.Shape)
		if err == nil && len(t.Shape) > maxAxes {
			err = fmt.Errorf("%d axes; ggml has %d", len(t.Shape), maxAxes)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %s: %w", files.Quote(t.Name), err)
		}
		b = appendText(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
		for _, n := range slices.Backward(t.Shape) {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
		b = binary.LittleEndian.AppendUint64(b, uint64(end))
		begins = append(begins, end)
		end += int64(size)
		end += pad(end)
	}
	b = append(b, make([]byte, pad(int64(len(b))))...)
	for i := range begins {
		begins[i] += int64(len(b))
	}
	return b, begins, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// kinds are those of values, by the Go kind.
var kinds = map[reflect.Kind]uint32{
	reflect.Uint8: 0, reflect.Int8: 1, reflect.Uint16: 2, reflect.Int16: 3, reflect.Uint32: 4, reflect.Int32: 5,
	reflect.Float32: 6, reflect.Bool: 7, reflect.String: kindText, reflect.Uint64: 10, reflect.Int64: 11, reflect.Float64: 12,
	reflect.Slice: kindList, reflect.Interface: kindList,
}

func appendValue(b []byte, v any) ([]byte, error) {
	kind, ok := kinds[reflect.ValueOf(v).Kind()]
	if !ok {
		return nil, fmt.Errorf("GGUF has no kind for %T", v)
	}
	return appendBody(binary.LittleEndian.AppendUint32(b, kind), v)
}

// appendBody is a value without its kind.
func appendBody(b []byte, v any) ([]byte, error) {
	if s, ok := v.(string); ok {
		return appendText(b, s), nil
	}
	x := reflect.ValueOf(v)
	if x.Kind() != reflect.Slice {
		return binary.Append(b, binary.LittleEndian, v)
	}
	kind, ok := kinds[x.Type().Elem().Kind()]
	if !ok {
		return nil, fmt.Errorf("GGUF has no kind for %T", v)
	}
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = binary.LittleEndian.AppendUint64(b, uint64(x.Len()))
	if kind != kindText && kind != kindList {
		return binary.Append(b, binary.LittleEndian, v)
	}
	for i := range x.Len() {
		var err error
		e := x.Index(i).Interface()
		if kind == kindList && reflect.ValueOf(e).Kind() != reflect.Slice {
			return nil, fmt.Errorf("element %d of a list of lists is %T", i, e)
		}
		if b, err = appendBody(b, e); err != nil {
			return nil, err
		}
	}
	return b, nil
}
