package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// progress shows a line on a terminal; tell is nil otherwise. end, which may be called more than
// once, removes the line.
func progress(w io.Writer, what, unit string, quiet bool) (tell func(done, all int), end func()) {
	f, ok := w.(*os.File)
	if !ok || quiet || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	m := &meter{w: w, what: what, unit: unit, now: time.Now}
	return m.tell, m.end
}

// weightProgress is progress over bytes of weights.
func weightProgress(c *cobra.Command, quiet bool) (report func(done, total int64), end func()) {
	return byteProgress(c, "weights", quiet)
}

// byteProgress is progress over bytes.
func byteProgress(c *cobra.Command, what string, quiet bool) (report func(done, total int64), end func()) {
	tell, end := progress(c.ErrOrStderr(), what, "bytes", quiet)
	if tell != nil {
		report = func(done, total int64) { tell(int(done), int(total)) }
	}
	return report, end
}

// meter shows progress and the recent rate.
type meter struct {
	w          io.Writer
	what, unit string
	now        func() time.Time
	marks      []mark // recent, oldest first
	shown      time.Time
	drawn      bool
}

// mark is the progress at a time.
type mark struct {
	at   time.Time
	done int
}

const (
	redraw = 100 * time.Millisecond
	recent = 5 * time.Second // period of the rate
)

func (m *meter) tell(done, all int) {
	now := m.now()
	m.marks = append(m.marks, mark{now, done})
	for len(m.marks) > 2 && now.Sub(m.marks[1].at) >= recent {
		m.marks = m.marks[1:]
	}
	if m.drawn && done < all && now.Sub(m.shown) < redraw {
		return
	}
	m.shown, m.drawn = now, true
	fmt.Fprintf(m.w, "\r\x1b[K%s  %s", m.what, m.line(done, all))
}

// line writes 1,024 of 4,096 tokens, 812 tokens/s, 4s left.
func (m *meter) line(done, all int) string {
	amount := func(n int) string { return thousands(int64(n)) }
	unit := m.unit
	if unit == "bytes" {
		amount = func(n int) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }
		unit = "MB"
	}
	text := fmt.Sprintf("%s of %s %s", amount(done), amount(all), unit)
	first := m.marks[0]
	if seconds := m.now().Sub(first.at).Seconds(); seconds > 0 && done > first.done {
		rate := float64(done-first.done) / seconds
		switch {
		case unit == "MB" || rate >= 10:
			text += fmt.Sprintf(", %s %s/s", amount(int(rate)), unit)
		default:
			text += fmt.Sprintf(", %.2g %s/s", rate, unit)
		}
		if left := time.Duration(float64(all-done) / rate * float64(time.Second)).Round(time.Second); left >= time.Second {
			text += fmt.Sprintf(", %s left", left)
		}
	}
	return text
}

func (m *meter) end() {
	if m.drawn {
		fmt.Fprint(m.w, "\r\x1b[K")
		m.drawn = false
	}
}
