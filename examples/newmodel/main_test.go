package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestGuide: the guide shows this program's model, and its output but for roundings; and the mixer
// of LFM2 and the number of its lines.
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
	family, err := os.ReadFile("../../models/lfm2.go")
	if err != nil {
		t.Fatal(err)
	}
	first := strings.Index(string(family), "// shortConv is")
	last := first + strings.Index(string(family[first:]), "\n}\n")
	lines := fmt.Sprintf("`models/lfm2.go`: %d lines", strings.Count(string(family), "\n"))
	for _, want := range []string{lines, string(family[first:last]), string(source[start:end]), out.String()[:strings.Index(out.String(), "\nexecuted")]} {
		if !strings.Contains(string(guide), want) {
			t.Errorf("docs/new-model.md does not have\n%s", want)
		}
	}
}
