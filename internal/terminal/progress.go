package terminal

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Progress shows on a terminal how much of some work is done: percent, amounts, rate and time left.
// Until tell is called with an amount, it shows the time so far. end, which may be called more than
// once, removes the line. Of several meters the latest is shown. If w is no terminal, or quiet is
// set, tell is nil and nothing is shown.
func Progress(w io.Writer, what, unit string, quiet bool) (tell func(done, all int), end func()) {
	bytes, end := progress(w, what, unit, quiet)
	if bytes != nil {
		tell = func(done, all int) { bytes(int64(done), int64(all)) }
	}
	return tell, end
}

// ByteProgress is [Progress] of bytes, which it shows in MB or GB.
func ByteProgress(w io.Writer, what string, quiet bool) (tell func(done, all int64), end func()) {
	return progress(w, what, "bytes", quiet)
}

func progress(w io.Writer, what, unit string, quiet bool) (tell func(done, all int64), end func()) {
	if quiet || !Moves(w) {
		return nil, func() {}
	}
	m := newMeter(w, what, unit, time.Now)
	open.add(m)
	stop := make(chan struct{})
	go m.tick(stop)
	return m.tell, sync.OnceFunc(func() { close(stop); m.end() })
}

// open are the meters that have not ended. The latest is drawn: work in the middle of other work
// has the line.
var open meters

type meters struct {
	mu   sync.Mutex
	list []*meter
}

func (o *meters) add(m *meter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, m)
}

func (o *meters) remove(m *meter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = slices.DeleteFunc(o.list, func(x *meter) bool { return x == m })
}

// covers reports whether a later meter has the line.
func (o *meters) covers(m *meter) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(o.list, m)
	return i >= 0 && i < len(o.list)-1
}

// meter is a line of progress.
type meter struct {
	w          io.Writer
	what, unit string
	now        func() time.Time

	mu    sync.Mutex
	begun time.Time
	marks []mark // recent, oldest first
	all   int64
	shown time.Time
	drawn bool
	ended bool
}

// mark is the progress at a time.
type mark struct {
	at   time.Time
	done int64
}

const (
	patience = 500 * time.Millisecond // shorter work shows nothing
	redraw   = 100 * time.Millisecond
	recent   = 5 * time.Second // least period of the rate
)

func newMeter(w io.Writer, what, unit string, now func() time.Time) *meter {
	return &meter{w: w, what: what, unit: unit, now: now, begun: now()}
}

// tick redraws the line also while nothing is told.
func (m *meter) tick(stop <-chan struct{}) {
	t := time.NewTicker(patience)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			m.mu.Lock()
			m.draw()
			m.mu.Unlock()
		}
	}
}

func (m *meter) tell(done, all int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if n := len(m.marks); n > 0 && done < m.marks[n-1].done { // the work has begun anew
		m.marks, m.begun = nil, now
	}
	m.all, m.marks = all, append(m.marks, mark{now, done})
	period := max(recent, now.Sub(m.begun)/2)
	for len(m.marks) > 2 && now.Sub(m.marks[1].at) >= period {
		m.marks = m.marks[1:]
	}
	if done >= all || now.Sub(m.shown) >= redraw {
		m.draw()
	}
}

// draw writes the line over the one before. On a narrow terminal it omits amounts, then the rate.
func (m *meter) draw() {
	now := m.now()
	if m.ended || open.covers(m) || !m.drawn && now.Sub(m.begun) < patience {
		return
	}
	m.shown, m.drawn = now, true
	fmt.Fprintf(m.w, "\r\x1b[K%s", m.line(now, widthOf(m.w)-1))
}

// line writes the parts of the progress that a width has room for.
func (m *meter) line(now time.Time, width int) string {
	parts := m.parts(now)
	for {
		line := []rune(m.what + "  " + strings.Join(parts, ", "))
		if len(line) <= width || len(parts) == 1 {
			return string(line[:min(len(line), width)])
		}
		parts = slices.Delete(parts, 1, 2)
	}
}

// parts are 25%; 1,024 of 4,096 tokens; 812 tokens/s; 4s left.
func (m *meter) parts(now time.Time) []string {
	if m.all <= 0 || len(m.marks) == 0 {
		return []string{now.Sub(m.begun).Round(time.Second).String()}
	}
	unit, amount := m.unit, func(n float64) string { return Thousands(int64(n)) }
	if unit == "bytes" {
		scale := 1e6
		if unit = "MB"; m.all >= 1e10 {
			unit, scale = "GB", 1e9
		}
		amount = func(n float64) string { return strconv.FormatFloat(n/scale, 'f', 1, 64) }
	}
	first, last := m.marks[0], m.marks[len(m.marks)-1]
	parts := []string{fmt.Sprintf("%d%%", 100*last.done/m.all), fmt.Sprintf("%s of %s %s", amount(float64(last.done)), amount(float64(m.all)), unit)}
	if seconds := now.Sub(first.at).Seconds(); seconds > 0 && last.done > first.done {
		rate := float64(last.done-first.done) / seconds
		if m.unit == "bytes" || rate >= 10 {
			parts = append(parts, fmt.Sprintf("%s %s/s", amount(rate), unit))
		} else {
			parts = append(parts, fmt.Sprintf("%.2g %s/s", rate, unit))
		}
		left := time.Duration(float64(m.all-last.done) / rate * float64(time.Second)).Round(time.Second)
		if left >= time.Second {
			parts = append(parts, fmt.Sprintf("%s left", left))
		}
	}
	return parts
}

func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drawn && !m.ended && !open.covers(m) {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
	m.ended = true
	open.remove(m)
}

// Thousands writes 732544 as 732,544.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
