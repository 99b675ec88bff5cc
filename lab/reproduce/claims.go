package reproduce

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// claim is a figure of the paper, with how it is simulated.
type claim struct {
	Leaf      string    // path in the list of claims; + marks additions to that list
	Where     string    // in the paper
	Published []float64 // a number, or the ends of a range; none: no number is given
	Says      string    // the published text, if it is no number
	Unit      string    // %, tokens, ms
	Measure   string    // name of the simulation; empty: none
	Machine   string    // A6000 or A100; empty: both
	Models    []string
	GPUs      int
	Over      string // 1x or DP
	In, Out   int    // tokens; 0: the whole grid
	Step      string // of the ablation
	Why       string // the reason for the difference, or for simulating nothing

	corners bool // of the grid alone
}

//go:embed claims.json
var claimsFile []byte

func readClaims() ([]claim, error) {
	var list []claim
	d := json.NewDecoder(bytes.NewReader(claimsFile))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("claims.json: %w", err)
	}
	for i := range list {
		c := &list[i]
		if _, known := measures[c.Measure]; c.Measure != "" && !known {
			return nil, fmt.Errorf("claims.json: %s: there is no measure %q", c.Leaf, c.Measure)
		}
		if c.Why == "" || len(c.Published) > 2 || len(c.Published) == 0 && c.Says == "" {
			return nil, fmt.Errorf("claims.json: %s: it has no figure, or no reason", c.Leaf)
		}
	}
	return list, nil
}

func (c *claim) span() span { return span{slices.Min(c.Published), slices.Max(c.Published)} }

// part reports whether the claim belongs to a figure and is none.
func (c *claim) part() bool { return strings.HasPrefix(c.Leaf, "+") }

// models returns the claim's models; all if it names none.
func (c *claim) models() (list []*model) {
	for i := range evaluated {
		if m := &evaluated[i]; c.Models == nil || slices.Contains(c.Models, m.name) {
			list = append(list, m)
		}
	}
	return list
}

// on returns the profiles of the claim's machines.
func (c *claim) on() (list []string) {
	for _, m := range machines {
		if c.Machine == "" || c.Machine == m.name {
			list = append(list, m.profile)
		}
	}
	return list
}

// points returns the claim's points of a model's grid.
func (c *claim) points(m *model) []point {
	grid := m.grid()
	if c.corners && c.In == 0 {
		grid = m.corners()
	}
	return slices.DeleteFunc(grid, func(p point) bool { return c.In != 0 && p.in != c.In || c.Out != 0 && p.out != c.Out })
}
