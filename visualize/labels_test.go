package visualize

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/fonts"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// TestLabels: in drawings of goldens, with KRAIT_TEST_ALL of all, no label leaves its box, no arrow
// crosses one, and no two overlap, in the widest font that stands in for Helvetica. Graphviz lays
// them out with what it has.
func TestLabels(t *testing.T) {
	path, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("NOT TESTED: there is no dot of Graphviz, so places of labels are not known")
	}
	goldens, err := filepath.Glob("../testdata/golden/*/config.json")
	if err != nil || len(goldens) < 10 {
		t.Fatalf("%d goldens, %v", len(goldens), err)
	}
	drawn := covering.Drawn(t, goldens)
	for i, file := range goldens {
		if !slices.Contains(drawn, file) {
			continue
		}
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			for what, text := range drawings(t, dir, i) {
				placed(t, path, what, text)
			}
		})
	}
}

// drawings are some of a golden: their number bounds what Graphviz takes.
func drawings(t *testing.T, dir string, i int) map[string]string {
	t.Helper()
	_, g, err := checkpoint.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	detail := Detail(i % 3)
	out := map[string]string{fmt.Sprint("graph, detail ", detail): drawGraph(t, g, Options{Detail: detail})}
	split, err := passes.Compile(g, passes.Options{Ranks: 8, Stop: graph.PartitionedStage})
	if err != nil {
		t.Fatal(err)
	}
	out["partitioned"] = drawGraph(t, split, Options{Dark: true})
	fused, err := passes.Compile(g, passes.Options{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	detail = Detail((i + 1) % 3)
	out[fmt.Sprint("fused, detail ", detail)] = drawGraph(t, fused, Options{Detail: detail})
	schedules, err := lowering.Lower(fused)
	if err != nil {
		t.Fatal(err)
	}
	detail = Detail((i + 2) % 3)
	out[fmt.Sprint("schedule, detail ", detail)] = scheduleText(t, schedules[0], Options{Detail: detail})
	return out
}

// placed checks a drawing as Graphviz lays it out.
func placed(t *testing.T, path, what, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, path, "-Tsvg")
	run.Stdin = strings.NewReader(text)
	var said strings.Builder
	run.Stderr = &said
	svg, err := run.Output()
	if err != nil || said.Len() > 0 {
		t.Fatalf("%s: dot: %v %s", what, err, said.String())
	}
	labels := labelsOf(t, string(svg))
	if len(labels) < 10 {
		t.Fatalf("%s has %d labels", what, len(labels))
	}
	for i, l := range labels {
		if l.node && !l.within(l.box) {
			t.Errorf("%s: %q leaves its box by %.1f points", what, l.text, max(l.box.left-l.left, l.right-l.box.right))
		}
		for _, m := range labels[:i] {
			if l.overlaps(m.rect) {
				t.Errorf("%s: %q and %q overlap", what, m.text, l.text)
			}
		}
	}
	for _, a := range arrowsOf(t, string(svg)) {
		for _, l := range labels {
			if crossed(l.rect, a) {
				t.Errorf("%s: an arrow crosses %q", what, l.text)
			}
		}
	}
}

var arrowPath = regexp.MustCompile(`<g id="edge\d+" class="edge">\s*<title>[^<]*</title>\s*<path [^>]*d="([^"]*)"`)

// arrowsOf returns the corners of the arrows' lines. A polyline is written as curves whose middle
// points lie on straight lines.
func arrowsOf(t *testing.T, svg string) (out [][]float64) {
	t.Helper()
	for _, m := range arrowPath.FindAllStringSubmatch(svg, -1) {
		var points []float64
		for _, text := range strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune("MC, ", r) }) {
			points = append(points, number64(t, text))
		}
		out = append(out, points)
	}
	return out
}

// crossed reports whether a line meets a rectangle, looked at every few points.
func crossed(r rect, points []float64) bool {
	for i := 0; i+3 < len(points); i += 2 {
		x, y, dx, dy := points[i], points[i+1], points[i+2]-points[i], points[i+3]-points[i+1]
		n := math.Ceil(math.Hypot(dx, dy) / 2)
		for k := range int(n) {
			if x, y := x+dx*float64(k)/n, y+dy*float64(k)/n; x > r.left && x < r.right && y > r.top && y < r.bottom {
				return true
			}
		}
	}
	return false
}

type rect struct{ left, right, top, bottom float64 }

