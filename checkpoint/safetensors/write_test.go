package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// checkRewrite checks that writing a file's tensors and reading them again gives the same file.
func checkRewrite(t interface {
	Helper()
	Fatalf(string, ...any)
}, f *File) {
	t.Helper()
	var tensors []Tensor
	for _, name := range f.Names() {
		tensor, ok := f.Tensor(name)
		if !ok {
			t.Fatalf("no tensor %q", name)
		}
		if err := tensor.check(); err != nil {
			t.Fatalf("%v", err)
		}
		tensors = append(tensors, tensor)
	}
	var b bytes.Buffer
	if err := Write(&b, tensors, f.Metadata()); err != nil {
		t.Fatalf("writing: %v", err)
	}
	again, err := Parse("again", b.Bytes())
	if err != nil {
		t.Fatalf("reading again: %v", err)
	}
	if diff := cmp.Diff(f.Names(), again.Names()); diff != "" {
		t.Fatalf("names: %s", diff)
	}
	if len(f.Metadata())+len(again.Metadata()) > 0 {
		if diff := cmp.Diff(f.Metadata(), again.Metadata()); diff != "" {
			t.Fatalf("metadata: %s", diff)
		}
	}
	for _, want := range tensors {
		got, _ := again.Tensor(want.Name)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("tensor %q: %s", want.Name, diff)
		}
	}
}

// anyTensor draws a tensor of any dtype with legal data.
func anyTensor(name string) *rapid.Generator[Tensor] {
	return rapid.Custom(func(t *rapid.T) Tensor {
		dtype := rapid.SampledFrom([]string{"F64", "F32", "BF16", "F8_E4M3", "BOOL", "C64", "F4", "F6_E2M3"}).Draw(t, "dtype")
		shape := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 4).Draw(t, "shape")
		if dtypeBits[dtype] < 8 { // a multiple of 8 elements is a whole number of bytes
			shape = append(shape, 8)
		}
		if shape == nil {
			shape = []int{}
		}
		size, err := byteSize(dtype, shape)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i + len(name))
		}
		return Tensor{name, dtype, shape, data}
	})
}

func TestWriteThenParse(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.String(), 0, 8, rapid.ID).Draw(t, "names")
		metadata := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata")
		var tensors []Tensor
		for _, name := range names {
			tensors = append(tensors, anyTensor(name).Draw(t, "tensor"))
		}
		var b, reversed bytes.Buffer
		if err := Write(&b, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		f, err := Parse("m", b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tensors {
			if got, _ := f.Tensor(want.Name); !cmp.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
		if len(f.Names()) != len(tensors) {
			t.Fatalf("wrote %d tensors, read %d", len(tensors), len(f.Names()))
		}
		if len(metadata) > 0 && !cmp.Equal(f.Metadata(), metadata) {
			t.Fatalf("got %v, want %v", f.Metadata(), metadata)
		}
		slices.Reverse(tensors)
		if err := Write(&reversed, tensors, metadata); err != nil || !bytes.Equal(b.Bytes(), reversed.Bytes()) {
			t.Fatalf("the order of the tensors changes the file (%v)", err)
		}
	})
}

func TestWriteIsAligned(t *testing.T) {
	for n := range 20 { // header lengths of every remainder
		var b bytes.Buffer
		tensors := []Tensor{
			{strings.Repeat("a", n), "U8", []int{3}, []byte("abc")},
			{"b", "F64", nil, make([]byte, 8)},
			{"c", "BF16", []int{1}, make([]byte, 2)},
		}
		if n == 1 {
			tensors[0].Name = "d"
		}
		if err := Write(&b, tensors, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("m", b.Bytes()); err != nil {
			t.Error(err)
		}
		if header := binary.LittleEndian.Uint64(b.Bytes()); header%8 != 0 {
			t.Errorf("header of %d bytes", header)
		}
		if want := append(make([]byte, 10), "abc"...); !bytes.HasSuffix(b.Bytes(), want) {
			t.Errorf("tensors are not sorted by element size: %q", b.Bytes())
		}
	}
}

func TestWriteErrors(t *testing.T) {
	good := Tensor{"w", "U8", []int{1}, []byte{1}}
	for _, c := range []struct {
		name     string
		tensors  []Tensor
		metadata map[string]string
		want     string
	}{
		{"name twice", []Tensor{good, good}, nil, `two tensors are named "w"`},
		{"reserved name", []Tensor{{"__metadata__", "U8", nil, []byte{1}}}, nil, "must not be named __metadata__"},
		{"name not UTF-8", []Tensor{{"\xff", "U8", nil, []byte{1}}}, nil, `tensor "\xff": the name is not valid UTF-8`},
		{"metadata not UTF-8", nil, map[string]string{"a": "\xff"}, `metadata "a": not valid UTF-8`},
		{"unknown dtype", []Tensor{{"w", "float32", nil, nil}}, nil, `tensor "w": unknown dtype "float32"`},
		{"wrong size", []Tensor{{"w", "F32", []int{2}, make([]byte, 4)}}, nil, `tensor "w": F32 [2] needs 8 bytes, its data has 4`},
		{"negative shape", []Tensor{{"w", "F32", []int{-1}, nil}}, nil, `tensor "w": shape has the negative entry -1`},
		{"header too long", nil, map[string]string{"a": strings.Repeat("a", maxHeader)}, "the format's limit is 100000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			err := Write(&b, c.tensors, c.metadata)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if b.Len() > 0 {
				t.Errorf("wrote %d bytes before the error", b.Len())
			}
		})
	}
}

// limited is a writer that fails after n bytes.
type limited struct{ n int }

var errFull = errors.New("full")

func (l *limited) Write(p []byte) (int, error) {
	if l.n -= len(p); l.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriteToFullDisk(t *testing.T) {
	for _, n := range []int{0, 8, 80} { // in the length, the header, the data
		if err := Write(&limited{n}, []Tensor{{"w", "U8", []int{100}, make([]byte, 100)}}, nil); !errors.Is(err, errFull) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	old := []Tensor{{"w", "U8", []int{4}, []byte("1234")}}
	if err := WriteFile(path, old, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, _ := f.Tensor("w")
	// Replacing the file, even with its own data, leaves the open one as it was.
	if err := WriteFile(path, []Tensor{{"v", "U8", []int{3}, w.Data[1:]}}, nil); err != nil {
		t.Fatal(err)
	}
	if string(w.Data) != "1234" {
		t.Errorf("the open file changed to %q", w.Data)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if v, _ := again.Tensor("v"); string(v.Data) != "234" {
		t.Errorf("got %q", v.Data)
	}
	if err := WriteFile(path, []Tensor{{"v", "U8", []int{3}, nil}}, nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if err := WriteFile(filepath.Join(dir, "no", "m"), old, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want not exist", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("temporary files were left: %v, %v", entries, err)
	}
}
