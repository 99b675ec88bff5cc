package statefile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/exec/state/statefile"
)

var here = statefile.Origin{Model: "aaaaaaaaaaaaaaaa", Name: "one", Layout: "l", Ranks: "2 ranks by strategy channel", States: "f32"}

func example() *state.Export {
	return &state.Export{
		Tokens: 3, IDs: []int32{1, -2, 300},
		State: &state.HostState{Tokens: 3, Data: [][]byte{{1, 2, 3}, {4}}},
		KV:    []*state.HostKV{{From: 1, To: 2, Data: [][]byte{{7, 8}, {9}}}, {From: 2, To: 3, Data: [][]byte{{5, 6}, {0}}}},
	}
}

func written(t testing.TB, k *state.Export) []byte {
	var b bytes.Buffer
	if err := statefile.Write(&b, here, k); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestReadsWhatWasWritten, a byte at a time, and nothing behind it.
func TestReadsWhatWasWritten(t *testing.T) {
	for _, k := range []*state.Export{
		example(),
		{State: &state.HostState{Data: [][]byte{}}},
		{Tokens: 1, IDs: []int32{1}, Salt: "ann\xff\x00", Codecs: "ssm=int8", Exact: true},
		{Tokens: 2, IDs: []int32{1, 2}, KV: []*state.HostKV{{From: 0, To: 2, Data: [][]byte{make([]byte, 1<<18+1)}}}},
	} {
		in := bytes.NewReader(append(written(t, k), "behind"...))
		got, err := statefile.Read(iotest.OneByteReader(in), here)
		if err != nil || !reflect.DeepEqual(got, k) {
			t.Fatalf("%+v, %v, want %+v", got, err, k)
		}
		if rest, _ := io.ReadAll(in); string(rest) != "behind" {
			t.Errorf("%q is left", rest)
		}
	}
}

// TestDamage: every cut and every flipped bit is an error.
func TestDamage(t *testing.T) {
	data := written(t, example())
	for n := range data {
		if _, err := statefile.Read(bytes.NewReader(data[:n]), here); err == nil || !strings.Contains(err.Error(), "it ends too early") {
			t.Fatalf("cut after %d bytes of %d: %v", n, len(data), err)
		}
	}
	for i := range 8 * len(data) {
		bad := bytes.Clone(data)
		bad[i/8] ^= 1 << (i % 8)
		if k, err := statefile.Read(bytes.NewReader(bad), here); err == nil {
			t.Fatalf("bit %d is flipped, and that is read: %+v", i, k)
		}
	}
	if _, err := statefile.Read(iotest.ErrReader(errors.New("no disk")), here); err == nil || err.Error() != "no disk" {
		t.Error(err)
	}
}

// TestForeign: what comes from another model, or lies otherwise, says so.
func TestForeign(t *testing.T) {
	for want, change := range map[string]func(*statefile.Origin){
		"it is of another model: of one with fingerprint aaaaaaaaaaaa, and this is one with bbbb":                                          func(o *statefile.Origin) { o.Model = "bbbb" },
		"its states are sharded or stored differently: 2 ranks by strategy channel, states in f32, and here 3 ranks, states in bf16; open": func(o *statefile.Origin) { o.Layout, o.Ranks, o.States = "m", "3 ranks", "bf16" },
	} {
		o := here
		change(&o)
		_, err := statefile.Read(bytes.NewReader(written(t, example())), o)
		var foreign *statefile.OriginError
		if !errors.As(err, &foreign) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	o := here
	o.Name, o.Ranks, o.States = "a copy", "", ""
	if _, err := statefile.Read(bytes.NewReader(written(t, example())), o); err != nil {
		t.Error(err)
	}
}

// headed is a file with a header that says what it likes, with the right checksum.
func headed(text string) []byte {
	b := binary.LittleEndian.AppendUint32([]byte("krait-1\n"), uint32(len(text)))
	b = append(b, text...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// TestLies: headers of what cannot be, or of more than there is, are errors, and take no memory.
func TestLies(t *testing.T) {
	origin := `{"origin": {"model": "aaaaaaaaaaaaaaaa", "layout": "l"}, `
	for text, want := range map[string]string{
		origin + `"salt": "YW5u", "tokens": 0}`:                                           "it is damaged", // a reader without salts would take it
		origin + `"tokens": -1}`:                                                          "of a sequence of -1 tokens",
		origin + `"tokens": 1000000000000}`:                                               "the limit is 16777216",
		origin + `"tokens": 3, "ids": 2}`:                                                 "2 ids of a sequence of 3 tokens",
		origin + `"tokens": 3, "rows": [{"from": 2, "to": 1}]}`:                           "KV cache of tokens 2 to 1",
		origin + `"tokens": 3, "rows": [{"from": 0, "to": 4}]}`:                           "KV cache of tokens 0 to 4",
		origin + `"tokens": 3, "rows": [{"from": -1, "to": 2}]}`:                          "KV cache of tokens -1 to 2",
		origin + `"tokens": 3, "rows": [{"from": 0, "to": 1}, {"from": 2, "to": 3}]}`:     "KV cache of tokens 2 to 3 after 1",
		origin + `"tokens": 3, "states": [5, -1]}`:                                        "a part of a negative size",
		origin + `"tokens": 3, "states": [9000000000000000000]}`:                          "it ends too early",
		origin + `"tokens": 3, "states": [1e99]}`:                                         "it is damaged",
		origin + `"tokens": 16777216, "ids": 16777216}`:                                   "it ends too early",
		origin + `"tokens": 3, "rows": [{"from": 0, "to": 3, "parts": [1000000000000]}]}`: "it ends too early",
		`[]`: "it is damaged",
		``:   "it is damaged",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := statefile.Read(bytes.NewReader(append(headed(text), make([]byte, 100)...)), here)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), want) || after.TotalAlloc-before.TotalAlloc > 1<<20 {
			t.Errorf("%s: %v, with %d bytes", text, err, after.TotalAlloc-before.TotalAlloc)
		}
	}
	long := headed("")
	binary.LittleEndian.PutUint32(long[8:], 1<<31)
	if _, err := statefile.Read(bytes.NewReader(long), here); err == nil {
		t.Error("a header of 2 GiB is read")
	}
	if _, err := statefile.Read(strings.NewReader("{\"tensors\": 1234}"), here); err == nil || !strings.Contains(err.Error(), "not a state that Krait saved") {
		t.Error(err)
	}
}

// TestFullDisk: an error of the writer is returned, wherever it comes.
func TestFullDisk(t *testing.T) {
	n := len(written(t, example()))
	for room := range n {
		if err := statefile.Write(&limited{room}, here, example()); err == nil {
			t.Fatalf("with room for %d bytes of %d there is no error", room, n)
		}
	}
}

type limited struct{ room int }

func (l *limited) Write(b []byte) (int, error) {
	if l.room -= len(b); l.room < 0 {
		return 0, fmt.Errorf("the disk is full")
	}
	return len(b), nil
}

// FuzzRead: what is read without an error is what was written.
func FuzzRead(f *testing.F) {
	f.Add(written(f, example()))
	f.Add(headed(`{"origin": {"model": "aaaaaaaaaaaaaaaa", "layout": "l"}, "tokens": 3, "states": [5, 1], "rows": [{"from": 0, "to": 3, "parts": [7]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := statefile.Read(bytes.NewReader(data), here)
		if err != nil {
			return
		}
		again, err := statefile.Read(bytes.NewReader(written(t, k)), here)
		if err != nil || !reflect.DeepEqual(again, k) {
			t.Errorf("%+v, again %+v, %v", k, again, err)
		}
	})
}
