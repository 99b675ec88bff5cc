package reproduce

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// assumption is a quantity that the paper leaves open or a profile assumes, and the values that are
// tried in its place, the simulated one first. All else stays as it is.
type assumption struct {
	name   string
	format string
	values []float64
	set    func(x *instead, value float64)
}

var assumptions = []assumption{
	{"kernels", "×%g", []float64{1, 1.5, 2, 3, 4, 6, 8}, func(x *instead, v float64) { x.kernels = v }},
	{"prompts' kernels", "×%g", []float64{1, 2, 3, 4, 8}, func(x *instead, v float64) { x.prompts = v }},
	{"steps' kernels", "×%g", []float64{1, 2, 3, 4, 8}, func(x *instead, v float64) { x.steps = v }},
	{"launch", "%g µs", []float64{0, 10, 20, 50, 100}, func(x *instead, v float64) { x.launch = v * 1e-6 }},
	{"memory", "%g %%", []float64{100, 75, 50, 40}, func(x *instead, v float64) { x.memory = v / 100 }},
	{"bandwidth", "×%g", []float64{1, 0.5, 0.25, 0.125, 0.0625}, func(x *instead, v float64) { x.bandwidth = v }},
	{"latency", "×%g", []float64{1, 3, 10, 30}, func(x *instead, v float64) { x.latency = v }},
	{"batch", "%g", []float64{0, 1, 4, 16, 64, 256}, func(x *instead, v float64) { x.batch = int(v) }},
	{"replicas", "%g %%", []float64{100, 90, 80, 70, 60, 50}, func(x *instead, v float64) { x.replicas = v / 100 }},
}

// text writes a value; the first is what is simulated above.
func (a *assumption) text(i int) string { return fmt.Sprintf(a.format, a.values[i]) }

// Trial is a figure under one value of one assumption: the simulated range, and how far it is
// outside of the published one.
type Trial struct {
	Value     string `json:"value"`
	Simulated string `json:"simulated"`
	// Outside is in points, and of times in percent of the published one.
	Outside float64 `json:"outside"`
}

// Sensitivity is a figure under every value of every assumption.
type Sensitivity struct {
	Claim   string    `json:"claim"`
	Machine string    `json:"machine"` // empty: both
	Near    float64   `json:"near"`    // what counts as explained: so far outside at most
	Trials  [][]Trial `json:"trials"`  // by assumption, in the order of its values
}

// sensitive reports whether a figure depends on rates, so that assumptions could explain it.
func (c *claim) sensitive() bool {
	return c.Published != nil && slices.Contains([]string{"gain", "ttft", "fp16", "ablation"}, c.Measure)
}

// near is how far outside a figure may be to count as explained: 15 points or percent, and 3 points
// where a figure is a few.
func (c *claim) near() float64 {
	if c.Measure == "fp16" {
		return 3
	}
	return 15
}

//go:embed sensitivity.md
var sensitivityIntro string

// Assume simulates the figures that depend on rates under each assumption by itself, at the
// corners of the grid. Progress gets how many are done; it may be nil.
func (r *Report) Assume(ctx context.Context, progress func(done, all int)) error {
	claims, err := readClaims()
	if err != nil {
		return err
	}
	claims = slices.DeleteFunc(claims, func(c claim) bool { return !c.sensitive() })
	out := make([]Sensitivity, len(claims))
	for i := range claims {
		if err := ctx.Err(); err != nil {
			return err
		}
		if out[i], err = r.lab.sensitivity(&claims[i]); err != nil {
			return fmt.Errorf("%s: %w", claims[i].Leaf, err)
		}
		if progress != nil {
			progress(i+1, len(claims))
		}
	}
	r.Sensitive = out
	return nil
}

// sensitivity simulates one figure under each assumption.
func (l *lab) sensitivity(c *claim) (Sensitivity, error) {
	s := Sensitivity{Claim: c.Leaf, Machine: c.Machine, Near: c.near()}
	c.corners = true
	for a := range assumptions {
		var list []Trial
		for i := range assumptions[a].values {
			t, err := l.trial(c, &assumptions[a], i)
			if err != nil {
				return s, err
			}
			list = append(list, t)
		}
		s.Trials = append(s.Trials, list)
	}
	return s, nil
}

// trial simulates a figure under a value of an assumption.
func (l *lab) trial(c *claim, a *assumption, value int) (Trial, error) {
	l.assume = instead{}
	if value > 0 {
		a.set(&l.assume, a.values[value])
	}
	m, err := measures[c.Measure](l, c)
	if errors.Is(err, errNoRoom) {
		return Trial{Value: a.text(value), Simulated: "no room", Outside: math.MaxFloat32}, nil
	}
	t := Trial{Value: a.text(value), Simulated: rangeText(m.span, c.Unit), Outside: m.outside(c.span())}
	if c.Unit == "ms" {
		t.Outside *= 100 / c.span().lo
	}
	return t, err
}

