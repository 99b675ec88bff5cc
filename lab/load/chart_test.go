package load

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestSVG: there is a point for each load that has both numbers, in its place, and names from a
// server do no harm.
func TestSVG(t *testing.T) {
	user := func(v float64) *float64 { return &v }
	r := &Report{Model: "<b>&\x00\x1b\xff", Ranks: 2, Loads: []Result{
		{Load: Load{Concurrency: 1}, PerRank: 50, PerUser: user(100)},
		{Load: Load{Concurrency: 2}},
		{Load: Load{Rate: 0.5}, PerRank: 100, PerUser: user(25)},
	}}
	for _, r := range []*Report{r, {}} {
		d := xml.NewDecoder(strings.NewReader(string(r.SVG())))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v: %s", err, r.SVG())
			}
		}
	}
	text := string(r.SVG())
	// The axes end at 100 each: the plot is 520 wide from 72 on, and 320 high from 40 on.
	for _, want := range []string{`<circle cx="592.0" cy="200.0"`, `<circle cx="202.0" cy="40.0"`, ">1 at once<", ">0.5 per second<", "&lt;b&gt;&amp;\ufffd\ufffd\ufffd, 2 ranks"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if n := strings.Count(text, "<circle"); n != 2 {
		t.Errorf("%d points", n)
	}
}

// TestSVGWithoutRanks: where the server does not say its ranks, the drawing names none.
func TestSVGWithoutRanks(t *testing.T) {
	user := 25.0
	r := &Report{Model: "m", Loads: []Result{{Load: Load{Concurrency: 1}, TokensPerSecond: 100, PerUser: &user}}}
	text := string(r.SVG())
	if strings.Contains(text, "rank") || !strings.Contains(text, ">m<") || !strings.Contains(text, `cy="40.0"`) {
		t.Errorf("%s", text)
	}
}

// TestPercentiles: they are times that were measured.
func TestPercentiles(t *testing.T) {
	for n := 1; n <= 200; n++ {
		var x []float64
		for i := range n {
			x = append(x, float64((i*7919+3)%n)) // 7919 is a prime above all n: each of 0 to n-1 once
		}
		got := Percentiles(x)
		for p, v := range map[int]float64{50: got.P50, 95: got.P95, 99: got.P99, 100: got.Most} {
			if want := float64((n*p+99)/100 - 1); v != want {
				t.Errorf("%d %% of %d: %g, want %g", p, n, v, want)
			}
		}
	}
	if Percentiles(nil) != nil {
		t.Error("of nothing there are some")
	}
}
