package svg

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/fonts"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"a<b>&\"c\"": "a&lt;b&gt;&amp;&#34;c&#34;",
		"\x1b[31m":   "\uFFFD[31m",
		"\xff":       "\uFFFD",
		"×":          "×",
	} {
		if got := Escape(text); got != want {
			t.Errorf("Escape(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestLabels: names of points that lie together do not overlap.
func TestLabels(t *testing.T) {
	var list labels
	for i := range 20 {
		n := list.add(400+float64(i%3), 200+float64(i%2), "64 at once")
		for _, o := range list[:i] {
			if math.Abs(n.y-o.y) < 11 && n.x < o.x+o.width && o.x < n.x+n.width {
				t.Errorf("%+v and %+v", n, o)
			}
		}
	}
}

// TestLegend: the legend is beside the names of points, and all of it in the picture; a line of one
// point is a dot.
func TestLegend(t *testing.T) {
	var c Chart
	for i := range 40 {
		c.Lines = append(c.Lines, Line{Name: fmt.Sprint("line ", i), Points: []Point{{X: 1, Y: float64(i)}}})
	}
	c.Lines[3].Points[0].Name = "a long name at the right edge"
	text := string(c.SVG())
	var width, height, left, low float64
	fmt.Sscanf(text[strings.Index(text, "width="):], `width="%g" height="%g"`, &width, &height)
	last := text[:strings.Index(text, ">line 39<")]
	fmt.Sscanf(last[strings.LastIndex(last, "<text"):], `<text x="%g" y="%g"`, &left, &low)
	if low+3 > height || left < 600+fonts.Width(c.Lines[3].Points[0].Name, 11, false) || left > width || strings.Count(text, "<circle") != 40 {
		t.Errorf("a picture of %g × %g has line 39 at %g, %g: %s", width, height, left, low, text)
	}
}

// TestLinear: axes cover their numbers with little room to spare, and have four to ten steps.
func TestLinear(t *testing.T) {
	for v := 1e-6; v < 1e9; v *= 1.037 {
		for _, low := range []float64{0, -v / 3, v / 7} {
			a := Linear(low, v)
			n := float64(len(a.Ticks()) - 1)
			if a.Low > low+1e-9*v || a.High < v*(1-1e-9) || a.High-a.Low > 1.7*(v-low) || n < 3.9 || n > 12.1 {
				t.Errorf("from %g to %g the axis is %+v with %g steps", low, v, a, n)
			}
			if got := a.At(a.Ticks()[int(n)]); math.Abs(got-1) > 1e-9 {
				t.Errorf("from %g to %g the last tick is at %g", low, v, got)
			}
		}
	}
}

// TestLogarithmic: a tick per power of ten, and what is below the axis lies at its beginning.
func TestLogarithmic(t *testing.T) {
	a := Logarithmic(3, 2000)
	if got := fmt.Sprint(a.Ticks()); got != "[1 10 100 1000 10000]" {
		t.Errorf("ticks are %s", got)
	}
	if at := a.At(100); math.Abs(at-0.5) > 1e-12 || a.At(0.1) != 0 {
		t.Errorf("100 is at %g and 0.1 at %g", at, a.At(0.1))
	}
}

// TestChart: a chart is XML, puts points and categories in their places, and has room for names.
func TestChart(t *testing.T) {
	charts := []Chart{
		{Title: "<a>", X: "GB", Y: "share", Percent: true, Categories: []string{"1 GB", "2 GB"},
			Lines: []Line{{Name: "lru", Colour: "#1f5fa8", Dashes: "4 3", Points: []Point{{X: 0, Y: 0.1}, {X: 1, Y: 0.5}}}}},
		{Lines: []Line{{Colour: "#000000", Points: []Point{{X: 100, Y: 50, Name: strings.Repeat("W", 30)}}}}},
		{},
	}
	for i, wants := range [][]string{
		{"&lt;a&gt;", ">50 %<", ">2 GB<", ">lru<", `stroke-dasharray="4 3"`, `d="M202.0 296.0L462.0 40.0"`},
		{`cx="592.0" cy="40.0"`, `width="940"`}, nil,
	} {
		text := string(charts[i].SVG())
		for d := xml.NewDecoder(strings.NewReader(text)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in %s", err, text)
			}
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("chart %d has no %s: %s", i, want, text)
			}
		}
	}
}
