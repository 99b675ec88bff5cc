package visualize

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
)

const dashed, thick = `style="rounded,filled,dashed"`, `penwidth="4"`

// TestHighlight: a pattern frames what it matches by name or operation, in kinds of blocks too, and
// one that matches nothing is an error.
func TestHighlight(t *testing.T) {
	g := blocks(t, "ssss")
	for pattern, want := range map[string]int{"silu": 1, `layers\.2\.act$`: 1, "": 3, `act$|\.y$`: 2} {
		o := Options{Highlight: regexp.MustCompile(pattern)}
		if got := strings.Count(drawGraph(t, g, o), thick); got != want {
			t.Errorf("%q frames %d boxes, want %d", pattern, got, want)
		}
	}
	if got := strings.Count(drawGraph(t, g, Options{Unfolded: true, Highlight: regexp.MustCompile("silu")}), thick); got != 4 {
		t.Errorf("unfolded, silu frames %d boxes, want 4", got)
	}
	s := modelsOf(t, "mamba-130m")[1].schedule
	for _, c := range []struct {
		o    Options
		want int
	}{{Options{}, 1}, {Options{Detail: Blocks}, 1}, {Options{Unfolded: true}, 1}} { // layers.7 is of the kind of layers.1
		c.o.Highlight = regexp.MustCompile(`^layers\.7\.mixer\.scan$`)
		if got := strings.Count(scheduleText(t, s, c.o), thick); got != c.want {
			t.Errorf("%+v: %d boxes of a schedule are framed, want %d", c.o, got, c.want)
		}
	}
	if err := Schedule(new(bytes.Buffer), s, Options{Highlight: regexp.MustCompile("tanh")}); err == nil {
		t.Error("a pattern that matches nothing of a schedule is no error")
	}
	if err := Dot(new(bytes.Buffer), g, Options{Highlight: regexp.MustCompile("tanh")}); err == nil || !strings.Contains(err.Error(), `matches "tanh"`) {
		t.Errorf("a pattern that matches nothing gives %v", err)
	}
}

// TestDifferences: a kind of block has dashed frames around what the first kind of its letter does
// not have.
func TestDifferences(t *testing.T) {
	text := drawGraph(t, blocks(t, "sssr"), Options{})
	if got := strings.Count(text, dashed); got != 1 || !strings.Contains(text, "dashed frame") {
		t.Errorf("%d boxes differ, want 1: relu in place of silu, in\n%s", got, text)
	}
	if got := strings.Count(drawGraph(t, blocks(t, "ssss"), Options{}), dashed); got != 0 {
		t.Errorf("%d boxes of equal blocks differ", got)
	}
}

// TestCompare: two strategies are side by side, and differ in their collectives; a graph does not
// differ from itself.
func TestCompare(t *testing.T) {
	m := modelsOf(t, "mamba-130m")
	side := func(strategy string) Side {
		s, err := passes.FindStrategy(strategy)
		if err != nil {
			t.Fatal(err)
		}
		g, err := passes.Compile(m[0].graph, passes.Options{Ranks: 8, Strategy: s, Stop: graph.PartitionedStage})
		if err != nil {
			t.Fatal(err)
		}
		return Side{strategy, g}
	}
	draw := func(a, b Side) string {
		var out bytes.Buffer
		if err := Compare(&out, a, b, Options{}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	channel, sequence := side("channel"), side("sequence")
	if text := draw(channel, channel); strings.Contains(text, "dashed") {
		t.Error("a graph differs from itself")
	}
	text := draw(channel, sequence)
	for _, want := range []string{"channel and sequence", `style="filled,dashed"`, dashed, "<b>reduce_scatter</b>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the comparison", want)
		}
	}
	explained(t, "comparison", text)
}

// TestRank: types are those of a rank's shard.
func TestRank(t *testing.T) {
	g := modelsOf(t, "mamba-130m")[1].graph
	whole, local := drawGraph(t, g, Options{}), drawGraph(t, g, Options{Local: true, Rank: 3})
	if !strings.Contains(whole, "f32[t ÷1536/1]") || strings.Contains(whole, "f32[t 192/1]") {
		t.Error("without a rank the split axis has no ÷")
	}
	if !strings.Contains(local, "f32[t 192/1]") || strings.Contains(local, "1536") || !strings.Contains(local, "what rank 3 holds") {
		t.Error("a rank has types of all")
	}
}

// TestDark: the dark variant has no colour of the light one, and is the same otherwise.
func TestDark(t *testing.T) {
	colours := regexp.MustCompile(`"#[0-9a-f]{6}"`)
	for _, m := range modelsOf(t, "zamba2-1.2b") {
		light, dark := m.draw(t, Options{}), m.draw(t, Options{Dark: true})
		for name, text := range light {
			used := colours.FindAllString(text, -1)
			for _, c := range colours.FindAllString(dark[name], -1) {
				if slices.Contains(used, c) {
					t.Fatalf("%s: the dark variant has %s", name, c)
				}
			}
			if colours.ReplaceAllString(text, "") != colours.ReplaceAllString(dark[name], "") {
				t.Errorf("%s: the variants differ in more than colours", name)
			}
		}
	}
}

// TestStates: the states of an operation are below it.
func TestStates(t *testing.T) {
	var l label
	l.line("scan", "", textSize, true)
	l.states = append(l.states, oneLine("ssm", "", noteSize, true))
	if html := string(l.html()); strings.Index(html, "scan") > strings.Index(html, "ssm") || strings.Count(html, colourOf("state").fill) != 1 {
		t.Errorf("the state is not below the operation in %s", html)
	}
}
