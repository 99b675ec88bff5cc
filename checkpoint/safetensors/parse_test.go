package safetensors

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// file puts a header in front of data.
func file(header, data string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func TestParse(t *testing.T) {
	f, err := Parse("m", file(`{
		"w": {"dtype":"U8", "shape":[2,2], "data_offsets":[4,8], "later": {"version": [1, 2]}},
		"__metadata__": {"format":"pt", "é":"\u00e9"},
		"scalar": {"data_offsets":[0,4], "shape":[], "dtype":"F32"},
		"empty": {"dtype":"F64", "shape":[3,0,7], "data_offsets":[4,4]},
		"packed": {"dtype":"F4", "shape":[6], "data_offsets":[8,11]}
	}   `, "\x00\x00\x80\x3fabcdxyz"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.Names(), []string{"empty", "packed", "scalar", "w"}; !cmp.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	if got, want := f.Metadata(), (map[string]string{"format": "pt", "é": "é"}); !cmp.Equal(got, want) {
		t.Errorf("metadata %q, want %q", got, want)
	}
	for _, want := range []Tensor{
		{"w", "U8", []int{2, 2}, []byte("abcd")},
		{"scalar", "F32", []int{}, []byte("\x00\x00\x80\x3f")},
		{"empty", "F64", []int{3, 0, 7}, []byte{}},
		{"packed", "F4", []int{6}, []byte("xyz")},
	} {
		if got, ok := f.Tensor(want.Name); !ok || !cmp.Equal(got, want) {
			t.Errorf("tensor %q: %v, %v; want %v", want.Name, got, ok, want)
		}
	}
	if _, ok := f.Tensor("no such tensor"); ok {
		t.Error("found a tensor that is not there")
	}
	if w, _ := f.Tensor("w"); cap(w.Data) != len(w.Data) {
		t.Error("append to the data of a tensor would write into the next one")
	}
	if f.Name() != "m" || f.Close() != nil || f.Close() != nil {
		t.Error("name or close")
	}
	if _, ok := f.Tensor("w"); ok || len(f.Names()) > 0 {
		t.Error("a closed file still holds tensors")
	}
}

func TestParseWithoutTensors(t *testing.T) {
	f, err := Parse("m", file("{}", ""))
	if err != nil || len(f.Names()) != 0 || len(f.Metadata()) != 0 {
		t.Errorf("%v, %v", f, err)
	}
}

func TestParseErrors(t *testing.T) {
	// one is a file with the one tensor "w" of 8 bytes.
	one := func(dtype, shape, offsets string) []byte {
		return file(fmt.Sprintf(`{"w":{"dtype":%s,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets), "12345678")
	}
	// two is a file with the tensors "a" and "b".
	two := func(a, b, data string) []byte {
		return file(fmt.Sprintf(`{"a":{"dtype":"U8","shape":[4],"data_offsets":%s},"b":{"dtype":"U8","shape":[4],"data_offsets":%s}}`, a, b), data)
	}
	length := func(n uint64) []byte { return append(binary.LittleEndian.AppendUint64(nil, n), "{}"...) }
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty file", nil, "the file is empty; download it again"},
		{"Git LFS pointer", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "run git lfs pull"},
		{"7 bytes", []byte("\x02\x00\x00\x00\x00\x00\x00"), "the file has 7 bytes, the header length alone takes 8"},
		{"header over the file", length(3), "header length is 3, only 2 bytes follow: the file is truncated"},
		{"header over the limit", length(100_000_001), "header length is 100000001, the format's limit is 100000000"},
		{"header length with the top bit", length(1 << 63), "header length is 9223372036854775808"},
		{"no header", length(0), "does not begin with '{'"},
		{"space before the header", file(" {}", ""), "does not begin with '{'"},
		{"array", file("[]", ""), "does not begin with '{'"},
		{"unfinished JSON", file(`{"w":{"dtype":"F32"`, ""), "header: tensor \"w\": the JSON ends too early"},
		{"trailing comma", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}`, "1"), "malformed JSON"},
		{"wrong bracket", file(`{"w":{]}`, ""), "malformed JSON"},
		{"JSON after the header", file(`{} {}`, ""), "there is more after the end of the JSON object at byte 4"},
		{"bracket after the header", file(`{}}`, ""), "there is more after the end of the JSON object at byte 2"},
		{"not UTF-8", file("{\"\xff\":1}", ""), "not valid UTF-8"},
		{"metadata not an object", file(`{"__metadata__":null}`, ""), `header: "__metadata__": expected '{' at byte 20 of the JSON, found null`},
		{"metadata not strings", file(`{"__metadata__":{"n":1}}`, ""), `"n": expected a string at byte 22 of the JSON, found "1"`},
		{"metadata nested", file(`{"__metadata__":{"n":{}}}`, ""), `"n": expected a string at byte 22 of the JSON, found "{"`},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, ""), `"__metadata__" appears twice`},
		{"tensor not an object", file(`{"w":[]}`, ""), `tensor "w": expected '{'`},
		{"name twice", file(`{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0077":{}}`, ""), `header: "w" appears twice`},
		{"key twice", file(`{"w":{"dtype":"U8","dtype":"I8"}}`, ""), `tensor "w": "dtype" appears twice`},
		{"no dtype", file(`{"w":{"Dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, ""), `tensor "w": no dtype`},
		{"no shape", file(`{"w":{"dtype":"U8","data_offsets":[0,0]}}`, ""), `tensor "w": no shape`},
		{"no offsets", file(`{"w":{"dtype":"U8","shape":[0]}}`, ""), `tensor "w": no data_offsets`},
		{"dtype not a string", one(`8`, `[8]`, `[0,8]`), `tensor "w": "dtype": expected a string`},
		{"unknown dtype", one(`"f32"`, `[2]`, `[0,8]`), `tensor "w": unknown dtype "f32"; known are BF16 BOOL`},
		{"shape not an array", one(`"U8"`, `8`, `[0,8]`), `tensor "w": "shape": expected '['`},
		{"shape with text", one(`"U8"`, `["8"]`, `[0,8]`), `expected a whole number`},
		{"shape with null", one(`"U8"`, `[null]`, `[0,8]`), `expected a whole number at byte 32 of the JSON, found null`},
		{"shape with a fraction", one(`"U8"`, `[8.0]`, `[0,8]`), `"8.0" is not a whole number`},
		{"shape over int", one(`"U8"`, `[9223372036854775808]`, `[0,8]`), `"9223372036854775808" is not a whole number in the range of int`},
		{"shape negative", one(`"U8"`, `[-2,-4]`, `[0,8]`), `tensor "w": shape has the negative entry -2`},
		{"size overflows", one(`"U8"`, `[2147483647,2147483647,2147483647]`, `[0,8]`), `tensor "w": U8 [2147483647 2147483647 2147483647] is too large: its size overflows`},
		{"size overflows to 8", one(`"F64"`, `[5,107367629,536903681]`, `[0,8]`), `is too large`}, // 2^64+64 bits
		{"empty, but overflows", one(`"U8"`, `[0,2147483647,2147483647,2147483647]`, `[0,8]`), `is too large`},
		{"half a byte", one(`"F4"`, `[15]`, `[0,8]`), `tensor "w": F4 [15] has 60 bits, which is not a whole number of bytes`},
		{"one offset", one(`"U8"`, `[8]`, `[8]`), `tensor "w": data_offsets has 1 entries, want 2`},
		{"offsets inverted", one(`"U8"`, `[8]`, `[8,0]`), `tensor "w": data_offsets [8, 0] are not a range`},
		{"offsets negative", one(`"U8"`, `[8]`, `[-8,0]`), `tensor "w": data_offsets [-8, 0] are not a range`},
		{"offsets too short", one(`"F32"`, `[2,2]`, `[0,8]`), `tensor "w": F32 [2 2] needs 16 bytes, data_offsets [0, 8] hold 8`},
		{"offsets too long", one(`"U8"`, `[7]`, `[0,8]`), `tensor "w": U8 [7] needs 7 bytes, data_offsets [0, 8] hold 8`},
		{"offsets of an empty tensor", one(`"U8"`, `[0,8]`, `[0,8]`), `needs 0 bytes`},
		{"truncated data", one(`"U8"`, `[9]`, `[0,9]`), `tensor "w": data_offsets [0, 9] reach beyond the 8 bytes of data: the file is truncated`},
		{"overlap", two("[0,4]", "[3,7]", "1234567"), `tensor "b" begins at byte 3 of the data, inside tensor "a", which ends at 4`},
		{"same place", two("[0,4]", "[0,4]", "1234"), `tensor "b" begins at byte 0 of the data, inside tensor "a"`},
		{"hole", two("[6,10]", "[0,4]", "1234567890"), `bytes 4 to 6 of the data, before tensor "a", belong to no tensor`},
		{"hole at the start", two("[1,5]", "[5,9]", "123456789"), `bytes 0 to 1 of the data`},
		{"bytes at the end", two("[0,4]", "[4,8]", "123456789"), `the tensors end at byte 8 of the data, the file has 9`},
		{"data without tensors", file("{}", "1"), `the tensors end at byte 0 of the data, the file has 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Parse("dir/m.safetensors", c.data)
			if f != nil || err == nil {
				t.Fatalf("got %v, want an error with %q", f, c.want)
			}
			if text := err.Error(); !strings.HasPrefix(text, "dir/m.safetensors: ") || !strings.Contains(text, c.want) {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}

// Every prefix of a good file is an error, and so is one byte more.
func TestParseTruncated(t *testing.T) {
	whole := file(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, "12345678")
	if _, err := Parse("m", whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := Parse("m", whole[:n]); err == nil {
			t.Errorf("no error for the first %d of %d bytes", n, len(whole))
		}
	}
	if _, err := Parse("m", append(whole, 0)); err == nil {
		t.Error("no error for one byte more")
	}
}

// Hostile headers are read in memory proportional to their size, and their errors stay short.
func TestParseHostile(t *testing.T) {
	const n = 1 << 20
	for name, header := range map[string]string{
		"deep in a tensor":  `{"w":` + strings.Repeat(`[`, n) + strings.Repeat(`]`, n) + `}`,
		"deep unknown key":  `{"w":{"x":` + strings.Repeat(`[`, n) + strings.Repeat(`]`, n) + `}}`,
		"deep objects":      strings.Repeat(`{"w":`, n/5),
		"long name":         `{"` + strings.Repeat("w", n) + `":{}}`,
		"long dtype":        `{"w":{"dtype":"` + strings.Repeat("F", n) + `","shape":[],"data_offsets":[0,0]}}`,
		"many dimensions":   `{"w":{"dtype":"F32","shape":[1` + strings.Repeat(",1", n/2) + `],"data_offsets":[0,0]}}`,
		"long number":       `{"w":{"dtype":"F32","shape":[` + strings.Repeat("1", n) + `],"data_offsets":[0,0]}}`,
		"unfinished string": `{"` + strings.Repeat("w", n),
	} {
		t.Run(name, func(t *testing.T) {
			data := file(header, "")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse("m", data)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("no error")
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 128*n {
				t.Errorf("allocated %d bytes for %d", used, len(data))
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	if got := describe("F32", []int{2, 3}); got != "F32 [2 3]" {
		t.Error(got)
	}
	if got := describe("F32", make([]int, 20)); !strings.HasSuffix(got, " and 4 more dimensions") {
		t.Error(got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"a":"b"}}`, "12345678"))
	f.Add(file(`{"a":{"dtype":"F4","shape":[2,1],"data_offsets":[0,1]},"b":{"dtype":"BOOL","shape":[],"data_offsets":[1,2],"x":[{}]}}`, "12"))
	f.Add(file(`{"e":{"dtype":"I64","shape":[0],"data_offsets":[0,0]}}  `, ""))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("m", data)
		if err != nil {
			return
		}
		checkRewrite(t, file)
	})
}
