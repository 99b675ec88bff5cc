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

	"github.com/krait-ml/krait/internal/bail"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/ordered"
)

// Limits of a file, far above those of any real one: counts in the header are cheap to make up.
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

// reader reads what is before the tensors' data. Its methods but pair and place panic with errors.
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
	ordered.Sort(places, func(a, b place) int {
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
	defer bail.Catch(&err)
	p.Name = r.text(maxName)
	defer bail.In(func() string { return files.Quote(p.Name) })
	axes := number[uint32](r)
	if axes > maxAxes {
		panic(fmt.Errorf("%d axes; ggml has %d", axes, maxAxes))
	}
	for range axes {
		n := number[uint64](r)
		if n > math.MaxInt32 {
			panic(fmt.Errorf("an axis of %d elements", n))
		}
		p.Shape = append(p.Shape, int(n))
	}
	slices.Reverse(p.Shape)
	p.Type = Type(number[uint32](r))
	p.begin = number[uint64](r)
	p.size = bail.Of(p.Type.Size(p.Shape))
	return p, nil
}

// pair reads a key and its value.
func (r *reader) pair() (key string, v any, err error) {
	defer bail.Catch(&err)
	key = r.text(maxName)
	defer bail.In(func() string { return files.Quote(key) })
	switch kind := number[uint32](r); kind {
	case kindText:
		return key, r.text(maxMetadata), nil
	case kindList:
		return key, r.list(0), nil
	default:
		k, ok := numeric[kind]
		if !ok {
			panic(fmt.Errorf("unknown kind of value %d; GGUF has 0 to 12", kind))
		}
		return key, k.one(r), nil
	}
}

// The kinds of values in the metadata: texts, lists, and those of numeric.
const (
	kindText = 8
	kindList = 9
)

// A numberKind reads a number, or a list of n.
type numberKind struct {
	one  func(r *reader) any
	list func(r *reader, n uint64) any
}

func kindOfNumber[T any]() numberKind {
	return numberKind{func(r *reader) any { return number[T](r) }, func(r *reader, n uint64) any { return numbers[T](r, n) }}
}

var numeric = map[uint32]numberKind{
	0: kindOfNumber[uint8](), 1: kindOfNumber[int8](), 2: kindOfNumber[uint16](), 3: kindOfNumber[int16](), 4: kindOfNumber[uint32](), 5: kindOfNumber[int32](),
	6: kindOfNumber[float32](), 7: kindOfNumber[bool](), 10: kindOfNumber[uint64](), 11: kindOfNumber[int64](), 12: kindOfNumber[float64](),
}

func (r *reader) list(depth int) any {
	kind, n := number[uint32](r), number[uint64](r)
	switch kind {
	case kindText:
		return elements(r, n, 8, func() string { return r.text(maxMetadata) })
	case kindList:
		if depth++; depth >= maxNested {
			panic(fmt.Errorf("lists in lists, more than %d deep", maxNested))
		}
		return elements(r, n, 12, func() any { return r.list(depth) })
	}
	k, ok := numeric[kind]
	if !ok {
		panic(fmt.Errorf("a list of the unknown kind %d; GGUF has 0 to 12", kind))
	}
	return k.list(r, n)
}

// elements reads n elements of at least least bytes each.
func elements[T any](r *reader, n uint64, least int, read func() T) []T {
	r.room(n, least)
	out := make([]T, 0, n)
	defer bail.In(func() string { return fmt.Sprintf("element %d", len(out)) })
	for range n {
		out = append(out, read())
	}
	return out
}

// room fails where n elements of a size are more than what is left to read.
func (r *reader) room(n uint64, size int) {
	if left := len(r.data) - r.at; n > uint64(left/size) {
		panic(fmt.Errorf("%d elements of at least %d bytes at byte %d, and %d bytes are left: the file is truncated or damaged (Krait reads at most %d MiB of metadata)",
			n, size, r.at, left, maxMetadata>>20))
	}
}

func numbers[T any](r *reader, n uint64) []T {
	var one T
	size := binary.Size(one)
	r.room(n, size)
	out := make([]T, n)
	r.at += bail.Of(binary.Decode(r.data[r.at:r.at+int(n)*size], binary.LittleEndian, out))
	return out
}

func number[T any](r *reader) (v T) {
	r.room(1, binary.Size(v))
	r.at += bail.Of(binary.Decode(r.data[r.at:], binary.LittleEndian, &v))
	return v
}

// text reads a length and as many bytes.
func (r *reader) text(most int) string {
	n := number[uint64](r)
	r.room(n, 1)
	if n > uint64(most) {
		panic(fmt.Errorf("a name of %d bytes at byte %d", n, r.at))
	}
	s := string(r.data[r.at : r.at+int(n)])
	r.at += int(n)
	if most == maxName && !utf8.ValidString(s) {
		panic(fmt.Errorf("a name that is not valid UTF-8 at byte %d", r.at))
	}
	return s
}
