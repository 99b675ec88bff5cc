package krait

import (
	"context"
	"strings"
	"testing"
)

func TestSpeculateSmoke(t *testing.T) {
	m, err := Embedded(Options{Speculate: "ngram"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, temperature := range []float64{0, 1} {
		prompt := strings.Repeat("And the LORD said unto Moses, Go in unto Pharaoh. ", 4) + "And the LORD"
		o := Generate{MaxTokens: 200, Temperature: temperature}
		with, err := m.Generate(context.Background(), prompt, o)
		if err != nil {
			t.Fatal(err)
		}
		o.Speculate = "off"
		without, err := m.Generate(context.Background(), prompt, o)
		if err != nil || with.Text != without.Text {
			t.Errorf("%q, want %q, %v", with.Text, without.Text, err)
		}
		t.Logf("%d of %d drafts; %v and %v; %q", with.Accepted, with.Drafts, with.Total, without.Total, with.Text)
	}
}
