package krait

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLibraryPage: each piece of Go in docs/library.md is in a file that is compiled and run.
func TestLibraryPage(t *testing.T) {
	page, err := os.ReadFile("docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources []string
	for _, pattern := range []string{"example_test.go", "*/example_test.go", "examples/ownmodule/leaky/*.go", "examples/ownmodule/gru/main.go", "examples/gorgonia/recurrent/main.go"} {
		list, err := filepath.Glob(pattern)
		if err != nil || len(list) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range list {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, unindented(string(text)))
		}
	}
	pieces := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(pieces) < 10 {
		t.Errorf("%d pieces of Go", len(pieces))
	}
next:
	for _, p := range pieces {
		for _, s := range sources {
			if strings.Contains(s, unindented(p[1])) {
				continue next
			}
		}
		t.Errorf("this is in no example:\n%s", p[1])
	}
}

// TestBlockPage: the recurrent block of docs/library.md is under 100 lines without its imports.
func TestBlockPage(t *testing.T) {
	text, err := os.ReadFile("examples/ownmodule/gru/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "\n)\n")
	if n := strings.Count(body, "\n"); n >= 100 || n < 50 {
		t.Errorf("%d lines", n)
	}
}

// unindented is a text without the white space before its lines.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t ")
	}
	return strings.Join(lines, "\n")
}
