package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTypes reads a file that llama.cpp's Python library wrote: values of all kinds, and
// tensors of all formats beside what that library makes of them.
func TestTypes(t *testing.T) {
	f, err := Open("testdata/types.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := map[string]any{
		"general.architecture": "blocks", "u8": uint8(7), "i8": int8(-7), "u16": uint16(60000), "i16": int16(-30000), "u32": uint32(4000000000), "i32": int32(-2000000000),
		"f32": float32(0.1), "u64": uint64(1) << 63, "i64": int64(-1) << 62, "f64": 0.1, "bool": true, "text": "grüß",
		"texts": []string{"a", "", "ü"}, "ints": []int32{1, -2, 3}, "floats": []float32{1.5, 2.5},
	}
	if d := cmp.Diff(want, f.Metadata()); d != "" {
		t.Error(d)
	}
	later, err := Open("testdata/iq4.gguf") // of llama.cpp's quantizer
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	if n := sameAsWide(t, f) + sameAsWide(t, later); n != 12 {
		t.Errorf("%d formats compared", n)
	}
}

// sameAsWide compares tensors with what their library makes of them, and counts them.
func sameAsWide(t *testing.T, f *File) (compared int) {
	t.Helper()
	for _, name := range f.Names() {
		raw, ok := strings.CutSuffix(name, ".wide")
		if !ok {
			continue
		}
		wide, _ := f.Tensor(name)
		tensor, _ := f.Tensor(raw)
		got, err := tensor.Float32s()
		right, err2 := wide.Float32s()
		if err != nil || err2 != nil || tensor.Type.String() != raw || !cmp.Equal(tensor.Shape, []int{2, 512}) {
			t.Fatalf("%s: %s %v: %v, %v", raw, tensor.Type, tensor.Shape, err, err2)
		}
		for i, v := range got {
			if v != right[i] {
				t.Fatalf("%s: element %d is %g, want %g", raw, i, v, right[i])
			}
		}
		compared++
	}
	return compared
}

// TestFormats: blocks have the sizes that graphs give them.
func TestFormats(t *testing.T) {
	for typ, d := range dtypes {
		if l, f := layouts[typ], d.Format(); f != nil && (l.elems != f.Elems || l.bytes != f.Bytes) {
			t.Errorf("%s: blocks of %d elements in %d bytes, and %d in %d in graphs", typ, l.elems, l.bytes, f.Elems, f.Bytes)
		}
	}
}

