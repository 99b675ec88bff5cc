package timeline

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/fonts"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/visualize"
	"github.com/krait-ml/krait/visualize/svg"
)

// The picture, in points.
const (
	width = 1400
	lane  = 16 // height of a stream
	gap   = 8  // between ranks
	grey  = "#666666"
)

// colours are those of explain's page.
var colours = map[string]string{"multiply": "#4c7fd0", "mix": "#3f9d6b", "other": "#a3a8b3", "collective": "#e07b1f", "relayout": "#c9a227", "wait": "#ececec"}

var meanings = [][2]string{{"multiply", "products with weights"}, {"mix", "mixes tokens"}, {"other", "other kernels"}, {"collective", "collectives"}, {"relayout", "another layout"}, {"wait", "waits"}}

// SVG draws the first step, and the median one of the most frequent kind: for each rank a row per
// run, on one scale.
func SVG(w io.Writer, runs []Run) error {
	d := &drawing{Canvas: svg.Canvas{Size: 11}, runs: runs, ranks: ranksOf(runs), y: 14}
	for _, r := range runs {
		d.gutter = max(d.gutter, 28+fonts.Width(rowName(d.ranks, r.Name), 11, false))
	}
	d.legend()
	if len(runs) > 0 {
		for _, i := range typicalSteps(&runs[0]) {
			d.panel(i)
		}
	}
	_, err := w.Write(d.Document(width, d.y))
	return err
}

// typicalSteps returns the indices of the steps to draw.
func typicalSteps(r *Run) []int {
	if len(r.Steps) == 0 {
		return nil
	}
	often := map[string][]int{}
	most := ""
	for i, s := range r.Steps {
		if often[s.Name] = append(often[s.Name], i); most == "" || len(often[s.Name]) > len(often[most]) {
			most = s.Name
		}
	}
	took := func(i int) float64 { from, to := r.Steps[i].Bounds(); return to - from }
	list := often[most]
	slices.SortFunc(list, func(a, b int) int { return cmp.Compare(took(a), took(b)) })
	middle := list[(len(list)-1)/2]
	if r.Steps[0].Name == most {
		return []int{middle}
	}
	return []int{0, middle}
}

// drawing builds the picture; y is the top of the next row.
type drawing struct {
	svg.Canvas
	runs   []Run
	ranks  int
	gutter float64 // width of the names of rows
	y      float64
}

// rowName returns the name of a row.
func rowName(rank int, run string) string { return fmt.Sprintf("rank %d, %s", rank, run) }

func (d *drawing) legend() {
	x := 14.0
	for _, m := range meanings {
		d.Rect(x, d.y, 10, 10, colours[m[0]], "", "rx", 2)
		d.Text(x+14, d.y+9, m[1], "fill", grey)
		x += 34 + fonts.Width(m[1], 11, false)
	}
	d.y += 30
}

// panel draws a step of all runs.
func (d *drawing) panel(i int) {
	title, longest := fmt.Sprintf("step %d, %s:", i+1, d.runs[0].Steps[i].Name), 0.0
	for _, r := range d.runs {
		if i < len(r.Steps) {
			from, to := r.Steps[i].Bounds()
			longest = max(longest, to-from)
			title += fmt.Sprintf(" %s %s,", r.Name, Seconds(to-from))
		}
	}
	d.Text(14, d.y, strings.TrimSuffix(title, ","), "font-size", 13, "font-weight", "bold")
	d.y += 12
	x := func(t float64) float64 { return d.gutter + t/max(longest, 1e-12)*(width-d.gutter-14) }
	top := d.y
	d.y += 16
	for rank := range d.ranks {
		for k := range d.runs {
			if r := &d.runs[k]; i < len(r.Steps) {
				d.rows(&r.Steps[i], rank, rowName(rank, r.Name), x)
			}
		}
		d.y += gap
	}
	d.axis(top, d.y, longest, x)
	d.y += 24
}

// axis draws a line for each of four to ten round times.
func (d *drawing) axis(top, bottom, longest float64, x func(float64) float64) {
	for _, t := range svg.Linear(0, longest).Ticks() {
		if t > longest {
			return
		}
		d.Path(fmt.Sprintf("M%.1f %.1fV%.1f", x(t), top, bottom), "#000000", "stroke-opacity", ".12")
		at, label, anchor := x(t)+3, Seconds(t), "start"
		if at+fonts.Width(label, 10, false) > width {
			at, anchor = x(t)-3, "end"
		}
		d.Text(at, top+9, label, "fill", grey, "font-size", 10, "text-anchor", anchor)
	}
}

// rows draws the streams of a rank.
func (d *drawing) rows(s *Step, rank int, name string, x func(float64) float64) {
	from, _ := s.Bounds()
	d.Text(14, d.y+11, name)
	for _, stream := range streams {
		var list []exec.Event
		for _, e := range s.Events {
			if e.Rank == rank && e.Stream == stream {
				list = append(list, e)
			}
		}
		if stream == lowering.Comm && len(list) == 0 {
			continue
		}
		d.Rect(d.gutter, d.y, width-d.gutter-14, lane-2, "#f6f6f4", "")
		d.events(list, from, x)
		d.y += lane
	}
}

// events draws the events of a stream. Neighbours too narrow to distinguish are merged.
func (d *drawing) events(list []exec.Event, from float64, x func(float64) float64) {
	const narrow = 0.6
	for i := 0; i < len(list); {
		e := list[i]
		kind, left, right := kindOf(&e), x(e.Start-from), x(e.End-from)
		j, text := i+1, fmt.Sprintf("%s (%s), %s", e.Name, cmp.Or(e.Op, "waits"), Seconds(e.End-e.Start))
		if e.Bytes > 0 {
			text += fmt.Sprintf(", %d bytes", e.Bytes)
		}
		for ; j < len(list) && right-left < narrow && kindOf(&list[j]) == kind && x(list[j].Start-from)-right < narrow/2; j++ {
			right = x(list[j].End - from)
			text = fmt.Sprintf("%s and %d more", e.Name, j-i)
		}
		d.Rect(left, d.y, max(right-left, 0.15), lane-2, colours[kind], text)
		if label := local(e.Name); j == i+1 && right-left > fonts.Width(label, 10, false)+6 {
			d.Text(left+3, d.y+10.5, label, "fill", "#ffffff", "font-size", 10)
		}
		i = j
	}
}

func local(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func kindOf(e *exec.Event) string {
	switch e.Kind {
	case lowering.Collective:
		return "collective"
	case lowering.Relayout:
		return "relayout"
	case lowering.Wait:
		return "wait"
	}
	return visualize.Work(e.Op)
}

// Seconds writes a time with three digits.
func Seconds(s float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}} {
		if s >= u.size*0.9995 {
			return fmt.Sprintf("%.3g %s", s/u.size, u.name)
		}
	}
	if s == 0 {
		return "0"
	}
	return fmt.Sprintf("%.3g ns", s*1e9)
}
