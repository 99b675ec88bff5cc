package timeline_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/fonts"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/visualize/timeline"
)

// step returns a batch of two ranks from a time on, with its durations times a factor.
func step(name string, at, slow float64) timeline.Step {
	s := timeline.Step{Name: name}
	for rank := range 2 {
		s.Events = append(s.Events,
			exec.Event{Rank: rank, Name: "layers.0.mixer.x", Op: "matmul", Start: at, End: at + 10e-6*slow, Bytes: 4096},
			exec.Event{Rank: rank, Name: "layers.0.mixer.sum<&>", Op: "all_reduce", Kind: lowering.Collective, Stream: lowering.Comm, Start: at + 10e-6*slow, End: at + 15e-6*slow, Bytes: 512},
			exec.Event{Rank: rank, Name: "layers.0.h", Kind: lowering.Wait, Start: at + 10e-6*slow, End: at + 15e-6*slow},
			exec.Event{Rank: rank, Name: "layers.0.h", Op: "add", Start: at + 15e-6*slow, End: at + 16e-6*slow})
	}
	return s
}

func runs() []timeline.Run {
	return []timeline.Run{
		{Name: `measured on "cpu"`, Steps: []timeline.Step{step("8 tokens", 0, 4), step("1 token", 1e-3, 1), step("1 token", 2e-3, 3), step("1 token", 3e-3, 2)}},
		{Name: "predicted for <x>", Steps: []timeline.Step{step("8 tokens", 0, 3), step("1 token", 1e-3, 1), step("1 token", 2e-3, 1), step("1 token", 3e-3, 1)}},
	}
}

// TestTrace reads what Perfetto would.
func TestTrace(t *testing.T) {
	var out bytes.Buffer
	if err := timeline.Trace(&out, runs()); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Cat, Ph string
			Pid, Tid      int
			Ts, Dur       float64
			Args          map[string]any
		}
	}
	if err := json.Unmarshal(out.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	processes, stretches, waits := map[int]string{}, map[int]int{}, 0
	for _, e := range trace.TraceEvents {
		switch {
		case e.Name == "process_name":
			processes[e.Pid] = e.Args["name"].(string)
		case e.Ph == "X" && e.Cat == "wait":
			waits++
		case e.Ph == "X" && e.Cat != "batch":
			if stretches[e.Pid]++; e.Tid < 2 || e.Tid > 3 || e.Dur <= 0 {
				t.Errorf("%+v is on no stream, or takes no time", e)
			}
		}
	}
	want := map[int]string{1: `rank 0, measured on "cpu"`, 2: "rank 0, predicted for <x>", 3: `rank 1, measured on "cpu"`, 4: "rank 1, predicted for <x>"}
	if fmt.Sprint(processes) != fmt.Sprint(want) {
		t.Errorf("the processes are %v", processes)
	}
	for pid, n := range stretches {
		if n != 4*3 {
			t.Errorf("process %d has %d events", pid, n)
		}
	}
	if waits != 4*4 {
		t.Errorf("%d waits", waits)
	}
	last := trace.TraceEvents[len(trace.TraceEvents)-1]
	if last.Name != "layers.0.h" || last.Ts != 3015 || last.Dur != 1 || last.Args["operation"] != "add" {
		t.Errorf("the last event is %+v", last)
	}
}

// TestTraceFails: an error of who takes it is one.
func TestTraceFails(t *testing.T) {
	full := errors.New("full")
	r, w := io.Pipe()
	r.CloseWithError(full)
	if err := timeline.Trace(w, runs()); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
}

// TestSVG: the picture is XML, names are text, and it shows the first step and the middle
// one of those that come most often.
func TestSVG(t *testing.T) {
	svg := svgOf(t, runs())
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, want := range []string{"step 1, 8 tokens: measured on &#34;cpu&#34; 64 µs, predicted for &lt;x&gt; 48 µs", "step 4, 1 token: measured on &#34;cpu&#34; 32 µs, predicted for &lt;x&gt; 16 µs",
		"rank 1, predicted for &lt;x&gt;", "layers.0.mixer.sum&lt;&amp;&gt; (all_reduce), 20 µs, 512 bytes", "layers.0.h (waits), 20 µs"} {
		if !strings.Contains(svg, want) {
			t.Errorf("it does not say %s", want)
		}
	}
	if strings.Contains(svg, "step 2") || strings.Contains(svg, "step 3") {
		t.Error("it shows other steps")
	}
	if empty := svgOf(t, []timeline.Run{{Name: "nothing"}}); !strings.HasSuffix(empty, "</svg>\n") {
		t.Errorf("of nothing it is %s", empty)
	}
}

