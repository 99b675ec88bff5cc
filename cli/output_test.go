package cli

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestPrintable: what reaches a terminal is what one sees.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain, naïve, 日本, \"quoted\" \\ and\ttabs\nlines": "plain, naïve, 日本, \"quoted\" \\ and\ttabs\nlines",
		"\x1b[31mred\x1b[0m":   `\x1b[31mred\x1b[0m`,
		"over\rwritten\b\x00":  `over\rwritten\b\x00`,
		"right to left \u202e": `right to left \u202e`,
		"bad \xff\xc3":         `bad \xff\xc3`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
	for _, unit := range []string{"x", "é", "日", "\x1b"} {
		for n := longestLine - 4; n < longestLine+5; n++ {
			line := strings.Repeat(unit, n)
			got, rest, _ := strings.Cut(printable(line+"\nnext"), "\n")
			if rest != "next" || !utf8.ValidString(got) {
				t.Fatalf("%d of %q: %q", n, unit, got)
			}
			if cut := strings.HasSuffix(got, "bytes more)"); cut != (len(line) > longestLine) {
				t.Errorf("%d of %q: cut: %v", n, unit, cut)
			}
		}
	}
}

// TestFigure: JSON has no infinity.
func TestFigure(t *testing.T) {
	text, err := json.Marshal([]figure{1.5, figure(math.Inf(1)), figure(math.NaN())})
	if err != nil || string(text) != "[1.5,null,null]" {
		t.Errorf("%s, %v", text, err)
	}
}
