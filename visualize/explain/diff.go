package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// diff is the changes between two stages. Sections with equal changes share rows.
type diff struct {
	Pairs   [][]row `json:"pairs"`
	Of      []int   `json:"of"` // by section
	Added   int     `json:"added"`
	Removed int     `json:"removed"`
	Changed int     `json:"changed"`
	Moved   int     `json:"moved"`
}

// row is a node before, after, or both.
type row struct {
	what        change
	left, right int // -1: none
}

// change is how a row differs.
type change int

const (
	same change = iota
	changed
	removed
	added
	movedFrom // it is elsewhere on the right
	movedTo
)

// MarshalJSON writes a list.
func (r row) MarshalJSON() ([]byte, error) {
	return json.Marshal([3]int{int(r.what), r.left, r.right})
}

// compare computes the rows of each section.
func compare(a, b *sections) *diff {
	d := &diff{}
	aligned, seen := map[[4]int][]row{}, map[string]int{}
	for i := range a.nodes {
		sides := [4]int{a.of[i][0], a.of[i][1], b.of[i][0], b.of[i][1]}
		rows, ok := aligned[sides]
		if !ok {
			rows = align(a.nodes[i], b.nodes[i])
			aligned[sides] = rows
		}
		key := fmt.Sprint(sides[0], sides[2], rows)
		at, ok := seen[key]
		if !ok {
			at = len(d.Pairs)
			seen[key] = at
			d.Pairs = append(d.Pairs, rows)
		}
		d.Of = append(d.Of, at)
		for _, r := range d.Pairs[at] {
			switch r.what {
			case changed:
				d.Changed++
			case removed:
				d.Removed++
			case added:
				d.Added++
			case movedTo:
				d.Moved++
			}
		}
	}
	return d
}

// align matches two lists of nodes by name, with a longest common subsequence in order.
func align(a, b []*graph.Node) []row {
	keep := common(a, b)
	onRight, onLeft := at(b), at(a)
	var rows []row
	i, j := 0, 0
	left := func(to int) {
		for ; i < to; i++ {
			if k, ok := onRight[a[i].Name()]; ok {
				rows = append(rows, row{movedFrom, i, k})
			} else {
				rows = append(rows, row{removed, i, -1})
			}
		}
	}
	right := func(to int) {
		for ; j < to; j++ {
			if k, ok := onLeft[b[j].Name()]; ok {
				rows = append(rows, row{movedTo, k, j})
			} else {
				rows = append(rows, row{added, -1, j})
			}
		}
	}
	for _, pair := range keep {
		left(pair[0])
		right(pair[1])
		what := same
		if !equal(a[i], b[j]) {
			what = changed
		}
		rows = append(rows, row{what, i, j})
		i, j = i+1, j+1
	}
	left(len(a))
	right(len(b))
	return rows
}

// common returns a longest common subsequence of names, as pairs of indices. Names are unique, so
// it is a longest increasing sequence of indices in b.
func common(a, b []*graph.Node) [][2]int {
	place := at(b)
	var ends [][2]int // by length: the last pair of such a sequence with the least index
	before := map[[2]int][2]int{}
	for i, n := range a {
		j, ok := place[n.Name()]
		if !ok {
			continue
		}
		k, _ := slices.BinarySearchFunc(ends, j, func(p [2]int, j int) int { return p[1] - j })
		pair := [2]int{i, j}
		if k > 0 {
			before[pair] = ends[k-1]
		}
		if k == len(ends) {
			ends = append(ends, pair)
		}
		ends[k] = pair
	}
	out := make([][2]int, len(ends))
	for k := len(ends) - 1; k >= 0; k-- {
		if out[k] = ends[len(ends)-1]; k < len(ends)-1 {
			out[k] = before[out[k+1]]
		}
	}
	return out
}

func at(nodes []*graph.Node) map[string]int {
	out := map[string]int{}
	for i, n := range nodes {
		out[n.Name()] = i
	}
	return out
}

// equal compares nodes as the page shows them.
func equal(a, b *graph.Node) bool {
	var v, w writer
	x, _ := json.Marshal(v.node(a))
	y, _ := json.Marshal(w.node(b))
	return bytes.Equal(x, y) && slices.Equal(v.slots, w.slots)
}
