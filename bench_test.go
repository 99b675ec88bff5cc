package krait

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/krait-ml/krait/internal/tokenizer"
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
	text := readVal(b)[:prefillChunk]
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

// BenchmarkStreams generates from 1 and from 16 goroutines.
func BenchmarkStreams(b *testing.B) {
	for _, streams := range []int{1, 16} {
		b.Run(fmt.Sprint(streams), func(b *testing.B) {
			m := embeddedModel(b, Options{Slots: streams})
			const tokens = 64
			for b.Loop() {
				var all sync.WaitGroup
				for i := range streams {
					all.Go(func() {
						if _, err := m.GenerateIDs(b.Context(), []int{65 + i}, Generate{MaxTokens: tokens}); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64(b.N*streams*tokens)/b.Elapsed().Seconds(), "tokens/s")
			l := m.requests.Load()
			b.ReportMetric(float64(l.Tokens)/float64(l.Steps), "rows/step")
		})
	}
}

// BenchmarkKeep copies the states of a sequence and puts them back: compare with
// BenchmarkDecode.
func BenchmarkKeep(b *testing.B) {
	m := embeddedModel(b)
	s, err := m.NewSequence()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		states, err := m.engine.KeepStates(s.slot)
		if err != nil {
			b.Fatal(err)
		}
		if err := m.engine.Put(s.slot, states); err != nil {
			b.Fatal(err)
		}
		states.Free()
	}
}
