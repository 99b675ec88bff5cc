package gguf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/files"
)

// Limits of a file, far above those of any real one: counts in the header are
// cheap to make up.
const (
	maxTensors  = 1 << 18
	maxKeys     = 1 << 16
	maxMetadata = 256 << 20 // bytes, with the descriptions of tensors
	maxNested   = 4         // lists in lists
	maxAxes     = 4         // what ggml has
	maxName     = 1 << 10
	maxAlign    = 1 << 20
)

// Parse reads a file from bytes in memory. The tensors are views of data, which must not
// change afterwards. The name is used in errors only.
//
// It is an error when the bytes are not GGUF, version 2 or 3, little-endian; when a count
// or a length is larger than the file or absurd; when a key or a tensor comes twice; when
// a type is not known; and when tensors are not aligned, overlap or lie outside the file.
func Parse(name string, data []byte) (*File, error) {
	f, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.name = name
	f.owner = map[string]string{}
	for _, t := range f.names {
		f.owner[t] = name
	}
	return f, nil
}

// reader reads what is before the tensors' data.
type reader struct {
	data []byte
	at   int
}

func parse(data []byte) (*File, error) {
	tensors, keys, version, err := readStart(data)
	if err != nil {
		return nil, err
	}
	r := &reader{data: data[:min(len(data), maxMetadata)], at: 24}
	f := &File{version: version, values: map[string]any{}, tensors: map[string]Tensor{}}
	for i := range keys {
		key, v, err := r.pair()
		if err == nil && f.values[key] != nil {
			err = fmt.Errorf("the key %s comes twice", files.Quote(key))
		}
		if err != nil {
			return nil, fmt.Errorf("metadata %d of %d: %w", i+1, keys, err)
		}
		f.keys, f.values[key] = append(f.keys, key), v
	}
	var places []place
	for i := range tensors {
		p, err := r.place()
		if err != nil {
			return nil, fmt.Errorf("tensor %d of %d: %w", i+1, tensors, err)
		}
		places = append(places, p)
	}
	align, err := f.alignment()
	if err != nil {
		return nil, err
	}
	return f, f.cut(places, data, (r.at+align-1)/align*align, align)
}

// readStart reads the 24 bytes that every file begins with.
func readStart(data []byte) (tensors, keys int, version uint32, err error) {
	if err := files.CheckDownload(data); err != nil {
		return 0, 0, 0, err
	}
	switch {
	case !bytes.HasPrefix(data, []byte("GGUF")):
		return 0, 0, 0, errors.New("the file does not begin with GGUF: it is another format, or damaged")
	case len(data) < 24:
		return 0, 0, 0, fmt.Errorf("the file has %d bytes, its first counts alone take 24: it is truncated", len(data))
	}
	version = binary.LittleEndian.Uint32(data[4:])
	t, k := binary.LittleEndian.Uint64(data[8:]), binary.LittleEndian.Uint64(data[16:])
	switch {
	case version == 1:
		err = errors.New("version 1 of GGUF, last written in 2023; convert the model again")
	case version > 0xffff:
		err = errors.New("the file is big-endian; Krait reads little-endian files")
	case version != 2 && version != 3:
		err = fmt.Errorf("version %d of GGUF; Krait reads 2 and 3", version)
	case t > maxTensors:
		err = fmt.Errorf("the header counts %d tensors; the most that Krait reads from one file is %d", t, maxTensors)
	case k > maxKeys:
		err = fmt.Errorf("the header counts %d metadata; the most that Krait reads is %d", k, maxKeys)
	}
	return int(t), int(k), version, err
}

// alignment is that of the tensors' data.
func (f *File) alignment() (int, error) {
	v, ok := f.values["general.alignment"]
	if !ok {
		return 32, nil
	}
	n, ok := v.(uint32)
	if !ok || n < 1 || n > maxAlign || n&(n-1) != 0 {
		return 0, fmt.Errorf("general.alignment is %s; it must be a power of two up to %d", kindOf(v), maxAlign)
	}
	return int(n), nil
}

// place is where a tensor is said to be.
type place struct {
	Tensor
	begin uint64 // in the data
	size  int
}

// cut gives every tensor its data, which begin at byte start of the file.
func (f *File) cut(places []place, data []byte, start, align int) error {
	for _, p := range places {
		room := uint64(max(0, len(data)-start))
		switch {
		case p.begin%uint64(align) != 0:
			return fmt.Errorf("tensor %s begins at byte %d of the data, which is not a multiple of the alignment %d", files.Quote(p.Name), p.begin, align)
		case p.begin > room || uint64(p.size) > room-p.begin:
			return fmt.Errorf("tensor %s (%s %v) has bytes %d to %d of the data, of which the file has %d: it is truncated; download it again",
				files.Quote(p.Name), p.Type, p.Shape, p.begin, p.begin+uint64(p.size), room)
		}
	}
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.size, b.size))
	})
	end, last := uint64(0), ""
	for _, p := range places {
		if _, ok := f.tensors[p.Name]; ok {
			return fmt.Errorf("two tensors are named %s", files.Quote(p.Name))
		}
		if p.begin < end {
			return fmt.Errorf("tensor %s begins at byte %d of the data, inside tensor %s, which ends at %d: tensors must not overlap", files.Quote(p.Name), p.begin, files.Quote(last), end)
		}
		if end, last = p.begin+uint64(p.size), p.Name; p.size == 0 {
			p.Data = []byte{}
		} else {
			at := start + int(p.begin)
			p.Data = data[at : at+p.size : at+p.size]
		}
		f.tensors[p.Name] = p.Tensor
		f.names = append(f.names, p.Name)
	}
	slices.Sort(f.names)
	return nil
}

