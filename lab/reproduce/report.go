package reproduce

import (
	"context"
	"fmt"
	"io"
)

// Line is a claim with its simulated result.
type Line struct {
	Claim      string   `json:"claim"`
	Where      string   `json:"where"`
	Published  string   `json:"published"`
	Simulated  string   `json:"simulated,omitempty"`
	Difference string   `json:"difference,omitempty"` // how far the simulated range exceeds the published one
	Reason     string   `json:"reason"`
	Beside     []string `json:"beside,omitempty"`

	published, simulated span
	claim                *claim
}

// Report is the whole evaluation.
type Report struct {
	Lines   []Line   `json:"lines"`
	Answers []Answer `json:"explained"`
	DP      []Pair   `json:"replicas"`
	Ours    []Own    `json:"krait"`
	Order   []Order  `json:"overlap"`

	Sensitive []Sensitivity `json:"sensitivity,omitempty"` // of [Report.Assume]

	lab *lab
}

// Run simulates all claims. Progress gets how many are simulated; it may be nil.
func Run(ctx context.Context, progress func(done, all int)) (*Report, error) {
	claims, err := readClaims()
	if err != nil {
		return nil, err
	}
	l := newLab()
	r := &Report{lab: l}
	for i := range claims {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		line, err := l.line(&claims[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", claims[i].Leaf, err)
		}
		r.Lines = append(r.Lines, *line)
		if progress != nil {
			progress(i+1, len(claims))
		}
	}
	if r.Answers, err = l.answers(); err != nil {
		return nil, err
	}
	r.DP = r.pairs()
	if r.Ours, err = l.own(); err != nil {
		return nil, err
	}
	r.Order, err = l.order()
	return r, err
}

func (l *lab) line(c *claim) (*Line, error) {
	x := &Line{Claim: c.Leaf, Where: c.Where, Published: c.Says, Reason: c.Why, claim: c, published: empty(), simulated: empty()}
	if c.Published != nil {
		x.published = c.span()
		x.Published = rangeText(x.published, c.Unit)
	}
	if c.Measure == "" {
		return x, nil
	}
	m, err := measures[c.Measure](l, c)
	if err != nil {
		return nil, err
	}
	x.simulated, x.Simulated, x.Beside = m.span, rangeText(m.span, c.Unit), m.also
	if c.Published != nil && m.lo <= m.hi {
		x.Difference = difference(m.outside(x.published), c.Unit)
	}
	return x, nil
}

func difference(d float64, unit string) string {
	switch {
	case d == 0:
		return "none"
	case unit == "%":
		return fmt.Sprintf("%+.1f points", d)
	case unit == "ms" || unit == "tokens":
		return fmt.Sprintf("%+.1f %s", d, unit)
	}
	return fmt.Sprintf("%+.1f", d)
}

// Text writes a line per claim, and how many come out.
func (r *Report) Text(w io.Writer) {
	for _, x := range r.Lines {
		fmt.Fprintf(w, "%s (%s): published %s", x.Claim, x.Where, x.Published)
		if x.Simulated != "" {
			fmt.Fprintf(w, "; simulated %s", x.Simulated)
		}
		if x.Difference != "" {
			fmt.Fprintf(w, "; difference %s", x.Difference)
		}
		for _, b := range x.Beside {
			fmt.Fprintf(w, "; %s", b)
		}
		fmt.Fprintf(w, ". %s.\n", x.Reason)
	}
	fmt.Fprintln(w, r.summary())
}
