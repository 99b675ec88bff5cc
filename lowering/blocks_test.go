package lowering_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/krait-ml/krait/lowering"
)

// TestOffsets: a layer of 4096 channels with 8 groups of 128, of 4 taps in bf16, goes from
// one rank to four by these offsets, which were computed from formulas.
func TestOffsets(t *testing.T) {
	dir := t.TempDir()
	config := `{"model_type": "mamba2", "hidden_size": 2048, "expand": 2, "num_heads": 64, "head_dim": 64, "n_groups": 8,
		"state_size": 128, "conv_kernel": 4, "num_hidden_layers": 2, "vocab_size": 256, "rms_norm": true, "tie_word_embeddings": true}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	end := func(ranks int) lowering.End {
		k, ok := keepsOf(t, how{dir: dir, strategy: "channel", states: "conv=bf16", ranks: ranks})
		if !ok {
			t.Fatal("the model does not compile")
		}
		return lowering.End{States: k, PageTokens: 16}
	}
	one, four := end(1), end(4)
	const layer = 36864 + 2097152
	if _, run := one.States.States(0); run != 2*layer {
		t.Errorf("the states of one rank have %d bytes, want %d", run, 2*layer)
	}
	x, err := lowering.NewTransfer(one, four)
	if err != nil {
		t.Fatal(err)
	}
	for k := range int64(4) {
		var got [][2]int64
		reads, err := x.Reads(int(k), 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reads {
			got = append(got, [2]int64{r.Source.At, r.Bytes})
		}
		var want [][2]int64
		for at := int64(0); at < 2*layer; at += layer {
			want = append(want, [2]int64{at + 6144*k, 6144}, [2]int64{at + 24576 + 1536*k, 1536}, [2]int64{at + 30720 + 1536*k, 1536}, [2]int64{at + 36864 + 524288*k, 524288})
		}
		if !slices.Equal(got, want) {
			t.Errorf("rank %d reads %v, want %v", k, got, want)
		}
	}
	if x, err = lowering.NewTransfer(four, four); err != nil {
		t.Fatal(err)
	}
	for k := range 4 { // as many ranks: conv and state of each layer
		reads, err := x.Reads(k, 1, 0)
		if err != nil || len(reads) != 2*2 {
			t.Errorf("rank %d of as many reads %v, %v", k, reads, err)
		}
		for i, r := range reads {
			if want := []int64{9216, 524288}[i%2]; r.From != k || r.Bytes != want {
				t.Errorf("rank %d of as many reads %d bytes of rank %d, want %d", k, r.Bytes, r.From, want)
			}
		}
	}
	two := end(2)
	if n := two.States.Bytes(0, 0) + two.States.Bytes(0, 1) + two.States.Bytes(0, 2); n != 3072*3*2 {
		t.Errorf("of two ranks, one has %d bytes of a convolution, want those of 3072 channels", n)
	}
}

// TestBlocks: a hybrid of 6 layers with caches and 23 with states, in blocks of one size,
// has these blocks and descriptors, which were computed from formulas.
func TestBlocks(t *testing.T) {
	text := "ranks 1\n"
	for i := range 29 {
		if i < 6 {
			text += fmt.Sprintf("layers.%d.attention.keys : bf16[s c 512/128]\nlayers.%[1]d.attention.values : bf16[s c 512/128]\n", i)
		} else {
			text += fmt.Sprintf("layers.%d.mixer.conv : bf16[s x:2048/64|B:512/64|C:512/64 3]\nlayers.%[1]d.mixer.ssm : bf16[s 48/1 64 128]\n", i)
		}
	}
	k, err := lowering.ParseStateLayout(text)
	if err != nil {
		t.Fatal(err)
	}
	end := lowering.End{States: k, PageTokens: 16}
	got := end.BlocksOf(0, false)
	want := lowering.Blocks{Tokens: 400, Row: 2048, State: 804864, Bytes: 819200, Pad: 14336, Tensors: 6, Caches: 6, States: 23, CacheParts: 12, StateParts: 24, Ratio: 25}
	if got != want {
		t.Errorf("blocks are %+v, want %+v", got, want)
	}
	if got := end.BlocksOf(0, true); got.StateParts != 12 {
		t.Errorf("between as many ranks states have %d parts in all tensors, want 12", got.StateParts)
	}
	r := got.Request(1000, 0)
	if want := (lowering.Request{Rows: 3, States: 4, Bytes: (3*6 + 23) * 819200, Descriptors: 12*25*3 + 24*4}); r != want {
		t.Errorf("1000 tokens take %+v, want %+v", r, want)
	}
	if r := got.Request(1000, 799); r.Rows != 2 {
		t.Errorf("1000 tokens, of which 799 are there, take %d blocks of rows, want 2", r.Rows)
	}
	p := lowering.Pool{CacheParts: got.CacheParts, StateParts: got.StateParts, Blocks: 10, Ratio: 4}
	if p.Len() != 720 || p.StateID(0, 0) != 480 || p.StateID(5, 7) != 537 || p.CacheID(3, 21) != 141 {
		t.Errorf("%d descriptors, of states from %d on, and %d and %d; want 720, 480, 537 and 141", p.Len(), p.StateID(0, 0), p.StateID(5, 7), p.CacheID(3, 21))
	}
}

// TestBlocksOfOneKind: where nothing shares blocks, nothing is padded.
func TestBlocksOfOneKind(t *testing.T) {
	for _, x := range []struct {
		text string
		want lowering.Blocks
		r    lowering.Request
	}{
		{"ranks 1\nlayers.0.conv : f32[s 4 3]\nlayers.0.ssm : f32[s 4 2]\n",
			lowering.Blocks{State: 80, Bytes: 80, Tensors: 1, States: 1, StateParts: 2, Ratio: 1}, lowering.Request{States: 1, Bytes: 80, Descriptors: 2}},
		{"ranks 1\nlayers.0.keys : f32[s c 8]\nlayers.1.keys : f32[s c 8]\n",
			lowering.Blocks{Tokens: 7, Row: 32, Bytes: 224, Tensors: 2, Caches: 2, CacheParts: 2, Ratio: 1}, lowering.Request{Rows: 2, Bytes: 2 * 2 * 224, Descriptors: 4}},
		{"ranks 3\nlayers.0.keys : f32[s c 8/4] shard(2: split)\nlayers.0.ssm : f32[s 6/2] shard(1: split)\n", // of which rank 0 has no head
			lowering.Blocks{State: 8, Bytes: 8, Tensors: 1, States: 1, StateParts: 1, Ratio: 1}, lowering.Request{States: 1, Bytes: 8, Descriptors: 1}},
		{"ranks 1\n", lowering.Blocks{Ratio: 1}, lowering.Request{}},
	} {
		k, err := lowering.ParseStateLayout(x.text)
		if err != nil {
			t.Fatal(err)
		}
		e := lowering.End{States: k, PageTokens: 7}
		b := e.BlocksOf(0, false)
		if r := b.Request(8, 0); b != x.want || r != x.r {
			t.Errorf("%sgives %+v and %+v, want %+v and %+v", x.text, b, r, x.want, x.r)
		}
	}
}
