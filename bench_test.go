package krait

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/text/constrain"
	"github.com/krait-ml/krait/text/tokenizer"
)

func readVal(t testing.TB) []int {
	t.Helper()
	text, err := os.ReadFile("testdata/val.txt")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tokenizer.Bytes{}.Encode(string(text), false)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestDecodeAllocatesNothing is the property that BenchmarkDecode shows.
func TestDecodeAllocatesNothing(t *testing.T) {
	m := embeddedModel(t)
	s, err := m.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	ids := []int{65}
	step := func() {
		if _, err := s.Step(ctx, ids...); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations per token", n)
	}
}

// BenchmarkDecode feeds one token at a time to one sequence.
func BenchmarkDecode(b *testing.B) {
	m := embeddedModel(b)
	s, err := m.NewSequence()
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	ids := []int{65}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Step(ctx, ids...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkPrefill feeds 512 tokens at a time to one sequence.
func BenchmarkPrefill(b *testing.B) {
	m := embeddedModel(b)
	text := readVal(b)[:session.PrefillChunk]
	s, err := m.NewSequence()
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Step(ctx, text...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(text))/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkStreams generates from 1 and from 16 goroutines, in turns: ratio is that of
// the medians of tokens per second.
func BenchmarkStreams(b *testing.B) {
	one, many := newStreams(b, 1), newStreams(b, 16)
	for b.Loop() {
		one.run(b)
		many.run(b)
	}
	l := many.m.Session().Scheduler().Load()
	b.ReportMetric(float64(l.Tokens)/float64(l.Steps), "rows/step")
	b.ReportMetric(one.rate(), "tokens/s-1")
	b.ReportMetric(many.rate(), "tokens/s-16")
	b.ReportMetric(many.rate()/one.rate(), "ratio")
}

// streams is a model from which n goroutines generate.
type streams struct {
	m     *Model
	n     int
	rates []float64 // tokens per second, of each run
}

func newStreams(b *testing.B, n int) *streams {
	return &streams{m: embeddedModel(b, Options{Slots: n}), n: n}
}

func (s *streams) run(b *testing.B) {
	const tokens = 64
	begun := time.Now()
	var all sync.WaitGroup
	for i := range s.n {
		all.Go(func() {
			if _, err := s.m.GenerateIDs(b.Context(), []int{65 + i}, Generate{MaxTokens: tokens, IgnoreEOS: true}); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	s.rates = append(s.rates, float64(s.n*tokens)/time.Since(begun).Seconds())
}

// rate is the median.
func (s *streams) rate() float64 {
	slices.Sort(s.rates)
	return s.rates[len(s.rates)/2]
}

// BenchmarkKeep copies the states of a sequence, and puts them back, in turns with a step
// of a token: all are medians.
func BenchmarkKeep(b *testing.B) {
	m := embeddedModel(b)
	s, err := m.NewSequence()
	if err != nil {
		b.Fatal(err)
	}
	var kept, put, step []time.Duration
	timed := func(list *[]time.Duration, f func() error) {
		begun := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		*list = append(*list, time.Since(begun))
	}
	for b.Loop() {
		var states *state.DeviceState
		timed(&step, func() error { _, err := s.Step(b.Context(), 65); return err })
		timed(&kept, func() (err error) { states, err = m.engine.CopyState(s.slot); return err })
		timed(&put, func() error { return m.engine.Resume(s.slot, states) })
		states.Free()
	}
	for name, list := range map[string][]time.Duration{"keep-µs": kept, "put-µs": put, "token-µs": step} {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Nanoseconds())/1e3, name)
	}
}

// BenchmarkBesideSchema generates 8 sequences of a model of 262,000 tokens, in turns with a schema
// for the first and without: ratio is the median, over the pairs, of the tokens per second of the
// seven others.
func BenchmarkBesideSchema(b *testing.B) {
	const vocab, width, sequences, tokens = 262_000, 64, 8, 16
	r := rand.New(rand.NewPCG(1, 2))
	table := make([]float32, vocab*width)
	for i := range table {
		table[i] = r.Float32() - 0.5
	}
	m, err := New(smallest(b, vocab, width), Tensors(map[string]graph.Array{"table": graph.ArrayOf(table, vocab, width)}), nil, Options{Slots: sequences})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	v, err := constrain.NewVocabulary(vocab, func(id int) []byte {
		if id < 256 {
			return []byte{byte(id)}
		}
		return fmt.Appendf(nil, "%s%x%c%x", []string{" ", "", "", `"`}[id%4], id*7919%4099, 'g'+id%20, id%13)
	})
	if err != nil {
		b.Fatal(err)
	}
	g, err := constrain.Compile([]byte(`{"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z0-9 ]{3,60}$"}, "text": {"type": "string"}}, "required": ["name", "text"]}, "minItems": 9}`))
	if err != nil {
		b.Fatal(err)
	}
	run := func(constrained bool) float64 { // seconds of the seven
		var all sync.WaitGroup
		took := make([]time.Duration, sequences)
		begun := time.Now()
		for i := range sequences {
			o := Generate{MaxTokens: tokens, IgnoreEOS: true}
			if i == 0 && constrained {
				t := g.Match(v, nil)
				t.Prepare()
				o.Mask, o.Accept = t.Mask, func(id int) bool {
					last := t.Accept(id)
					t.Prepare()
					return last
				}
			}
			all.Go(func() {
				if _, err := m.GenerateIDs(b.Context(), []int{300 + i}, o); err != nil {
					b.Error(err)
				}
				took[i] = time.Since(begun)
			})
		}
		all.Wait()
		return slices.Max(took[1:]).Seconds()
	}
	run(true)
	var ratios []float64
	for n := 0; b.Loop(); n++ {
		first := run(n%2 == 0)
		second := run(n%2 == 1)
		if n%2 == 0 {
			first, second = second, first
		}
		ratios = append(ratios, first/second)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
}
