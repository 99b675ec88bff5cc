package main

import (
	"regexp"
	"strings"
	"testing"
)

// TestRun: four ranks give what Gorgonia's machine gives, are proved with two collectives, and are
// drawn.
func TestRun(t *testing.T) {
	var out, dot strings.Builder
	if err := run(&out, &dot); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`differ by at most \de-0[789]\n`, `recurrent on 4 ranks: proved`, `total: 2 collectives`, `minimum: 2 collectives`, `all_gather h_next`, `off by at most \d\.\de-1\d\n`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
	for _, want := range []string{"all_gather", "all_reduce", "unit_rmsnorm", "gated"} {
		if !strings.Contains(dot.String(), want) {
			t.Errorf("the drawing has no %s", want)
		}
	}
}
