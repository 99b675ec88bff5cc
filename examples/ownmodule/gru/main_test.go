package main

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/lab/optest"
)

func TestOp(t *testing.T) { optest.Check(t, "min_gru") }

// TestRun: one rank, four and the simulated GPU say the same; the proof and the drawing are whole.
func TestRun(t *testing.T) {
	var out, dot strings.Builder
	if err := run(t.Context(), &out, &dot); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		if _, ids, ok := strings.Cut(line, " ranks: ["); ok {
			lines = append(lines, ids)
		}
	}
	if len(lines) != 3 || lines[0] != lines[1] || lines[0] != lines[2] {
		t.Errorf("tokens %q", lines)
	}
	for _, want := range []string{"min_gru has no kernel for GPUs", "min-gru on 4 ranks: proved", "total: 4 collectives", "minimum: 4 collectives", "executed in float64"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if !strings.Contains(dot.String(), "min_gru") {
		t.Error("the drawing has no min_gru")
	}
}
