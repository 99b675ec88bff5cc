package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun: the family is opened, proved, drawn and generates the same on one rank and three.
func TestRun(t *testing.T) {
	var out strings.Builder
	picture := filepath.Join(t.TempDir(), "leaky.dot")
	if err := run(&out, t.TempDir(), picture); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"acme_leaky on 3 ranks: proved", "total: 4 collectives", "minimum: 4 collectives", "1 ranks: [", "3 ranks: ["} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	drawn, err := os.ReadFile(picture)
	if err != nil || !strings.Contains(string(drawn), "leaky_integrate") {
		t.Errorf("the picture: %v", err)
	}
}
