package torchfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/krait-ml/krait/internal/torchsave"
)

// TestPython reads a file whose program Python's own pickle wrote, with two tensors in one
// storage, a parameter, and metadata that are no tensors.
func TestPython(t *testing.T) {
	f, err := Open("testdata/python.bin")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := floats(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	half := []byte{0, 0x3c, 0, 0x40, 0, 0x42}
	for _, want := range []Tensor{
		{"h", "F16", []int{3}, half}, {"n", "I64", []int{}, []byte{0xfb, 255, 255, 255, 255, 255, 255, 255}}, {"p", "F16", []int{2, 1}, half[2:]},
		{"tied", "F32", []int{2, 4}, all[16:]}, {"w", "F32", []int{3, 4}, all},
	} {
		if got, _ := f.Tensor(want.Name); !cmp.Equal(got, want) {
			t.Error(cmp.Diff(want, got))
		}
	}
	if d := cmp.Diff([]string{"h", "n", "p", "tied", "w"}, f.Names()); d != "" || f.Intact() != nil {
		t.Error(d, f.Intact())
	}
}

func floats(values ...float32) (b []byte) {
	b, _ = binary.Append(nil, binary.LittleEndian, values)
	return b
}

func sample() []torchsave.Tensor {
	return []torchsave.Tensor{{Name: "a", Class: "FloatStorage", Shape: []int{2, 3}, Elems: 6, Data: make([]byte, 24)}, {Name: "b", Class: "BFloat16Storage", Shape: []int{}, Elems: 1, Data: []byte{1, 2}}}
}

func packed(t testing.TB, program []byte) []byte {
	t.Helper()
	data, err := torchsave.Archive(program, sample())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// change breaks the program of the sample.
func change(old, new string) []byte {
	p := torchsave.Program(sample())
	if !bytes.Contains(p, []byte(old)) {
		panic("BUG: the program has no " + old)
	}
	return bytes.Replace(p, []byte(old), []byte(new), 1)
}

// TestErrors: programs that do anything but make a state dict are refused, by the name of
// what they do.
func TestErrors(t *testing.T) {
	if f, err := Parse("x", packed(t, torchsave.Program(sample()))); err != nil || len(f.Names()) != 2 {
		t.Fatal(err)
	}
	for want, program := range map[string][]byte{
		`the program names "os.system", which the state dict of a model does not take: refused`: []byte("\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R."),
		`the program names "builtins.eval"`:                                                     []byte("\x80\x04\x8c\x08builtins\x8c\x04eval\x93."),
		"operation 0x81 (NEWOBJ) of pickle":                                                     []byte("\x80\x02)\x81."),
		"operation 0x69 (INST)":                                                                 []byte("\x80\x02(ios\nsystem\n."),
		"protocol 9 of pickle":                                                                  []byte("\x80\x09."),
		"its program ends too early":                                                            []byte("\x80\x02}"),
		"data.pkl makes a list; a checkpoint is a dict of tensors":                              []byte("\x80\x02]."),
		`"k" is the number 7, not a tensor`:                                                     []byte("\x80\x02}X\x01\x00\x00\x00kK\x07s."),
		"the number 7 is a key":                                                                 []byte("\x80\x02}K\x07K\x07s."),
		"the program takes 2 values, and there are 1":                                           []byte("\x80\x02}R."),
		"takes values after a mark":                                                             []byte("\x80\x02}u."),
		"no pairs":                                                                              []byte("\x80\x02}(K\x07u."),
		"asks for value 3, which it did not keep":                                               []byte("\x80\x02h\x03."),
		"the program ends with 2 values":                                                        []byte("\x80\x02}}."),
		`the dict "k." is in two places`:                                                        []byte("\x80\x02}q\x00X\x01\x00\x00\x00kh\x00s."),
		"collections.OrderedDict is called with 1 values":                                       []byte("\x80\x02ccollections\nOrderedDict\nK\x07\x85R."),
		"None is given attributes":                                                              []byte("\x80\x02N}b."),
		"a storage is named by the number 7":                                                    []byte("\x80\x02K\x07Q."),
		`storage "0" has 24 bytes; 7 elements of F32 have 28`:                                   change("J\x06\x00\x00\x00tQ", "J\x07\x00\x00\x00tQ"),
		`storage "0" has 24 bytes; 6 elements of F64 have 48`:                                   change("FloatStorage", "DoubleStorage"),
		`the program names "torch.ComplexFloatStorage"`:                                         change("torch\nFloatStorage", "torch\nComplexFloatStorage"),
		"a tensor of shape [2 3] from element 1 on is in a storage of 6 elements":               change("tQK\x00", "tQK\x01"),
		"has strides [1 3]; Krait reads those that are contiguous":                              change("J\x03\x00\x00\x00J\x01\x00\x00\x00t\x89", "J\x01\x00\x00\x00J\x03\x00\x00\x00t\x89"),
		"from element 0 on is in a storage of 6 elements":                                       change("J\x02\x00\x00\x00J\x03\x00\x00\x00t(", "J\xff\xff\xff\x7fJ\x03\x00\x00\x00t("),
		"a storage is named by torch.FloatStorage":                                              change("X\x01\x00\x00\x000", "X\x05\x00\x00\x00../0x"),
		`the archive has no data/"9"`:                                                           change("X\x01\x00\x00\x000", "X\x01\x00\x00\x009"),
		"two tensors are named \"a\"":                                                           change("X\x01\x00\x00\x00b", "X\x01\x00\x00\x00a"),
	} {
		if _, err := Parse("x", packed(t, program)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestArchives: files that are no archive of torch.save, or a damaged one, are errors.
func TestArchives(t *testing.T) {
	other := func(method uint16, names ...string) []byte {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for _, name := range names {
			w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(w, strings.Repeat("x", 100))
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	good := packed(t, torchsave.Program(sample()))
	for want, data := range map[string][]byte{
		"the file is empty":                       {},
		"before version 1.6":                      []byte("\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."),
		"is not a zip archive":                    []byte("not at all"),
		"a Git LFS pointer":                       []byte("version https://git-lfs.github.com/spec/v1"),
		"has no data.pkl":                         other(zip.Store, "a/b"),
		"has two data.pkl":                        other(zip.Store, "a/data.pkl", "b/data.pkl"),
		`has two files "a/x"`:                     other(zip.Store, "a/x", "a/x"),
		`"data.pkl" of the archive is compressed`: other(zip.Deflate, "a/data.pkl"),
		"the archive is damaged or cut":           good[:len(good)-30],
		"numbers are in the order":                other(zip.Store, "a/byteorder", "a/data.pkl"),
	} {
		if _, err := Parse("x", data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := Parse("x", other(zip.Deflate, "a/byteorder", "a/data.pkl")); err == nil || err.Error() != `x: "byteorder" of the archive is compressed, which torch.save does not do` {
		t.Error(err)
	}
	over := bytes.Clone(good) // its directory says that data/1 is where data/0 is
	var entries []int
	for at := 0; ; at += 4 {
		next := bytes.Index(over[at:], []byte("PK\x01\x02"))
		if next < 0 {
			break
		}
		at += next
		entries = append(entries, at)
	}
	copy(over[entries[2]+42:][:4], over[entries[1]+42:][:4])
	if _, err := Parse("x", over); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("got %v, want that data overlap", err)
	}
	for n := range good {
		if _, err := Parse("x", good[:n]); err == nil {
			t.Fatalf("cut to %d of %d bytes it is no error", n, len(good))
		}
	}
}

// FuzzProgram: no program makes a panic, much memory, or a tensor that is not its data.
func FuzzProgram(f *testing.F) {
	f.Add(torchsave.Program(sample()))
	f.Add([]byte("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01G\x00\x00\x00\x00\x00\x00\x00\x00\x8a\x02\x00\x80e\x89u."))
	f.Fuzz(func(t *testing.T, program []byte) {
		g, err := Parse("x", packed(t, program))
		if err == nil {
			look(t, g)
		}
	})
}

// FuzzParse is FuzzProgram for whole files.
func FuzzParse(f *testing.F) {
	f.Add(packed(f, torchsave.Program(sample())))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := Parse("x", data)
		if err == nil {
			look(t, g)
		}
	})
}

func look(t *testing.T, f *File) {
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		n := 1
		for _, d := range x.Shape {
			n *= d
		}
		size := map[string]int{"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}[x.DType]
		if size == 0 || n*size != len(x.Data) {
			t.Fatalf("%s %v has %d bytes", x.DType, x.Shape, len(x.Data))
		}
	}
}
