package check

import (
	"context"
	"encoding/binary"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
)

// headed makes a checkpoint with an MTP head.
func headed(t *testing.T) (dir string) {
	t.Helper()
	config := `{"model_type": "qwen3_5_text", "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 4, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
		"head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "mtp_num_hidden_layers": 1}`
	dir = filepath.Join(t.TempDir(), "model")
	if _, err := synth.Write(t.Context(), dir, synth.Options{Config: []byte(config), From: "headed", DType: "f32"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// drafted returns the logits of the head on a prompt, token by token.
func drafted(t *testing.T, dir string, ids []int) (logits []float32) {
	t.Helper()
	m, err := krait.Open(dir, krait.Options{Slots: 1, Keep: []string{lastNorm}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, err := c.MTP()
	if err != nil {
		t.Fatal(err)
	}
	head, err := krait.New(g, c.Tensor, nil, krait.Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer head.Close()
	step := func(e *exec.Engine, token int, output string, inputs map[string]graph.Array) []float32 {
		r, err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Tokens: []int{token}}}, Inputs: inputs})
		if err != nil {
			t.Fatal(err)
		}
		out, err := r.Output(output)
		if err != nil {
			t.Fatal(err)
		}
		return append([]float32{}, out.Row(0)...)
	}
	for _, e := range []*exec.Engine{m.Engine(), head.Engine()} {
		if slot, err := e.Alloc(); err != nil || slot != 0 {
			t.Fatal(slot, err)
		}
	}
	for i, id := range ids[1:] {
		h := step(m.Engine(), ids[i], lastNorm, nil)
		logits = append(logits, step(head.Engine(), id, "logits", map[string]graph.Array{exec.HiddenOutput: graph.ArrayOf(h, 1, len(h))})...)
	}
	return logits
}

// TestMTPLogits: the logits of a head are compared on any number of ranks; one that differs is
// found, as are those of one pair fewer.
func TestMTPLogits(t *testing.T) {
	dir := headed(t)
	ids := []int{3, 17, 25, 4, 9, 31, 8, 20, 7, 5}
	var wide []byte
	for _, id := range ids {
		wide = binary.LittleEndian.AppendUint64(wide, uint64(id))
	}
	logits := drafted(t, dir, ids)
	check := func(logits []float32, ranks int) (Line, error) {
		a := graph.ArrayOf(logits, 1, len(logits)/32, 32)
		file := filepath.Join(t.TempDir(), "expected.safetensors")
		err := safetensors.WriteFile(file, []safetensors.Tensor{{Name: "a.input_ids", DType: "I64", Shape: []int{1, len(ids)}, Data: wide}, {Name: "a.mtp.logits", DType: "F32", Shape: a.Shape, Data: a.Data}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got Line
		_, err = Run(context.Background(), dir, Options{Expected: file, Tolerance: 1e-4, Chunks: []int{3}, Sharding: krait.Sharding{Ranks: ranks}}, func(l Line) { got = l })
		return got, err
	}
	for _, ranks := range []int{1, 2} {
		if l, err := check(logits, ranks); err != nil || l.Fail != "" || l.Skip != "" || l.Max == 0 && ranks > 1 {
			t.Errorf("%d ranks: %+v, %v", ranks, l, err)
		}
	}
	if l, _ := check(logits[32:], 1); !strings.Contains(l.Fail, "shape [1 8 32]") {
		t.Errorf("a pair fewer: %+v", l)
	}
	logits[4*32+5] += 0.01
	if l, _ := check(logits, 1); math.Abs(l.Max-0.01) > 1e-4 || l.At[1] != 4 || l.At[2] != 5 {
		t.Errorf("an element that differs: %+v", l)
	}
}
