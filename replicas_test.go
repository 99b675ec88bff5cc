package krait

import (
	"context"
	"strings"
	"testing"
)

// TestReplicas: prompts that are distributed among replicas get what they get alone, each
// with a seed of its own, in their order; one that fails stops all, with its number.
func TestReplicas(t *testing.T) {
	r := []*Model{embeddedModel(t, Options{Slots: 2}), embeddedModel(t, Options{Slots: 1, Sharding: Sharding{Ranks: 2}})}
	prompts := []string{"And the LORD", "In", "Moses", "the king", "a", "Jerusalem", "of the sea"}
	o := Generate{MaxTokens: 12, Temperature: 0.8, Seed: 5}
	list, err := r[0].GenerateBatch(context.Background(), prompts, o, r[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range prompts {
		one := o
		one.Seed += uint64(i)
		want, err := r[0].Generate(context.Background(), p, one)
		if err != nil {
			t.Fatal(err)
		}
		if list[i].Text != want.Text {
			t.Errorf("%q goes on with %q, alone with %q", p, list[i].Text, want.Text)
		}
	}
	if _, err := r[0].GenerateBatch(context.Background(), []string{"a", "", "b"}, o, r[1:]...); err == nil || !strings.Contains(err.Error(), "prompt 2: ") {
		t.Errorf("an empty prompt: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r[0].GenerateBatch(ctx, prompts, o, r[1:]...); err != context.Canceled {
		t.Errorf("canceled: %v", err)
	}
}
