package main

import (
	"os"
	"strings"
	"testing"
)

// TestGuide: the guide shows this program's model, and what it prints, but for roundings.
func TestGuide(t *testing.T) {
	var out strings.Builder
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/new-model.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	start := strings.Index(string(source), "func model()")
	end := start + strings.Index(string(source[start:]), "\n}\n")
	for _, want := range []string{string(source[start:end]), out.String()[:strings.Index(out.String(), "\nexecuted")]} {
		if !strings.Contains(string(guide), want) {
			t.Errorf("docs/new-model.md does not have\n%s", want)
		}
	}
}
