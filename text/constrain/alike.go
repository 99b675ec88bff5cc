package constrain

import (
	"encoding/binary"
	"slices"
	"sync"
)

// Bounds of the work of finding classes of states.
const (
	maxFlat   = 1 << 18 // edges behind edges that read nothing
	maxRounds = 1 << 21 // edges compared in all rounds
)

// classesFrom is how many masks of a grammar are made before classes are found.
var classesFrom = 16

// alike shares masks between sets from which the same tokens lead on. States are of one class if
// what may follow is the same for as many bytes as the longest token has, as it is far from the
// bounds of a counter. Sets whose states and stacks are of the same classes have the same mask.
type alike struct {
	mu      sync.Mutex
	class   []int32            // by state; nil: not found yet
	stacks  map[[2]int32]int32 // by the stack below and the class returned to
	masks   map[string][]int32
	known   map[uint64][]int32 // masks by their hash
	made    int
	finding bool
	bytes   int // of masks
}

func newAlike() *alike {
	return &alike{stacks: map[[2]int32]int32{}, masks: map[string][]int32{}, known: map[uint64][]int32{}}
}

// next is for another machine of the grammar: the same, or one with its classes if it is full.
func (a *alike) next() *alike {
	if !a.full() {
		return a
	}
	b := newAlike()
	a.mu.Lock()
	defer a.mu.Unlock()
	b.class = a.class
	return b
}

func (a *alike) full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes >= maxMasks || len(a.stacks) >= 4*maxSets
}

// share returns the mask of a set that is alike, or the one that make makes. Classes are found once
// some masks were made.
func (m *machine) share(s *set, make func() []int32) []int32 {
	a := m.alike
	a.mu.Lock()
	if a.class == nil && a.made > classesFrom {
		a.find(m.g, int(m.v.longest))
	}
	key := ""
	if a.class != nil {
		key = m.alikeKey(s)
	}
	mask := a.masks[key]
	a.mu.Unlock()
	if mask != nil {
		return mask
	}
	mask = make()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.made++
	if mask = a.only(mask); key != "" {
		a.masks[key] = mask
	}
	return mask
}

// find finds the classes, beside the steps of texts, which do without them until then.
func (a *alike) find(g *Grammar, longest int) {
	if classesFrom < 0 { // a test's
		a.class = g.classes(longest)
	}
	if a.class != nil || a.finding {
		return
	}
	a.finding = true
	go func() {
		class := g.classes(longest)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.class = class
	}()
}

// only returns a mask, or the one that it is equal to.
func (a *alike) only(mask []int32) []int32 {
	hash := uint64(14695981039346656037)
	for _, word := range mask {
		hash = (hash ^ uint64(uint32(word))) * 1099511628211
	}
	if known := a.known[hash]; slices.Equal(known, mask) {
		return known
	}
	a.known[hash], a.bytes = mask, a.bytes+4*len(mask)
	return mask
}

// alikeKey names what a set has in common with those that are alike.
func (m *machine) alikeKey(s *set) string {
	a := m.alike
	pairs := make([]uint64, len(s.configs))
	for i, c := range s.configs {
		pairs[i] = uint64(a.class[c.state])<<32 | uint64(m.stackClass(c.stack))
	}
	slices.Sort(pairs)
	key := make([]byte, 0, 8*len(pairs))
	for _, p := range slices.Compact(pairs) {
		key = binary.LittleEndian.AppendUint64(key, p)
	}
	return string(key)
}

// stackClass is the number of a stack by the classes of its states.
func (m *machine) stackClass(stack int32) int32 {
	for int(stack) >= len(m.classes) {
		at := int32(len(m.classes))
		if at == 0 {
			m.classes = append(m.classes, 0)
			continue
		}
		f := m.frames[at] // those below have smaller numbers
		key := [2]int32{m.classes[f.below], m.alike.class[f.back]}
		id, ok := m.alike.stacks[key]
		if !ok {
			id = int32(len(m.alike.stacks) + 1)
			m.alike.stacks[key] = id
		}
		m.classes = append(m.classes, id)
	}
	return m.classes[stack]
}

// flatEdge is an edge that reads something, behind edges that read nothing: where it leads, and the
// number of what it reads.
type flatEdge struct{ to, reads int32 }

// flat is the edges that read something behind each state, sorted, and whether the rule may end
// there; nil: there are too many.
func (g *Grammar) flat() (edges [][]flatEdge, ends []bool) {
	nullable, numbers := g.nullable(), map[[4]int32]int32{}
	edges, ends = make([][]flatEdge, len(g.states)), make([]bool, len(g.states))
	seen, sum := make([]int32, len(g.states)), 0
	for i := range g.states {
		todo := []int32{int32(i)}
		for seen[i] = int32(i + 1); len(todo) > 0; {
			s := &g.states[todo[len(todo)-1]]
			todo = todo[:len(todo)-1]
			ends[i] = ends[i] || s.end
			for _, e := range s.edges {
				if e.call != noRule || !e.empty {
					reads := [4]int32{e.call, s.need, int32(e.low), int32(e.high)}
					id, ok := numbers[reads]
					if !ok {
						id = int32(len(numbers))
						numbers[reads] = id
					}
					edges[i] = append(edges[i], flatEdge{e.to, id})
				}
				if (e.empty || e.call != noRule && nullable[g.rules[e.call].start]) && seen[e.to] != int32(i+1) {
					seen[e.to] = int32(i + 1)
					todo = append(todo, e.to)
				}
			}
		}
		if sum += len(edges[i]); sum > maxFlat {
			return nil, nil
		}
	}
	return edges, ends
}

// nullable is the states from which their rule may end with no byte.
func (g *Grammar) nullable() []bool {
	is := make([]bool, len(g.states))
	for i, s := range g.states {
		is[i] = s.end
	}
	for changed := true; changed; {
		changed = false
		for i, s := range slices.Backward(g.states) {
			if is[i] {
				continue
			}
			for _, e := range s.edges {
				if (e.empty || e.call != noRule && is[g.rules[e.call].start]) && is[e.to] {
					is[i], changed = true, true
				}
			}
		}
	}
	return is
}

// classes numbers the states so that those of one number go on alike for some bytes. A round tells
// apart the states whose edges lead to classes that the last one told apart.
func (g *Grammar) classes(bytes int) []int32 {
	own := make([]int32, len(g.states))
	for i := range own {
		own[i] = int32(i)
	}
	edges, ends := g.flat()
	if edges == nil {
		return own
	}
	all := 0
	for _, list := range edges {
		all += len(list)
	}
	class, next, known := make([]int32, len(g.states)), make([]int32, len(g.states)), 0
	var key []byte
	var parts []uint64
	for round := 0; round <= bytes; round++ {
		if round*all > maxRounds {
			return own
		}
		ids := map[string]int32{}
		for i, list := range edges {
			parts = parts[:0]
			for _, e := range list {
				parts = append(parts, uint64(e.reads)<<32|uint64(class[e.to]))
			}
			slices.Sort(parts)
			key = binary.LittleEndian.AppendUint32(key[:0], uint32(g.states[i].need))
			if key = append(key, 0); ends[i] {
				key[len(key)-1] = 1
			}
			for _, p := range slices.Compact(parts) {
				key = binary.LittleEndian.AppendUint64(key, p)
			}
			id, ok := ids[string(key)]
			if !ok {
				id = int32(len(ids))
				ids[string(key)] = id
			}
			next[i] = id
		}
		if len(ids) == known {
			break
		}
		known = len(ids)
		class, next = next, class
	}
	return class
}
