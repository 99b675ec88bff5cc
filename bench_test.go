package krait

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/session"
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
