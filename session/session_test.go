package session_test

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/prefix"
)

func TestMain(m *testing.M) {
	prop.Cases(4) // of every family
	os.Exit(m.Run())
}

func openModel(t *testing.T, dir string, o krait.Options) *krait.Model {
	t.Helper()
	m, err := krait.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func sequence(t *testing.T, m *krait.Model) *krait.Sequence {
	t.Helper()
	s, err := m.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stepped(t *testing.T, s *krait.Sequence, tokens ...int) []float32 {
	t.Helper()
	logits, err := s.Step(context.Background(), tokens...)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(logits)
}

func randomIDs(n, vocab int) []int {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	ids := make([]int, n)
	for i := range ids {
		ids[i] = r.IntN(vocab)
	}
	return ids
}

// sameBits reports whether numbers are the same to the last bit.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// chunked reports whether the model has scans that take tokens in chunks.
func chunked(m *krait.Model) bool {
	for _, n := range m.Graph().Nodes {
		if n.Op.Name == "ssd_scan" || n.Op.Name == "delta_scan" {
			return true
		}
	}
	return false
}

// prefixModel returns the costs of a model's prefixes.
func prefixModel(m *krait.Model) prefix.Model {
	p, e := m.Compiled().Prefill(), m.Engine()
	return prefix.Model{FLOPsPerToken: p.PerToken, FLOPsPerTokenSquared: p.PerTokenSquared, CacheBytes: e.KVBytes(), StateBytes: e.StateBytes(), Grain: prefix.Grain}
}

// stepOptions returns the options that say how many tokens a step has.
func stepOptions(o krait.Options) session.Options {
	return session.Options{Slots: o.Slots, MaxTokensPerStep: o.MaxTokensPerStep, PromptShare: o.PromptShare}
}
