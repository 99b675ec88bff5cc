package visualize

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// model is a published size on a number of ranks: as a graph, as what is fused, and
// as what a rank runs.
type model struct {
	name         string
	graph, fused *graph.Graph
	schedule     *lowering.Schedule
}

func modelsOf(t *testing.T, name string) []model {
	t.Helper()
	var out []model
	for _, ranks := range []int{1, 8} {
		m := model{name: fmt.Sprintf("%s on %d", name, ranks)}
		var err error
		if m.graph, err = synth.Graph(synth.Options{Like: name}); err == nil && ranks > 1 {
			m.graph, err = passes.Compile(m.graph, passes.Options{Ranks: ranks, Stop: graph.PartitionedStage})
		}
		if err == nil {
			m.fused, err = passes.Compile(m.graph, passes.Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		schedules, err := lowering.Lower(m.fused)
		if err != nil {
			t.Fatal(err)
		}
		m.schedule = schedules[0]
		out = append(out, m)
	}
	return out
}

func drawGraph(t *testing.T, g *graph.Graph, o Options) string {
	t.Helper()
	var b strings.Builder
	if err := Dot(&b, g, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func scheduleText(t *testing.T, s *lowering.Schedule, o Options) string {
	t.Helper()
	text, err := drawSchedule(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// draw gives the pictures of a model, by name.
func (m *model) draw(t *testing.T, o Options) map[string]string {
	return map[string]string{
		m.name:                drawGraph(t, m.graph, o),
		m.name + ", fused":    drawGraph(t, m.fused, o),
		m.name + ", schedule": scheduleText(t, m.schedule, o),
	}
}

// arrowsMax bounds Graphviz's work, which grows with the arrows. A picture of 250
// takes it about a second.
const arrowsMax = 250

// painted finds the colours of boxes, arrows and text.
var painted = regexp.MustCompile(`(?:fillcolor=|[ ,\[]color=|bgcolor=)"(#[0-9a-f]{6})"`)

// Pictures of every family have few arrows, and no colour that the legend, or the
// title of a kind, does not explain.
func TestFamilies(t *testing.T) {
	names := []string{"mamba-130m", "mamba2-130m", "falcon-mamba-7b", "zamba-7b", "zamba2-1.2b", "jamba-52b", "bamba-9b", "falcon-h1-0.5b", "granite-4.0-h-tiny", "nemotron-3-nano-30b-a3b"}
	for _, name := range covering.Drawn(t, names) {
		for _, m := range modelsOf(t, name) {
			for _, detail := range []Detail{Ops, Blocks, Model} {
				for what, text := range m.draw(t, Options{Detail: detail}) {
					what = fmt.Sprintf("%s, detail %s", what, detail)
					if n := strings.Count(text, "->"); n > arrowsMax {
						t.Errorf("%s: %d arrows, at most %d are wanted", what, n, arrowsMax)
					}
					explained(t, what, text)
				}
			}
		}
	}
}

func explained(t *testing.T, what, text string) {
	t.Helper()
	_, legend, _ := strings.Cut(text, `label=<<table border="0" cellborder="0" cellspacing="4">`)
	legend, _, _ = strings.Cut(legend, "\n")
	for _, m := range painted.FindAllStringSubmatch(text, -1) {
		if c := m[1]; c != frameGrey && c != grey && c != black && c != white && !slices.Contains(kindColours, c) && !strings.Contains(legend, c) {
			t.Fatalf("%s: the colour %s is not in the legend %s", what, c, legend)
		}
	}
}

var size = regexp.MustCompile(`<svg width="(\d+)pt" height="(\d+)pt"`)

// Pictures of published sizes are below 4,000 points both ways.
func TestBounds(t *testing.T) {
	path, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("NOT TESTED: there is no dot of Graphviz, so the size of pictures is not known")
	}
	for _, name := range covering.Drawn(t, []string{"jamba-52b", "zamba-7b", "zamba2-1.2b", "nemotron-nano-9b-v2"}) {
		for _, m := range modelsOf(t, name) {
			for what, text := range m.draw(t, Options{}) {
				width, height := laidOut(t, what, path, text)
				t.Logf("%s: %d by %d points", what, width, height)
				if width > 4000 || height > 4000 {
					t.Errorf("%s: %d by %d points, at most 4,000 are wanted", what, width, height)
				}
			}
		}
	}
}

// TestBlockFitsWindow: every operation of the widest blocks is in a drawing no wider than a window
// of 1,440 pixels of 0.75 points, before fusion and after.
func TestBlockFitsWindow(t *testing.T) {
	goldens.CI(t)
	path, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("NOT TESTED: there is no dot of Graphviz, so the size of pictures is not known")
	}
	for _, which := range covering.Drawn(t, []string{"zamba2-7b layers.6", "zamba2-7b layers.2", "falcon-h1-0.5b layers.0", "qwen3-next-80b-a3b layers.0"}) {
		name, block, _ := strings.Cut(which, " ")
		for _, m := range modelsOf(t, name) {
			for _, g := range []*graph.Graph{m.graph, m.fused} {
				if width, height := laidOut(t, m.name, path, drawGraph(t, g, Options{Block: block})); width > 1080 {
					t.Errorf("%s: %s at stage %s is %d by %d points, at most 1,080 wide is wanted", m.name, block, g.Stage, width, height)
				}
			}
		}
	}
}

// laidOut lets Graphviz draw, and gives the size in points.
func laidOut(t *testing.T, what, path, text string) (width, height int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it takes a second
	defer cancel()
	run := exec.CommandContext(ctx, path, "-Tsvg")
	run.Stdin = strings.NewReader(text)
	svg, err := run.Output()
	if err != nil {
		t.Fatalf("%s: dot: %v", what, err)
	}
	m := size.FindSubmatch(svg)
	if m == nil {
		t.Fatalf("%s: dot wrote no size", what)
	}
	width, _ = strconv.Atoi(string(m[1]))
	height, _ = strconv.Atoi(string(m[2]))
	return width, height
}