// place reads the description of a tensor.
func (r *reader) place() (p place, err error) {
	if p.Name, err = r.text(maxName); err != nil {
		return p, err
	}
	axes, err := number[uint32](r)
	if err == nil && axes > maxAxes {
		err = fmt.Errorf("%d axes; ggml has %d", axes, maxAxes)
	}
	for range axes {
		if err != nil {
			break
		}
		var n uint64
		if n, err = number[uint64](r); err == nil && n > math.MaxInt32 {
			err = fmt.Errorf("an axis of %d elements", n)
		}
		p.Shape = append(p.Shape, int(n))
	}
	slices.Reverse(p.Shape)
	if err == nil {
		var t uint32
		t, err = number[uint32](r)
		p.Type = Type(t)
	}
	if err == nil {
		p.begin, err = number[uint64](r)
	}
	if err == nil {
		p.size, err = p.Type.Size(p.Shape)
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w", files.Quote(p.Name), err)
	}
	return p, nil
}

// pair reads a key and its value.
func (r *reader) pair() (key string, v any, err error) {
	if key, err = r.text(maxName); err != nil {
		return "", nil, err
	}
	kind, err := number[uint32](r)
	if err == nil {
		v, err = r.value(kind, 0)
	}
	if err != nil {
		return key, nil, fmt.Errorf("%s: %w", files.Quote(key), err)
	}
	return key, v, nil
}

// The kinds of values in the metadata.
const (
	kindText = 8
	kindList = 9
)

func (r *reader) value(kind uint32, depth int) (any, error) {
	switch kind {
	case 0:
		return number[uint8](r)
	case 1:
		return number[int8](r)
	case 2:
		return number[uint16](r)
	case 3:
		return number[int16](r)
	case 4:
		return number[uint32](r)
	case 5:
		return number[int32](r)
	case 6:
		return number[float32](r)
	case 7:
		return number[bool](r)
	case kindText:
		return r.text(maxMetadata)
	case kindList:
		return r.list(depth)
	case 10:
		return number[uint64](r)
	case 11:
		return number[int64](r)
	case 12:
		return number[float64](r)
	}
	return nil, fmt.Errorf("unknown kind of value %d; GGUF has 0 to 12", kind)
}

func (r *reader) list(depth int) (any, error) {
	kind, err := number[uint32](r)
	if err != nil {
		return nil, err
	}
	n, err := number[uint64](r)
	if err != nil {
		return nil, err
	}
	switch kind {
	case 0:
		return numbers[uint8](r, n)
	case 1:
		return numbers[int8](r, n)
	case 2:
		return numbers[uint16](r, n)
	case 3:
		return numbers[int16](r, n)
	case 4:
		return numbers[uint32](r, n)
	case 5:
		return numbers[int32](r, n)
	case 6:
		return numbers[float32](r, n)
	case 7:
		return numbers[bool](r, n)
	case kindText:
		return elements(r, n, 8, func() (string, error) { return r.text(maxMetadata) })
	case kindList:
		if depth++; depth >= maxNested {
			return nil, fmt.Errorf("lists in lists, more than %d deep", maxNested)
		}
		return elements(r, n, 12, func() (any, error) { return r.list(depth) })
	case 10:
		return numbers[uint64](r, n)
	case 11:
		return numbers[int64](r, n)
	case 12:
		return numbers[float64](r, n)
	}
	return nil, fmt.Errorf("a list of the unknown kind %d; GGUF has 0 to 12", kind)
}

// elements reads n elements of at least least bytes each.
func elements[T any](r *reader, n uint64, least int, read func() (T, error)) ([]T, error) {
	if err := r.room(n, least); err != nil {
		return nil, err
	}
	out := make([]T, 0, n)
	for i := range n {
		v, err := read()
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		out = append(out, v)
	}
	return out, nil
}

// room fails where n elements of a size are more than what is left to read.
func (r *reader) room(n uint64, size int) error {
	if left := len(r.data) - r.at; n > uint64(left/size) {
		return fmt.Errorf("%d elements of at least %d bytes at byte %d, and %d bytes are left: the file is truncated or damaged (Krait reads at most %d MiB of metadata)",
			n, size, r.at, left, maxMetadata>>20)
	}
	return nil
}

func numbers[T any](r *reader, n uint64) ([]T, error) {
	var one T
	size := binary.Size(one)
	if err := r.room(n, size); err != nil {
		return nil, err
	}
	out := make([]T, n)
	used, err := binary.Decode(r.data[r.at:r.at+int(n)*size], binary.LittleEndian, out)
	r.at += used
	return out, err
}

func number[T any](r *reader) (v T, err error) {
	if err := r.room(1, binary.Size(v)); err != nil {
		return v, err
	}
	used, err := binary.Decode(r.data[r.at:], binary.LittleEndian, &v)
	r.at += used
	return v, err
}

// text reads a length and as many bytes.
func (r *reader) text(most int) (string, error) {
	n, err := number[uint64](r)
	if err != nil {
		return "", err
	}
	if err := r.room(n, 1); err != nil {
		return "", err
	}
	if n > uint64(most) {
		return "", fmt.Errorf("a name of %d bytes at byte %d", n, r.at)
	}
	s := string(r.data[r.at : r.at+int(n)])
	r.at += int(n)
	if most == maxName && !utf8.ValidString(s) {
		return "", fmt.Errorf("a name that is not valid UTF-8 at byte %d", r.at)
	}
	return s, nil
}
