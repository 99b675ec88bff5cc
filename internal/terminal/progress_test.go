package terminal

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMeter: short work shows nothing; then there is the time, and amounts, the rate and the time
// left as soon as they are known; nothing is left at the end.
func TestMeter(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(0, 0)
	m := newMeter(&out, "prompt", "tokens", func() time.Time { return clock })
	for _, step := range []struct {
		wait time.Duration
		done int64
		want string
	}{
		{0, -1, ""},
		{2 * time.Second, -1, "2s"},
		{0, 0, ""}, // too soon to draw again
		{time.Second, 512, "12%, 512 of 4,096 tokens, 512 tokens/s, 7s left"},
		{time.Millisecond, 600, ""},
		{time.Second, 1024, "25%, 1,024 of 4,096 tokens, 511 tokens/s, 6s left"},
		{time.Second, -1, "25%, 1,024 of 4,096 tokens, 341 tokens/s, 9s left"},
		{20 * time.Second, 1034, "25%, 1,034 of 4,096 tokens, 0.48 tokens/s, 1h47m10s left"},
		{0, 4096, "100%, 4,096 of 4,096 tokens, 146 tokens/s"},
		{time.Second, 0, "0%, 0 of 4,096 tokens"}, // another round
	} {
		out.Reset()
		clock = clock.Add(step.wait)
		if step.done < 0 {
			m.draw()
		} else {
			m.tell(step.done, 4096)
		}
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
	m.draw()
	if out.String() != "\r\x1b[K" {
		t.Errorf("at the end: %q", out.String())
	}
	for all, want := range map[int64]string{107e6: "28%, 30.0 of 107.0 MB, 15.0 MB/s, 5s left", 14.5e9: "0%, 0.0 of 14.5 GB, 0.0 GB/s, 16m5s left"} {
		out.Reset()
		m = newMeter(&out, "weights", "bytes", func() time.Time { return clock })
		m.tell(0, all)
		clock = clock.Add(2 * time.Second)
		m.tell(30e6, all)
		if got := out.String(); !strings.HasSuffix(got, "weights  "+want) {
			t.Errorf("bytes: %q", got)
		}
	}
}

// TestMeters: of two meters the later one has the line, and at its end the earlier one again.
func TestMeters(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(0, 0)
	meter := func(what string) *meter {
		m := newMeter(&out, what, "things", func() time.Time { return clock })
		open.add(m)
		return m
	}
	outer := meter("outer")
	inner := meter("inner")
	clock = clock.Add(time.Second)
	outer.draw()
	inner.draw()
	outer.draw()
	inner.end()
	outer.draw()
	outer.end()
	if want := "\r\x1b[Kinner  1s\r\x1b[K\r\x1b[Kouter  1s\r\x1b[K"; out.String() != want {
		t.Errorf("%q; want %q", out.String(), want)
	}
	if len(open.list) > 0 {
		t.Errorf("%d meters are open after their ends", len(open.list))
	}
}

// TestProgressOnPipe: only a terminal shows progress.
func TestProgressOnPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if tell, end := Progress(w, "work", "things", false); tell != nil {
		t.Error("a pipe shows progress")
	} else {
		end()
	}
}

// TestNarrow: a line that a terminal has no room for loses amounts first, then the rate; of the
// percentage something always stays.
func TestNarrow(t *testing.T) {
	clock := time.Unix(0, 0)
	m := newMeter(io.Discard, "weights", "bytes", func() time.Time { return clock })
	m.tell(0, 107e6)
	clock = clock.Add(2 * time.Second)
	m.tell(30e6, 107e6)
	for width, want := range map[int]string{
		79: "weights  28%, 30.0 of 107.0 MB, 15.0 MB/s, 5s left", 39: "weights  28%, 15.0 MB/s, 5s left", 24: "weights  28%, 5s left", 15: "weights  28%", 5: "weigh",
	} {
		if got := m.line(clock, width); got != want {
			t.Errorf("%d columns: %q; want %q", width, got, want)
		}
	}
}
