package explain

import (
	"reflect"
	"slices"

	"github.com/krait-ml/krait/lowering"
)

// memory is a rank's memory, and the use of its arena.
type memory struct {
	Same      int      `json:"same"` // an earlier rank with equal memory; -1: none
	Weights   int64    `json:"weights"`
	Constants int64    `json:"constants"`
	State     int64    `json:"state"`             // per sequence
	Cache     int64    `json:"cache"`             // per sequence and token
	Regions   []int64  `json:"regions,omitempty"` // bytes of each region of the arena, for a count of one
	Buffers   []buffer `json:"buffers,omitempty"`
}

// buffer is a value in the arena.
type buffer struct {
	Name   string `json:"n"`
	Region int    `json:"g"`
	Offset int64  `json:"o"` // bytes, for a count of one
	Bytes  int64  `json:"b"`
	First  int    `json:"f"` // first step that uses it
	Last   int    `json:"t"`
	// Also has other values at the same offset: results computed in place.
	Also []string `json:"a,omitempty"`
}

// regionNames are the dimensions that the arena's regions repeat over.
var regionNames = []string{"token", "sequence", "wanted row", "token of a share", "sequence of a share", "row of a share", "token of the largest share", "token of a piece", "token of a share of a piece", "batch"}

func memoryOf(s *lowering.Schedule, p *lowering.RankPlan) memory {
	m := memory{Same: -1, Weights: p.Weights, Constants: p.Constants, State: p.State, Cache: p.Cache}
	for space := lowering.PerToken; space <= lowering.Fixed; space++ {
		m.Regions = append(m.Regions, s.Bytes[space])
	}
	for space := lowering.PerToken; space <= lowering.Fixed; space++ { // pieces follow
		if before := space.Before(); before != space {
			m.Regions[before-lowering.PerToken] += s.Bytes[space]
			m.Regions[space-lowering.PerToken] = 0
		}
	}
	place := map[int]int{} // buffer of the schedule -> of the list
	steps := 0
	touch := func(refs []lowering.Ref, at int) {
		for _, r := range refs {
			b := &s.Buffers[r.Buffer]
			if b.Space < lowering.PerToken {
				continue
			}
			i, ok := place[r.Buffer]
			if !ok {
				i = len(m.Buffers)
				place[r.Buffer] = i
				region, from := s.Place(b)
				m.Buffers = append(m.Buffers, buffer{b.Name, int(region - lowering.PerToken), from, b.Bytes, at, at, nil})
			}
			m.Buffers[i].Last = at
			if r.Name != b.Name && !slices.Contains(m.Buffers[i].Also, r.Name) {
				m.Buffers[i].Also = append(m.Buffers[i].Also, r.Name)
			}
		}
	}
	for _, st := range s.Steps {
		if st.Kind == lowering.Record || st.Kind == lowering.Wait {
			continue
		}
		touch(st.Args, steps)
		touch(st.Results, steps)
		steps++
	}
	for _, o := range s.Outputs { // live until the end
		touch([]lowering.Ref{o.Ref}, max(0, steps-1))
	}
	return m
}

// foldMemory replaces the memory of a rank that equals an earlier one's by its number.
func foldMemory(list []memory) {
	for i := range list {
		same := slices.IndexFunc(list[:i], func(m memory) bool { return reflect.DeepEqual(m, list[i]) })
		if same >= 0 {
			m := &list[i]
			m.Same, m.Regions, m.Buffers = same, nil, nil
		}
	}
}