func (r rect) within(s rect) bool {
	return r.left >= s.left && r.right <= s.right && r.top >= s.top && r.bottom <= s.bottom
}

func (r rect) overlaps(s rect) bool {
	return r.left < s.right && s.left < r.right && r.top < s.bottom && s.top < r.bottom
}

// grown has the point, too.
func (r rect) grown(x, y float64) rect {
	return rect{min(r.left, x), max(r.right, x), min(r.top, y), max(r.bottom, y)}
}

var nowhere = rect{math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)}

// placedLabel is a line of text. Of a node with a frame there is the frame.
type placedLabel struct {
	rect
	text string
	node bool
	box  rect
}

// labelsOf reads the SVG of Graphviz: groups of shapes and texts.
func labelsOf(t *testing.T, svg string) []placedLabel {
	t.Helper()
	var out []placedLabel
	first, box := 0, nowhere // of the group
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			attr := map[string]string{}
			for _, a := range x.Attr {
				attr[a.Name.Local] = a.Value
			}
			switch x.Name.Local {
			case "g":
				first, box = len(out), nowhere
			case "path", "polygon":
				box = pointsOf(t, attr["d"]+attr["points"], box)
			case "text":
				out = append(out, labelOf(t, d, attr))
			}
		case xml.EndElement:
			for i := first; i < len(out) && x.Name.Local == "g" && box != nowhere; i++ {
				out[i].node, out[i].box = true, box
			}
			if x.Name.Local == "g" {
				first = len(out)
			}
		}
	}
}

// pointsOf grows a box by the points of a path.
func pointsOf(t *testing.T, text string, box rect) rect {
	t.Helper()
	list := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("MLCZz, ", r) })
	for i := 0; i+1 < len(list); i += 2 {
		box = box.grown(number64(t, list[i]), number64(t, list[i+1]))
	}
	return box
}

func number64(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// labelOf is a text in the widest font; what is above and below its letters is left out.
func labelOf(t *testing.T, d *xml.Decoder, attr map[string]string) placedLabel {
	t.Helper()
	token, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}
	data, _ := token.(xml.CharData)
	text, size := string(data), number64(t, attr["font-size"])
	x, y, width := number64(t, attr["x"]), number64(t, attr["y"]), fonts.Width(string(data), size, attr["font-weight"] == "bold")
	switch attr["text-anchor"] {
	case "middle":
		x -= width / 2
	case "end":
		x -= width
	}
	return placedLabel{rect: rect{x, x + width, y - 0.7*size, y + 0.1*size}, text: text}
}

// TestOwnRecurrence: the letter of a block and the colour of an operation follow from its states.
func TestOwnRecurrence(t *testing.T) {
	op := graph.RegisterOp(graph.Op{Name: "test_own_recurrence", Doc: "of a test", Rule: graph.MustParseRule("t! c!, s! c! -> t! c!, s! c!"), Operands: "as",
		States: []graph.StatePair{{Operand: 1, Result: 1, Kind: graph.SSMState}}})
	if got := Letter([]string{"matmul", op.Name}); got != "M" {
		t.Errorf("a block that keeps a state has the letter %s", got)
	}
	if got := Letter([]string{"attention", op.Name}); got != "H" {
		t.Errorf("with attention it has the letter %s", got)
	}
	if got := Letter([]string{"matmul", "conv1d"}); got != "C" {
		t.Errorf("a block with the state of a convolution only has the letter %s", got)
	}
	if got := Work(op.Name); got != "mix" {
		t.Errorf("its work is %s", got)
	}
}

// TestDifference: kinds of one letter say what differs.
func TestDifference(t *testing.T) {
	blockOf := func(lines ...string) *block {
		b := &block{key: strings.Join(lines, "\n") + "\n"}
		for _, line := range lines {
			b.ops = append(b.ops, strings.Fields(line)[0])
		}
		return b
	}
	first := blockOf("matmul 1", "matmul 2", "silu 3")
	for want, b := range map[string]*block{
		"with add, attention\u00a0×2; without silu": blockOf("add 0", "matmul 1", "matmul 2", "attention 3", "attention 4"),
		"without matmul": blockOf("matmul 1", "silu 3"),
		"operation 2 of 3, matmul, takes or gives other values": blockOf("matmul 1", "matmul 1", "silu 3"),
	} {
		if got := difference(first, b); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