// TestSVGLabels: no label overlaps another of its line or leaves the picture, in any font.
func TestSVGLabels(t *testing.T) {
	for _, took := range []float64{1e-6, 99e-6, 8.01e-4, 1, 12.4} {
		events := []exec.Event{{Name: "layers.0.mixer.h", Op: "matmul", End: took * 0.4}, {Name: "layers.0.mixer.sum", Op: "add", Start: took * 0.4, End: took}}
		svg := svgOf(t, []timeline.Run{{Name: strings.Repeat("W", 30), Steps: []timeline.Step{{Name: "1 token", Events: events}}}, {Name: "x", Steps: []timeline.Step{{Name: "1 token", Events: events}}}})
		type span struct{ from, to float64 }
		lines := map[string][]span{}
		for _, m := range regexp.MustCompile(`<text x="([\d.]+)" y="([\d.]+)"([^>]*)>([^<]*)</text>`).FindAllStringSubmatch(svg, -1) {
			x, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			size := 11.0
			if n := regexp.MustCompile(`font-size="(\d+)"`).FindStringSubmatch(m[3]); n != nil {
				size, _ = strconv.ParseFloat(n[1], 64)
			}
			width := fonts.Width(html.UnescapeString(m[4]), size, strings.Contains(m[3], "bold"))
			s := span{x, x + width}
			if strings.Contains(m[3], `text-anchor="end"`) {
				s = span{x - width, x}
			}
			for _, o := range lines[m[2]] {
				if s.from < o.to && o.from < s.to {
					t.Errorf("of %g s, %q overlaps another label", took, m[4])
				}
			}
			if lines[m[2]] = append(lines[m[2]], s); s.from < 0 || s.to > 1400 {
				t.Errorf("of %g s, %q leaves the picture: %g to %g", took, m[4], s.from, s.to)
			}
		}
		if len(lines) < 5 {
			t.Errorf("%d lines of labels in\n%s", len(lines), svg)
		}
	}
}

// TestSVGFolds: of events that are too narrow to be seen one by one there are few.
func TestSVGFolds(t *testing.T) {
	s := timeline.Step{Name: "1 token"}
	for i := range 50000 {
		s.Events = append(s.Events, exec.Event{Name: fmt.Sprint("v", i), Op: "matmul", Start: float64(i) * 1e-6, End: float64(i+1) * 1e-6})
	}
	svg := svgOf(t, []timeline.Run{{Name: "x", Steps: []timeline.Step{s}}})
	if n := strings.Count(svg, "<title>"); n > 2500 || n < 500 {
		t.Errorf("%d rectangles", n)
	}
}

// TestLog keeps what there is room for.
func TestLog(t *testing.T) {
	l := timeline.Log{Most: 10}
	for i := range 4 {
		w := &exec.Work{}
		w.Sizes = graph.Sizes{Tokens: int64(i + 1), Seqs: 1}
		l.Batch(w)
		events := step("", float64(i), 1).Events
		l.Record(events)
		events[0].Name = "changed"
	}
	if len(l.Steps) != 2 || l.Left != 2 || l.Steps[0].Name != "1 token" || l.Steps[1].Name != "2 tokens" || l.Steps[0].Events[0].Name == "changed" {
		t.Errorf("%d steps are kept and %d left, the first is %+v", len(l.Steps), l.Left, l.Steps[0])
	}
	shifted := l.Steps[1].Shift(2)
	from, to := shifted.Bounds()
	if from != 3 || to < 3.000015 {
		t.Errorf("shifted it is from %g to %g", from, to)
	}
	for z, want := range map[graph.Sizes]string{{Tokens: 4, Seqs: 4}: "4 sequences, a token each", {Tokens: 9, Seqs: 1}: "9 tokens", {Tokens: 9, Seqs: 2}: "9 tokens of 2 sequences"} {
		if got := timeline.NameOf(z); got != want {
			t.Errorf("%+v is called %s", z, got)
		}
	}
}

// TestReadMeasured: a trace gives back the measured steps, without the predicted ones; of several
// steps of a name the median one is taken.
func TestReadMeasured(t *testing.T) {
	measured := timeline.Run{Name: "measured on cpu"}
	for i, took := range []float64{3e-3, 1e-3, 2e-3} {
		at := float64(i)
		s := timeline.Step{Name: "1 token"}
		for rank := range 2 {
			s.Events = append(s.Events,
				exec.Event{Rank: rank, Name: "a", Op: "matmul", Kind: lowering.Launch, Start: at, End: at + took/2},
				exec.Event{Rank: rank, Name: "b", Op: "all_reduce", Kind: lowering.Collective, Stream: lowering.Comm, Start: at + took/2, End: at + took})
		}
		measured.Steps = append(measured.Steps, s)
	}
	predicted := timeline.Run{Name: "predicted for a100", Steps: measured.Steps[:1]}
	var text bytes.Buffer
	if err := timeline.Trace(&text, []timeline.Run{measured, predicted}); err != nil {
		t.Fatal(err)
	}
	got, err := timeline.ReadMeasured(&text)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != measured.Name || len(got.Steps) != 3 || !slices.Equal(got.Kinds(), []string{"1 token"}) || got.Median("2 tokens") != nil {
		t.Fatalf("read is %+v", got)
	}
	for i, e := range got.Median("1 token").Events {
		want := measured.Steps[2].Events[[]int{0, 1, 2, 3}[i]]
		if e.Rank != want.Rank || e.Name != want.Name || e.Kind != want.Kind || e.Stream != want.Stream || math.Abs(e.End-want.End) > 1e-9 {
			t.Errorf("event %d is %+v, want %+v", i, e, want)
		}
	}
	for _, bad := range []string{"", "[]", `{"traceEvents":[]}`, `{"traceEvents":[{"name":"process_name","pid":1,"args":{"name":"rank 0, measured on cpu"}},{"name":"a","ph":"X","pid":1,"tid":2,"ts":1,"dur":1,"cat":"matmul"}]}`} {
		if _, err := timeline.ReadMeasured(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read without an error", bad)
		}
	}
}

func svgOf(t *testing.T, runs []timeline.Run) string {
	t.Helper()
	var out strings.Builder
	if err := timeline.SVG(&out, runs); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
