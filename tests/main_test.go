// Package tests has the tests of whole models: what they compute, on any ranks and devices.
package tests

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/text/tokenizer"
)

func TestMain(m *testing.M) {
	prop.Cases(4) // of every family
	os.Exit(m.Run())
}

func embeddedModel(t testing.TB, o ...krait.Options) *krait.Model {
	t.Helper()
	m, err := krait.Embedded(append(o, krait.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func compileFor(g *graph.Graph, s krait.Sharding) (*graph.Graph, error) { return s.Compile(g) }

// seq is a sequence whose slot is known, for tests of what the engine does with slots.
type seq struct {
	m    *krait.Model
	slot int
}

func (s *seq) Step(ctx context.Context, tokens ...int) (logits []float32, err error) {
	b := exec.Batch{Sequences: []exec.Sequence{{Slot: s.slot, Tokens: tokens}}}
	err = s.m.Session().Step(ctx, &b, func(r *exec.Results) error {
		out, err := r.Output(exec.LogitsOutput)
		if err == nil {
			logits = append(logits, out.Row(0)...)
		}
		return err
	})
	return logits, err
}

func (s *seq) Close() error                            { return s.m.Engine().Free(s.slot) }
func (s *seq) Len() (int, error)                       { return s.m.Engine().Len(s.slot) }
func (s *seq) Snapshot() (*krait.Snapshot, error)      { return s.m.Engine().Snapshot(s.slot) }
func (s *seq) Restore(from *krait.Snapshot) error      { return s.m.Engine().Restore(s.slot, from) }
func (s *seq) State(name string) ([]float32, error)    { return s.m.Engine().State(s.slot, name) }
func (s *seq) SetState(name string, v []float32) error { return s.m.Engine().SetState(s.slot, name, v) }

func sequence(t *testing.T, m *krait.Model) *seq {
	t.Helper()
	slot, err := m.Engine().Alloc()
	if err != nil {
		t.Fatal(err)
	}
	return &seq{m, slot}
}

func (s *seq) Reset() error           { return s.m.Engine().Reset(s.slot) }
func (s *seq) Save(w io.Writer) error { return s.m.Session().Save(s.slot, w) }
func (s *seq) Load(r io.Reader) error { return s.m.Session().Load(s.slot, r) }

func readVal(t testing.TB) []int {
	t.Helper()
	text, err := os.ReadFile("../testdata/val.txt")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tokenizer.Bytes{}.Encode(string(text), false)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// tokensOf draws tokens of a model.
func tokensOf(m *krait.Model, n int, seed uint64) []int {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]int, n)
	for i := range out {
		out[i] = r.IntN(m.Vocab())
	}
	return out
}

// surprise returns -log2 of the probability of a token.
func surprise(logits []float32, id int) float64 {
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v - logits[id]))
	}
	return math.Log2(sum)
}

// weights opens the tensors of a checkpoint.
func weights(t testing.TB, dir string) krait.Weights {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.Tensor
}

// shallow is a folder like a golden's, of n of its layers.
func shallow(t *testing.T, golden string, layers int) (dir string) {
	t.Helper()
	return goldens.Shallow(t, "..", golden, layers)
}

// attentionOnly writes a model without recurrent states.
func attentionOnly(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "attention")
	config := `{"model_type": "jamba", "attn_layer_offset": 0, "attn_layer_period": 1, "expert_layer_offset": 0, "expert_layer_period": 1,
		"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 1,
		"num_hidden_layers": 2, "vocab_size": 64, "num_experts_per_tok": 1}`
	if _, err := synth.Write(t.Context(), dir, synth.Options{Config: []byte(config), From: "config", DType: "f32", Seed: 1}); err != nil {
		t.Fatal(err)
	}
	return dir
}
