package krait

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/schedule"
)

// TestStream: a stream gives the tokens and the text of the generation, says at the last
// token why it ends, and frees its slot when the reader stops.
func TestStream(t *testing.T) {
	m := embeddedModel(t, Options{Slots: 1})
	whole, err := m.Generate(t.Context(), "In the beginning", Generate{MaxTokens: 40})
	if err != nil {
		t.Fatal(err)
	}
	long := whole.Text[20:24]
	for name, o := range map[string]Generate{
		"greedy":      {MaxTokens: 40},
		"one":         {MaxTokens: 1},
		"drawn":       {MaxTokens: 30, Temperature: 1.2, Seed: 3},
		"stop":        {MaxTokens: 40, Stop: []string{long}},
		"held back":   {MaxTokens: 23, Stop: []string{whole.Text[20:40]}},
		"half a rune": {MaxTokens: 60, Temperature: 30, Seed: 9},
	} {
		want, err := m.Generate(t.Context(), "In the beginning", o)
		if err != nil {
			t.Fatal(err)
		}
		var ids []int
		var text strings.Builder
		var end Reason
		for token, err := range m.Stream(t.Context(), "In the beginning", o) {
			if err != nil || end != "" {
				t.Fatalf("%s: %v after %d tokens, end %q", name, err, len(ids), end)
			}
			ids, end = append(ids, token.ID), token.End
			text.WriteString(token.Text)
		}
		if !slices.Equal(ids, want.IDs) || text.String() != want.Text || end != want.Reason {
			t.Errorf("%s: the stream gives %v %q %q, the generation %v %q %q", name, ids, text.String(), end, want.IDs, want.Text, want.Reason)
		}
	}
	n := 0
	for _, err := range m.Stream(t.Context(), "In", Generate{}) {
		if n++; err != nil || n == 3 {
			break
		}
	}
	if s, err := m.NewSequence(); n != 3 || err != nil { // the only slot
		t.Errorf("after %d tokens that were read: %v", n, err)
	} else {
		s.Close()
	}
}

// TestStreamEOS: the token that the model ends with is the stream's last.
func TestStreamEOS(t *testing.T) {
	m := embeddedModel(t)
	whole, err := m.Generate(t.Context(), "In the beginning", Generate{MaxTokens: 40})
	if err != nil {
		t.Fatal(err)
	}
	m.source.eos = []int{whole.IDs[17]}
	want, err := m.Generate(t.Context(), "In the beginning", Generate{})
	if err != nil || want.Reason != ReachedEOS {
		t.Fatal(err, want)
	}
	var list []Token
	for token, err := range m.Stream(t.Context(), "In the beginning", Generate{}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, token)
	}
	if last := list[len(list)-1]; last.ID != m.source.eos[0] || last.End != ReachedEOS || len(list) != len(want.IDs)+1 {
		t.Errorf("%d tokens for %d and the end: %+v", len(list), len(want.IDs), last)
	}
}

// TestStreamErrors: an error is the last of a stream, and comes with the text held back.
func TestStreamErrors(t *testing.T) {
	m := embeddedModel(t)
	for want, o := range map[string]Generate{
		"MaxTokens is -1":   {MaxTokens: -1},
		"temperature is -1": {Temperature: -1},
	} {
		n := 0
		for _, err := range m.Stream(t.Context(), "In", o) {
			if n++; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d results", want, n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	n := 0
	for _, err := range m.StreamIDs(ctx, []int{65, 66}, Generate{}) {
		if n++; n == 2 {
			cancel()
		}
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("after %d tokens, canceled: %v", n, last)
	}
}

// TestGenerateBatch: more prompts than slots wait, also while others have all slots.
func TestGenerateBatch(t *testing.T) {
	m := embeddedModel(t, Options{Slots: 2})
	var others []*Sequence
	for range 2 {
		s, err := m.NewSequence()
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, s)
	}
	prompts := []string{"And the LORD", "In", "Moses", "the king", "a"}
	o := Generate{MaxTokens: 9, Temperature: 0.8, Seed: 5}
	type result struct {
		list []*Generation
		err  error
	}
	done := make(chan result)
	go func() {
		list, err := m.GenerateBatch(t.Context(), prompts, o)
		done <- result{list, err}
	}()
	for _, s := range others {
		if _, err := s.Step(t.Context(), 'a'); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}
	for i, p := range prompts {
		one := o
		one.Seed += uint64(i)
		want, err := m.Generate(t.Context(), p, one)
		if err != nil || got.list[i].Text != want.Text {
			t.Errorf("%q goes on with %q, alone with %q (%v)", p, got.list[i].Text, want.Text, err)
		}
	}
}

// panics is a Prefiller that does.
type panics struct{ why string }

func (p *panics) Prefill(context.Context, *session.Session, string, []int, func(int)) (schedule.Beginning, session.RemotePrefill, error) {
	panic(p.why)
}
func (p *panics) Strict() bool { return false }
func (p *panics) Down() bool   { return false }

// TestPrefillPanics: a Prefiller that panics, as a nil pointer does, is an error that names its
// type, and the model goes on.
func TestPrefillPanics(t *testing.T) {
	m := embeddedModel(t, Options{Slots: 1})
	for want, p := range map[string]*panics{
		"the prefiller is a nil *krait.panics, which panics: runtime error": nil,
		"the prefiller, a *krait.panics, panics: of itself":                 {"of itself"},
	} {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		for _, err := range m.Stream(ctx, "In the beginning", Generate{MaxTokens: 2, Prefill: p}) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		stop()
		if g, err := m.Generate(t.Context(), "In the beginning", Generate{MaxTokens: 2}); err != nil || len(g.IDs) != 2 {
			t.Errorf("the next gets %+v, %v", g, err)
		}
	}
}
