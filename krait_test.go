package krait

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/session"
)

func embeddedModel(t testing.TB, o ...Options) *Model {
	t.Helper()
	m, err := Embedded(append(o, Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func openModel(t *testing.T, dir string, o Options) *Model {
	t.Helper()
	m, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func expected(t testing.TB) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open("testdata/tiny-mamba/expected.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func tokens(t testing.TB, f *safetensors.File, name string) []int {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatal("no " + name)
	}
	flat, err := x.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int, len(flat))
	for i, v := range flat {
		ids[i] = int(v)
	}
	return ids
}

// TestGreedy: the embedded model continues the reference's three prompts with
// the reference's 200 tokens, and streams the same text.
func TestGreedy(t *testing.T) {
	m, f := embeddedModel(t), expected(t)
	for _, p := range []string{"greedy.0", "greedy.1", "greedy.2"} {
		prompt, want := tokens(t, f, p+".prompt"), tokens(t, f, p+".ids")
		var streamed strings.Builder
		g, err := m.GenerateIDs(context.Background(), prompt, Generate{MaxTokens: len(want), OnText: func(s string) { streamed.WriteString(s) }})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(g.IDs, want) {
			t.Errorf("%s: got %v, want %v", p, g.IDs, want)
		}
		if g.Text != streamed.String() || g.Reason != ReachedMax || g.PromptTokens != len(prompt) {
			t.Errorf("%s: text %q, streamed %q, ended by %s", p, g.Text, streamed.String(), g.Reason)
		}
	}
}

// TestEvaluate: bits per byte of the validation text are the reference's, window by window.
func TestEvaluate(t *testing.T) {
	m, f := embeddedModel(t), expected(t)
	text, windows := readVal(t), 128
	if !goldens.All() {
		windows = 4
	}
	x, _ := f.Tensor("val.window_bits_per_byte")
	want, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 128 || math.Abs(mean(want)-1.388207) > 1e-6 {
		t.Fatalf("%d windows with a mean of %.6f", len(want), mean(want))
	}
	want, some := want[:windows], text[:min(windows*512, len(text))]
	last := 0
	e, err := m.Evaluate(context.Background(), some, Evaluate{Window: 512, Progress: func(done, all int) {
		if done <= last || all != len(some) {
			t.Errorf("progress %d of %d after %d", done, all, last)
		}
		last = done
	}})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(e.BitsPerToken()-mean(want)) > 1e-4 || e.Scored != windows*511 || len(e.Windows) != windows {
		t.Errorf("%.6f bits per byte over %d in %d windows, want %.6f over %d in %d", e.BitsPerToken(), e.Scored, len(e.Windows), mean(want), windows*511, windows)
	}
	for i, w := range want {
		if math.Abs(e.Windows[i]-w) > 1e-4 {
			t.Errorf("window %d: %.6f bits per byte, want %.6f", i, e.Windows[i], w)
		}
	}
	e, err = m.Evaluate(context.Background(), text[:4096], Evaluate{})
	if err != nil || math.Abs(e.BitsPerToken()-1.439223) > 1e-4 {
		t.Errorf("one sequence: %v (%v), want 1.439223", e, err)
	}
	if _, err := m.Evaluate(context.Background(), text[:1], Evaluate{}); err == nil {
		t.Error("one token was scored")
	}
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, v := range list {
		sum += v
	}
	return sum / float64(len(list))
}

// TestMixedBatch runs prefill, decode and chunks of several sequences in one
// batch: every sequence gets what it gets alone, to the last bit.
func TestMixedBatch(t *testing.T) {
	m := embeddedModel(t, Options{Slots: 4})
	text := readVal(t)
	cuts := [][]int{{40}, {1, 1, 1, 37}, {3, 20, 1, 16}, {16, 16, 8}}
	slots := make([]int, len(cuts))
	at := make([]int, len(cuts))
	got := make([][]float32, len(cuts))
	for i := range cuts {
		slots[i], _ = m.Engine().Alloc()
	}
	for round := range 4 {
		var b exec.Batch
		var who []int
		for i, c := range cuts {
			if round < len(c) {
				start := 100*i + at[i]
				b.Sequences = append(b.Sequences, exec.Sequence{Slot: slots[i], Tokens: text[start : start+c[round]]})
				at[i] += c[round]
				who = append(who, i)
			}
		}
		results, err := m.Engine().Step(context.Background(), &b)
		if err != nil {
			t.Fatal(err)
		}
		logits, err := results.Output("logits")
		if err != nil {
			t.Fatal(err)
		}
		for row, i := range who {
			got[i] = slices.Clone(logits.Row(row))
		}
	}
	for i := range cuts {
		m.Engine().Free(slots[i])
		s, err := m.NewSequence()
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.Step(context.Background(), text[100*i:100*i+40]...)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got[i], want) {
			t.Errorf("sequence %d in chunks of %v differs from the sequence alone", i, cuts[i])
		}
		s.Close()
	}
}

// TestLongPrompt goes through the model in several chunks.
func TestLongPrompt(t *testing.T) {
	m := embeddedModel(t)
	text := readVal(t)[:2*session.PrefillChunk+3]
	one, _ := m.NewSequence()
	two, _ := m.NewSequence()
	all, err := one.Step(context.Background(), text...)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(all)
	var got []float32
	for _, id := range text {
		if got, err = two.Step(context.Background(), id); err != nil {
			t.Fatal(err)
		}
	}
	var seen []int
	if _, err := m.GenerateIDs(context.Background(), text, Generate{MaxTokens: 1, OnPrompt: func(done, all int) { seen = append(seen, done, all) }}); err != nil ||
		!slices.Equal(seen, []int{0, len(text), session.PrefillChunk, len(text), 2 * session.PrefillChunk, len(text), len(text), len(text)}) {
		t.Errorf("progress of a long prompt: %v, %v", seen, err)
	}
	if !slices.Equal(got, want) {
		t.Error("a long prompt and its tokens one by one end with different logits")
	}
}

// TestGoroutines: texts that are generated at the same time are those that are
// generated one after another.
func TestGoroutines(t *testing.T) {
	m := embeddedModel(t, Options{Slots: 4})
	prompts := []string{"And the LORD said", "In those days", "Psalms 151\n\n", "And it came to pass"}
	want, got := make([]string, len(prompts)), make([]string, len(prompts))
	text := func(i int) string {
		g, err := m.Generate(context.Background(), prompts[i], Generate{MaxTokens: 60, Temperature: 1, Seed: uint64(i)})
		if err != nil {
			t.Error(err)
			return ""
		}
		return g.Text
	}
	for i := range prompts {
		want[i] = text(i)
	}
	var all sync.WaitGroup
	for i := range prompts {
		all.Go(func() { got[i] = text(i) })
	}
	all.Wait()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStops(t *testing.T) {
	m := embeddedModel(t)
	const prompt = "And the LORD said unto Moses,"
	ctx := context.Background()
	g, err := m.Generate(ctx, prompt, Generate{Stop: []string{"to the LORD"}})
	if err != nil || g.Text != " The LORD shall be a stranger " || g.Reason != ReachedStop {
		t.Errorf("stop string: %+v, %v", g, err)
	}
	g, err = m.Generate(ctx, prompt, Generate{MaxTokens: 9})
	if err != nil || g.Text != " The LORD" || g.Reason != ReachedMax || len(g.IDs) != 9 {
		t.Errorf("token limit: %+v, %v", g, err)
	}
	// The newline ends the first verse; let it be the end of text.
	m.source.eos = []int{'\n'}
	g, err = m.Generate(ctx, prompt, Generate{})
	if err != nil || !strings.HasSuffix(g.Text, "thy God.") || g.Reason != ReachedEOS {
		t.Errorf("end of text: %+v, %v", g, err)
	}
	g, err = m.Generate(ctx, prompt, Generate{IgnoreEOS: true})
	if err != nil || !strings.Contains(g.Text, "\n") {
		t.Errorf("ignoring the end of text: %+v, %v", g, err)
	}
}

func TestSampling(t *testing.T) {
	m := embeddedModel(t)
	text := func(o Generate) string {
		o.MaxTokens = 40
		g, err := m.Generate(context.Background(), "In those days came ", o)
		if err != nil {
			t.Fatal(err)
		}
		return g.Text
	}
	a, b, c := text(Generate{Temperature: 1, Seed: 1}), text(Generate{Temperature: 1, Seed: 1}), text(Generate{Temperature: 1, Seed: 2})
	if a != b || a == c {
		t.Errorf("seeds 1, 1, 2 give %q, %q, %q", a, b, c)
	}
	if got, want := text(Generate{Temperature: 1, TopK: 1}), text(Generate{}); got != want {
		t.Errorf("top-k 1 gives %q, greedy %q", got, want)
	}
	if text(Generate{RepetitionPenalty: 1.5}) == text(Generate{}) {
		t.Error("a repetition penalty changes nothing")
	}
}

func TestGenerateRefuses(t *testing.T) {
	m := embeddedModel(t, Options{Slots: 1})
	ctx := context.Background()
	for want, run := range map[string]func() error{
		"an empty prompt has no next token":    func() error { _, err := m.Generate(ctx, "", Generate{}); return err },
		"token 1 is 256; ids of tiny-mamba":    func() error { _, err := m.GenerateIDs(ctx, []int{1, 256}, Generate{}); return err },
		"top-p is 2":                           func() error { _, err := m.Generate(ctx, "a", Generate{Temperature: 1, TopP: 2}); return err },
		"stop string":                          func() error { _, err := m.Generate(ctx, "a", Generate{Stop: []string{""}}); return err },
		"MaxTokens is -1":                      func() error { _, err := m.Generate(ctx, "a", Generate{MaxTokens: -1}); return err },
		"the graph of tiny-mamba has no value": func() error { _, err := Embedded(Options{Keep: []string{"nothing"}}); return err },
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := m.Generate(cancelled, "a", Generate{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// None of these kept the one slot.
	if _, err := m.Generate(ctx, "a", Generate{MaxTokens: 1}); err != nil {
		t.Error(err)
	}
}

func TestKeep(t *testing.T) {
	m := embeddedModel(t, Options{Keep: []string{"layers.2.h"}})
	slot, err := m.Engine().Alloc()
	if err != nil {
		t.Fatal(err)
	}
	results, err := m.Engine().Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1, 2, 3}}}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := results.Output("layers.2.h")
	if err != nil || h.Rows() != 3 || h.Cols != 128 {
		t.Errorf("%v rows of %d: %v", h.Rows(), h.Cols, err)
	}
}

func TestTokensPerSecond(t *testing.T) {
	g := Generation{IDs: make([]int, 11), TTFT: time.Second, Total: 3 * time.Second}
	if got := g.TokensPerSecond(); got != 5 {
		t.Error(got)
	}
	if got := (&Generation{}).TokensPerSecond(); got != 0 {
		t.Error(got)
	}
}

// TestGenerateStopped: a generation that is cancelled is what there is of it, with the error.
func TestGenerateStopped(t *testing.T) {
	m := embeddedModel(t)
	whole, err := m.Generate(t.Context(), "In the", Generate{MaxTokens: 12})
	if err != nil {
		t.Fatal(err)
	}
	for after := range 12 {
		ctx, cancel := context.WithCancel(t.Context())
		if after == 0 {
			cancel()
		}
		var streamed strings.Builder
		seen := 0
		g, err := m.Generate(ctx, "In the", Generate{
			MaxTokens: 12, Stop: []string{"no such text"},
			OnText: func(text string) { streamed.WriteString(text) },
			OnToken: func(int, time.Time) {
				if seen++; seen == after {
					cancel()
				}
			},
		})
		cancel()
		if !errors.Is(err, context.Canceled) || g == nil {
			t.Fatalf("after %d tokens: %v, %v", after, g, err)
		}
		if len(g.IDs) != after || !slices.Equal(g.IDs, whole.IDs[:after]) || g.Reason != "" || g.PromptTokens != 6 {
			t.Errorf("after %d tokens: %+v", after, g)
		}
		if g.Text != whole.Text[:after] || streamed.String() != g.Text { // a token is a byte
			t.Errorf("after %d tokens: %q, streamed %q; want %q", after, g.Text, streamed.String(), whole.Text[:after])
		}
	}
}

// TestStepFails: a step that fails has no logits, not those of the step before.
func TestStepFails(t *testing.T) {
	s, err := embeddedModel(t).NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if logits, err := s.Step(t.Context(), 65); err != nil || len(logits) != 256 {
		t.Fatalf("%d logits, %v", len(logits), err)
	}
	for _, bad := range [][]int{nil, {-1}, {256}} {
		if logits, err := s.Step(t.Context(), bad...); err == nil || logits != nil {
			t.Errorf("tokens %v: %d logits, %v", bad, len(logits), err)
		}
	}
}
