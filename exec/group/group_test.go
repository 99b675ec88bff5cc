package group

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// decodes is a batch of n decodes with 64 KV pages each.
func decodes(n int) *exec.Work {
	w := &exec.Work{Outputs: lowering.OutputMask{true, false}}
	w.Replica = n % 2
	w.Sizes = graph.Sizes{Tokens: int64(n), Seqs: int64(n), Rows: int64(n), Cached: 8000, Pairs: 1 << 40}
	for i := range n {
		w.Ends = append(w.Ends, i+1)
		pages := make([]int32, 64)
		for k := range pages {
			pages[k] = int32(64*i + k)
		}
		w.BlockTables = append(w.BlockTables, pages)
	}
	w.Trials = []exec.Trial{{Sequence: n - 1, Spare: 1, From: 7}, {Spare: n}}[:1+n%2]
	w.Wide = []graph.Run{{Start: n, Len: 64}, {Start: 3 * n, Len: 128}}[:1+n%2]
	w.Inputs = []exec.Input{{Name: "ids", Data: bytes.Repeat([]byte{7}, 4*n)}, {Name: "rows", For: []int{0}}, {Name: "seg", Data: bytes.Repeat([]byte{9}, 12*n)}}
	return w
}

// empty is a batch into which steps are decoded.
func empty() *exec.Work {
	return &exec.Work{Outputs: make(lowering.OutputMask, 2), Inputs: []exec.Input{{Name: "ids"}, {Name: "rows", For: []int{0}}, {Name: "seg"}}}
}

// TestStepMessage: a step is decoded as it was encoded, whatever was decoded before, and a
// truncated or longer message is an error.
func TestStepMessage(t *testing.T) {
	e, got := &encoder{}, empty()
	for _, n := range []int{3, 1, 4} {
		message := bytes.Clone(e.encodeStep(decodes(n)))
		if err := decodeStep(message, got, false); err != nil || !reflect.DeepEqual(got, decodes(n)) {
			t.Fatalf("%d sequences: %v: %+v", n, err, got)
		}
		for i := range message {
			if err := decodeStep(message[:i], empty(), false); err == nil {
				t.Fatalf("%d bytes of %d are a step", i, len(message))
			}
		}
		if err := decodeStep(append(message, 0), empty(), false); err == nil {
			t.Fatal("a byte too many is no error")
		}
	}
}

// TestCommands: commands are decoded as they were encoded, with the bytes after them, and begin
// with no zero byte.
func TestCommands(t *testing.T) {
	e, d := &encoder{}, &command{}
	for i, c := range []command{
		{Call: callWriteRows, Index: 2, Rows: []state.PageRows{{Page: 1, First: 2, N: 3}, {Page: 4}}},
		{Call: callReadSlot, Index: 1, At: 64, Bytes: 9},
		{Call: callReplay, Replays: []state.Replay{{Spare: 1, Memory: 2, Tokens: 3}, {Tokens: 4}}},
		{Call: callClose},
	} {
		data := bytes.Repeat([]byte{5}, i)
		message := e.encode(&c, data)
		got, err := d.decode(message)
		if err != nil || !bytes.Equal(got, data) || !reflect.DeepEqual(*d, c) || message[0] == 0 {
			t.Fatalf("%+v and %v, %v, want %+v and %v", *d, got, err, c, data)
		}
	}
	if _, err := d.decode([]byte("no command")); err == nil {
		t.Error("a broken message is decoded")
	}
}

// BenchmarkMessage encodes and decodes a batch of 8 decodes.
func BenchmarkMessage(b *testing.B) {
	e, from, to := &encoder{}, decodes(8), empty()
	b.ReportAllocs()
	for b.Loop() {
		if err := decodeStep(e.encodeStep(from), to, false); err != nil {
			b.Fatal(err)
		}
	}
}