// sample is a small file with values of all kinds.
func sample(t testing.TB) ([]Pair, []Tensor, []byte) {
	t.Helper()
	metadata := []Pair{
		{"general.architecture", "x"}, {"a", uint8(1)}, {"b", int8(-1)}, {"c", uint16(2)}, {"d", int16(-2)}, {"e", uint32(3)}, {"f", int32(-3)}, {"g", float32(1.5)},
		{"h", true}, {"i", uint64(4)}, {"j", int64(-4)}, {"k", 2.5}, {"l", []string{"one", "", "three"}}, {"m", []float32{1, 2}}, {"n", []bool{true, false}},
		{"o", []any{[]int32{1}, []string{"x"}}}, {"p", []uint8{}},
	}
	tensors := []Tensor{
		{"w", F32, []int{2, 3}, make([]byte, 24)}, {"q", Q8_0, []int{3, 32}, bytes.Repeat([]byte{1}, 102)}, {"none", F16, []int{0, 4}, []byte{}}, {"one", F32, nil, []byte{0, 0, 128, 63}},
	}
	var b bytes.Buffer
	if err := Write(&b, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	return metadata, tensors, b.Bytes()
}

// TestWrite: what is written is read.
func TestWrite(t *testing.T) {
	metadata, tensors, data := sample(t)
	f, err := Parse("x", data)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range metadata {
		if v, _ := f.Value(p.Key); f.Keys()[i] != p.Key || !cmp.Equal(v, p.Value) {
			t.Errorf("%s: got %#v, want %#v", p.Key, v, p.Value)
		}
	}
	for _, want := range tensors {
		if got, _ := f.Tensor(want.Name); got.Type != want.Type || fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if len(data)%32 != 0 || f.Version() != 3 {
		t.Errorf("%d bytes, version %d", len(data), f.Version())
	}
}

// TestWriteErrors: what the format cannot hold is an error.
func TestWriteErrors(t *testing.T) {
	for want, c := range map[string]struct {
		metadata []Pair
		tensors  []Tensor
	}{
		`the key "a" comes twice`:         {metadata: []Pair{{"a", true}, {"a", true}}},
		`"a": GGUF has no kind for int`:   {metadata: []Pair{{"a", 1}}},
		`"a": GGUF has no kind for []int`: {metadata: []Pair{{"a", []int{1}}}},
		`element 0 of a list of lists`:    {metadata: []Pair{{"a", []any{true}}}},
		`two tensors are named "t"`:       {tensors: []Tensor{{Name: "t"}, {Name: "t"}}},
		`5 axes; ggml has 4`:              {tensors: []Tensor{{Name: "t", Shape: []int{1, 1, 1, 1, 1}}}},
		`is not a multiple of 32`:         {tensors: []Tensor{{Name: "t", Type: Q8_0, Shape: []int{33}}}},
		`unknown tensor type 99`:          {tensors: []Tensor{{Name: "t", Type: 99}}},
		`needs 8 bytes, its data has 0`:   {tensors: []Tensor{{Name: "t", Shape: []int{2}}}},
	} {
		if err := Write(&bytes.Buffer{}, c.metadata, c.tensors); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// builder writes files that are wrong.
type builder struct{ bytes.Buffer }

func start(tensors, keys uint64) *builder {
	b := &builder{}
	b.WriteString("GGUF")
	return b.put(uint32(3), tensors, keys)
}

func (b *builder) put(values ...any) *builder {
	for _, v := range values {
		if s, ok := v.(string); ok {
			b.put(uint64(len(s)))
			b.WriteString(s)
			continue
		}
		_ = binary.Write(b, binary.LittleEndian, v)
	}
	return b
}

func (b *builder) tensor(name string, kind uint32, begin uint64, shape ...uint64) *builder {
	b.put(name, uint32(len(shape)))
	for _, n := range shape {
		b.put(n)
	}
	return b.put(kind, begin)
}

func (b *builder) end(data int) []byte {
	for b.Len()%32 != 0 {
		b.WriteByte(0)
	}
	return append(b.Bytes(), make([]byte, data)...)
}

// TestErrors: files that are cut, lie, or are something else are errors that say what and
// where, whatever they count.
func TestErrors(t *testing.T) {
	huge := uint64(1) << 60
	for want, data := range map[string][]byte{
		"the file is empty": {},
		"does not begin with GGUF: it is another format":                   []byte("GGML...................."),
		"this is a Git LFS pointer":                                        []byte("version https://git-lfs.github.com/spec/v1"),
		"the file has 9 bytes":                                             []byte("GGUF\x03\x00\x00\x00\x00"),
		"version 1 of GGUF":                                                append([]byte("GGUF\x01\x00\x00\x00"), make([]byte, 16)...),
		"big-endian":                                                       append([]byte("GGUF\x00\x00\x00\x03"), make([]byte, 16)...),
		"version 4 of GGUF; Krait reads 2 and 3":                           append([]byte("GGUF\x04\x00\x00\x00"), make([]byte, 16)...),
		"the header counts 1152921504606846976 tensors":                    start(huge, 0).Bytes(),
		"the header counts 1152921504606846976 metadata":                   start(0, huge).Bytes(),
		"metadata 1 of 1: 1 elements of at least 8 bytes at byte 24":       start(0, 1).Bytes(),
		"1152921504606846976 elements of at least 1 bytes at byte 32":      start(0, 1).put(huge).Bytes(),
		`metadata 1 of 1: "k": unknown kind of value 13`:                   start(0, 1).put("k", uint32(13)).Bytes(),
		`"k": a list of the unknown kind 77`:                               start(0, 1).put("k", uint32(9), uint32(77), uint64(0)).Bytes(),
		`"k": 1152921504606846976 elements of at least 4 bytes`:            start(0, 1).put("k", uint32(9), uint32(6), huge).Bytes(),
		`"k": 1152921504606846976 elements of at least 8 bytes`:            start(0, 1).put("k", uint32(9), uint32(8), huge).Bytes(),
		"lists in lists, more than 4 deep":                                 start(0, 1).put("k", uint32(9), uint32(9), uint64(1), uint32(9), uint64(1), uint32(9), uint64(1), uint32(9), uint64(1), uint32(9), uint64(1), make([]byte, 40)).Bytes(),
		`the key "k" comes twice`:                                          start(0, 2).put("k", uint32(7), true, "k", uint32(7), true).Bytes(),
		"general.alignment is 3; it must be a power of two":                start(0, 1).put("general.alignment", uint32(4), uint32(3)).Bytes(),
		`tensor 1 of 1: "t": unknown tensor type 1000`:                     start(1, 0).tensor("t", 1000, 0, 4).end(64),
		`"t": 5 axes; ggml has 4`:                                          start(1, 0).put("t", uint32(5)).end(64),
		`"t": 1000000 axes`:                                                start(1, 0).put("t", uint32(1000000)).end(64),
		`"t": an axis of 1152921504606846976 elements`:                     start(1, 0).tensor("t", 0, 0, huge).end(64),
		`F32 [2147483647 2147483647 2147483647] is too large`:              start(1, 0).tensor("t", 0, 0, math.MaxInt32, math.MaxInt32, math.MaxInt32).end(64),
		`Q8_0 [33]: the last axis is not a multiple of 32`:                 start(1, 0).tensor("t", 8, 0, 33).end(64),
		`tensor "t" begins at byte 4 of the data, which is not a multiple`: start(1, 0).tensor("t", 0, 4, 1).end(64),
		`tensor "t" (F32 [17]) has bytes 0 to 68 of the data, of which the file has 64: it is truncated`: start(1, 0).tensor("t", 0, 0, 17).end(64),
		`tensor "t" (F32 [1]) has bytes 18446744073709551584 to`:                                         start(1, 0).tensor("t", 0, 1<<64-32, 1).end(64),
		`two tensors are named "t"`: start(2, 0).tensor("t", 0, 0, 1).tensor("t", 0, 32, 1).end(64),
		`tensor "u" begins at byte 32 of the data, inside tensor "t", which ends at 64: tensors must not overlap`: start(2, 0).tensor("t", 0, 0, 16).tensor("u", 0, 32, 1).end(64),
	} {
		if _, err := Parse("x", data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	_, _, data := sample(t)
	for n := range data[:len(data)-32] {
		if _, err := Parse("x", data[:n]); err == nil {
			t.Fatalf("cut to %d of %d bytes it is no error", n, len(data))
		}
	}
}

func TestUnread(t *testing.T) {
	f, err := Parse("x", start(1, 0).tensor("t", 10, 0, 256).end(96))
	if err != nil {
		t.Fatal(err)
	}
	x, _ := f.Tensor("t")
	if _, err := x.Float32s(); err == nil || !strings.Contains(err.Error(), "has the format Q2_K; Krait reads F32,") {
		t.Error(err)
	}
}

// TestParts: the parts of a model are one file, and what is wrong with them is said.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("m-%05d-of-00003.gguf", i)) }
	write := func(path string, no, count uint16, tensor string) {
		t.Helper()
		var b bytes.Buffer
		err := Write(&b, []Pair{{"split.no", no}, {"split.count", count}, {"split.tensors.count", int32(3)}}, []Tensor{{tensor, F32, []int{1}, make([]byte, 4)}})
		if err == nil {
			err = os.WriteFile(path, b.Bytes(), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fails := func(path, want string) {
		t.Helper()
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	write(name(1), 0, 3, "c")
	write(name(2), 1, 3, "a")
	fails(name(1), "m-00003-of-00003.gguf is missing; download it")
	write(name(3), 2, 3, "a")
	fails(name(1), `tensor "a" is in two parts`)
	write(name(3), 1, 3, "b")
	fails(name(1), "split.no is 1, and its name says part 3")
	write(name(3), 2, 3, "b")
	fails(name(2), "is part 2 of 3; open the first part")
	f, err := Open(name(1))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a", "b", "c"}, f.Names()); d != "" || f.FileOf("b") != name(3) || f.Intact() != nil {
		t.Error(d, f.FileOf("b"), f.Intact())
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	write(filepath.Join(dir, "other.gguf"), 0, 3, "c")
	fails(filepath.Join(dir, "other.gguf"), "must have the name NAME-00001-of-00003.gguf")
}

// FuzzParse: no bytes make a panic, much memory, or a tensor that is not its data.
func FuzzParse(f *testing.F) {
	_, _, data := sample(f)
	f.Add(data)
	f.Add(start(1, 1).put("k", uint32(9), uint32(9), uint64(1), uint32(8), uint64(1), "x").tensor("t", 8, 0, 32).end(64))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := Parse("x", data)
		if err != nil {
			return
		}
		for _, name := range g.Names() {
			x, _ := g.Tensor(name)
			if size, err := x.Type.Size(x.Shape); err != nil || size != len(x.Data) {
				t.Fatalf("%s %v has %d bytes: %v", x.Type, x.Shape, len(x.Data), err)
			}
			if _, err := x.Float32s(); err != nil && x.Type.Readable() {
				t.Fatal(err)
			}
		}
	})
}
