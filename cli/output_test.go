package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
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

// TestMeter: progress is there from the start, its rate is that of late, and nothing of it is left.
func TestMeter(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(0, 0)
	m := &meter{w: &out, what: "prompt", unit: "tokens", now: func() time.Time { return clock }}
	for _, step := range []struct {
		wait time.Duration
		done int
		want string
	}{
		{0, 0, "0 of 4,096 tokens"},
		{time.Second, 512, "512 of 4,096 tokens, 512 tokens/s, 7s left"},
		{time.Millisecond, 600, ""}, // too soon to draw again
		{time.Second, 1024, "1,024 of 4,096 tokens, 511 tokens/s, 6s left"},
		{10 * time.Second, 1034, "1,034 of 4,096 tokens, 1 tokens/s, 51m2s left"},
		{0, 4096, "4,096 of 4,096 tokens, 307 tokens/s"},
	} {
		out.Reset()
		clock = clock.Add(step.wait)
		m.tell(step.done, 4096)
		want := step.want
		if want != "" {
			want = "\r\x1b[Kprompt  " + want
		}
		if got := out.String(); got != want {
			t.Errorf("%d: %q; want %q", step.done, got, want)
		}
	}
	out.Reset()
	m.end()
	m.end()
	if out.String() != "\r\x1b[K" {
		t.Errorf("at the end: %q", out.String())
	}
	out.Reset()
	m = &meter{w: &out, what: "weights", unit: "bytes", now: func() time.Time { return clock }}
	m.tell(0, 107e6)
	clock = clock.Add(2 * time.Second)
	m.tell(31e6, 107e6)
	if got := out.String(); !strings.HasSuffix(got, "weights  31.0 of 107.0 MB, 15.5 MB/s, 5s left") {
		t.Errorf("bytes: %q", got)
	}
}
