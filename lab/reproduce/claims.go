package reproduce

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
)

// claim is a figure of the paper, and what is simulated beside it.
type claim struct {
	Leaf      string    // its place in the list of claims; what the list lacked begins with +
	Where     string    // in the paper
	Published []float64 // a number, or the ends of a range; none: no number is given
	Says      string    // what is published, where that is no number
	Unit      string    // %, tokens, ms
	Measure   string    // how it is simulated; empty: it is not
	Machine   string    // A6000 or A100; empty: both
	Models    []string
	GPUs      int
	Over      string // 1x or DP
	In, Out   int    // tokens; 0: the whole grid
	Step      string // of the ablation
	Why       string // the reason for the difference, or for simulating nothing
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

// models are those that the claim is about; all, where it names none.
func (c *claim) models() (list []*model) {
	for i := range evaluated {
		if m := &evaluated[i]; c.Models == nil || slices.Contains(c.Models, m.name) {
			list = append(list, m)
		}
	}
	return list
}

// on are the profiles of the claim's machines.
func (c *claim) on() (list []string) {
	for _, m := range machines {
		if c.Machine == "" || c.Machine == m.name {
			list = append(list, m.profile)
		}
	}
	return list
}

// points are those of a model's grid that the claim is about.
func (c *claim) points(m *model) []point {
	return slices.DeleteFunc(m.grid(), func(p point) bool { return c.In != 0 && p.in != c.In || c.Out != 0 && p.out != c.Out })
}