// explains reports whether a value of an assumption brings the figure near.
func (s *Sensitivity) explains(assumption, value int) bool {
	return math.Abs(s.Trials[assumption][value].Outside) <= s.Near
}

// cell says for which values of an assumption the figure is near the published one: those inside in
// bold; if there are none, how far outside the nearest is.
func (s *Sensitivity) cell(assumption int) string {
	var list []string
	nearest := 0
	for i, t := range s.Trials[assumption] {
		switch {
		case i > 0 && t.Outside == 0:
			list = append(list, "**"+t.Value+"**")
		case i > 0 && s.explains(assumption, i):
			list = append(list, t.Value)
		}
		if math.Abs(t.Outside) < math.Abs(s.Trials[assumption][nearest].Outside) {
			nearest = i
		}
	}
	switch {
	case list != nil:
		return strings.Join(list, ", ")
	case s.explains(assumption, 0):
		return "–"
	}
	return fmt.Sprintf("%+.0f", s.Trials[assumption][nearest].Outside)
}

// row is the figure in the table.
func (s *Sensitivity) row() string {
	cells := []string{s.Claim, fmt.Sprintf("%s (%+.0f)", s.Trials[0][0].Simulated, s.Trials[0][0].Outside)}
	for a := range assumptions {
		cells = append(cells, s.cell(a))
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// sensitivities writes the page: a table with a figure per row, what a value brings near on each
// machine, and what brings the same figure near on both.
func sensitivities(list []Sensitivity) string {
	var b strings.Builder
	b.WriteString(sensitivityIntro)
	names := []string{"figure", "as simulated"}
	for _, a := range assumptions {
		names = append(names, a.name)
	}
	fmt.Fprintf(&b, "\n| %s |\n|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for i := range list {
		b.WriteString(list[i].row())
	}
	counts(&b, list)
	twins(&b, list)
	return b.String()
}

// counts writes how many figures of each machine each value brings near.
func counts(b *strings.Builder, list []Sensitivity) {
	b.WriteString("\n## Is there one that explains all figures?\n\nHow many figures of each machine, without the parts marked with a +, are near under one value:\n\n| assumption | value | A6000 | A100 |\n|---|---|---|---|\n")
	all := map[string]bool{}
	for a := range assumptions {
		for v := range assumptions[a].values {
			cells := []string{assumptions[a].name, assumptions[a].text(v)}
			switch {
			case v == 0 && a == 0:
				cells = []string{"none: as simulated", ""}
			case v == 0:
				continue
			}
			for _, m := range machines {
				near, of := count(list, m.name, a, v)
				cells = append(cells, fmt.Sprintf("%d of %d", near, of))
				all[m.name] = all[m.name] || near == of
			}
			fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	b.WriteString("\n")
	for _, m := range machines {
		says := "No value of a single assumption explains"
		if all[m.name] {
			says = "One explains"
		}
		fmt.Fprintf(b, "%s all figures of the %s.\n", says, m.name)
	}
}

// count counts the figures of a machine that a value of an assumption brings near, without those
// that are part of another.
func count(list []Sensitivity, machine string, assumption, value int) (near, all int) {
	for i := range list {
		if s := &list[i]; s.Machine == machine && !strings.HasPrefix(s.Claim, "+") {
			all++
			if s.explains(assumption, value) {
				near++
			}
		}
	}
	return near, all
}

// twins writes which values bring the same figure near on both machines.
func twins(b *strings.Builder, list []Sensitivity) {
	b.WriteString("\n## Is there one that explains the same figure of both machines?\n\n| figure | near on the A6000 with | near on the A100 with | on both |\n|---|---|---|---|\n")
	for i := range list {
		s := &list[i]
		claim := strings.Replace(s.Claim, ".A6000", ".A100", 1)
		j := slices.IndexFunc(list, func(t Sensitivity) bool { return t.Claim == claim })
		if claim == s.Claim || j < 0 {
			continue
		}
		t := &list[j]
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", strings.Replace(s.Claim, ".A6000", "", 1), explained(s), explained(t), explained(s, t))
	}
}

// explained writes the assumptions with the values that bring all of some figures near; if none is
// needed, only that.
func explained(figures ...*Sensitivity) string {
	near := func(a, v int) bool {
		return !slices.ContainsFunc(figures, func(s *Sensitivity) bool { return !s.explains(a, v) })
	}
	if near(0, 0) {
		return "as simulated"
	}
	var list []string
	for a := range assumptions {
		var values []string
		for v := range assumptions[a].values {
			if v > 0 && near(a, v) {
				values = append(values, assumptions[a].text(v))
			}
		}
		if values != nil {
			list = append(list, assumptions[a].name+" "+strings.Join(values, ", "))
		}
	}
	return cmp.Or(strings.Join(list, "; "), "–")
}
