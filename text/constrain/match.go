package constrain

import (
	"encoding/binary"
	"slices"
)

// Bounds of a matcher: its memory is a few MiB at most.
const (
	maxConfigs = 256     // in a set
	maxVisited = 4096    // while a set is made
	maxSets    = 512     // of 1 KiB and their configs each
	maxMasks   = 64      // of a bit per token each
	maxWork    = 2 << 20 // configs moved for one mask
)

// config is a state, and the stack of where its rule and those around it return to.
type config struct{ state, stack int32 }

// frame is the top of a stack; frame 0 is the empty one.
type frame struct{ below, back, depth int32 }

// set is where a text may be.
type set struct {
	configs []config
	final   bool
	next    [256]int32 // sets by byte; 0: not known yet, dead: none
	mask    []int32
}

const dead = -1

// Matcher tracks one text as it is generated. It is not safe for concurrent use.
type Matcher struct {
	g   *Grammar
	v   *Vocabulary
	eos []int

	sets   []*set // the first is none
	ids    map[string]int32
	frames []frame
	stacks map[frame]int32
	masks  int
	at     int32
	work   int // configs moved since the mask was begun
}

// Match begins a text of the vocabulary's tokens. Those of eos end it where it may end.
func (g *Grammar) Match(v *Vocabulary, eos []int) *Matcher {
	m := &Matcher{g: g, v: v, eos: eos}
	m.clear()
	m.at = m.intern([]config{{g.rules[0].start, 0}})
	return m
}

func (m *Matcher) clear() {
	m.sets, m.ids, m.masks = []*set{nil}, map[string]int32{}, 0
	m.frames, m.stacks = []frame{{}}, map[frame]int32{}
}

// Mask has the bits of the tokens that may come next. It is valid until the next call.
func (m *Matcher) Mask() []int32 {
	m.shrink()
	s := m.sets[m.at]
	if s.mask == nil {
		s.mask, m.work = make([]int32, m.v.words), 0
		m.masks++
		m.v.walk(m, m.at, s.mask)
		if s.final {
			for _, id := range m.eos {
				setBit(s.mask, id)
			}
		}
	}
	return s.mask
}

// Accept goes on by a token that Mask had, and reports whether the text is complete: nothing
// could follow.
func (m *Matcher) Accept(id int) (last bool) {
	if slices.Contains(m.eos, id) {
		return true
	}
	m.work = 0
	for _, b := range m.v.bytes[id] {
		next := m.step(m.at, b)
		if next == dead {
			panic("BUG: a token came that the grammar has not")
		}
		m.at = next
	}
	s := m.sets[m.at]
	return s.final && len(s.configs) == 0
}

// shrink drops all sets but the current one once they reach a limit.
func (m *Matcher) shrink() {
	if len(m.sets) < maxSets && m.masks < maxMasks && len(m.frames) < 16*maxSets {
		return
	}
	now, frames := m.sets[m.at], m.frames
	m.clear()
	var move func(stack int32) int32
	move = func(stack int32) int32 {
		if stack == 0 {
			return 0
		}
		return m.push(move(frames[stack].below), frames[stack].back)
	}
	for i, c := range now.configs {
		now.configs[i].stack = move(c.stack)
	}
	m.at = m.keep(now.configs, now.final)
}

func (m *Matcher) push(below, back int32) int32 {
	f := frame{below, back, m.frames[below].depth + 1}
	id, ok := m.stacks[f]
	if !ok {
		id = int32(len(m.frames))
		m.frames, m.stacks[f] = append(m.frames, f), id
	}
	return id
}

// step is the set behind a byte.
func (m *Matcher) step(at int32, b byte) int32 {
	s := m.sets[at]
	if s.next[b] != 0 {
		return s.next[b]
	}
	var to []config
	for _, c := range s.configs {
		for _, e := range m.g.states[c.state].edges {
			if e.call == noRule && !e.empty && e.low <= b && b <= e.high {
				to = append(to, config{e.to, c.stack})
			}
		}
	}
	m.work += 1 + len(s.configs)
	next := m.intern(to)
	s.next[b] = next
	return next
}

// intern is the set of configs, and of those that they lead to without a byte.
func (m *Matcher) intern(from []config) int32 {
	var list []config
	final, visited := false, map[config]bool{}
	slices.Reverse(from)
	for todo := from; len(todo) > 0 && len(visited) < maxVisited && len(list) < maxConfigs; {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if visited[c] || !m.live(c.state, c.stack) {
			continue
		}
		visited[c] = true
		s, reads := &m.g.states[c.state], false
		switch {
		case s.end && c.stack == 0:
			final = true
		case s.end:
			f := m.frames[c.stack]
			todo = append(todo, config{f.back, f.below})
		}
		for _, e := range slices.Backward(s.edges) {
			switch {
			case e.empty:
				todo = append(todo, config{e.to, c.stack})
			case e.call == noRule:
				reads = true
			case m.live(e.to, c.stack):
				todo = append(todo, config{m.g.rules[e.call].start, m.push(c.stack, e.to)})
			}
		}
		if reads {
			list = append(list, c)
		}
	}
	m.work += len(visited)
	if len(list) == 0 && !final {
		return dead
	}
	return m.keep(list, final)
}

// live reports whether the end can be reached from a state within the bound of depth.
func (m *Matcher) live(state, stack int32) bool {
	return m.g.states[state].need <= maxCalls-m.frames[stack].depth
}

// keep gives a set its number.
func (m *Matcher) keep(list []config, final bool) int32 {
	slices.SortFunc(list, func(a, b config) int {
		if a.state != b.state {
			return int(a.state - b.state)
		}
		return int(a.stack - b.stack)
	})
	key := make([]byte, 0, 8*len(list)+1)
	for _, c := range list {
		key = binary.LittleEndian.AppendUint32(key, uint32(c.state))
		key = binary.LittleEndian.AppendUint32(key, uint32(c.stack))
	}
	if final {
		key = append(key, 1)
	}
	id, ok := m.ids[string(key)]
	if !ok {
		id = int32(len(m.sets))
		m.sets, m.ids[string(key)] = append(m.sets, &set{configs: list, final: final}), id
	}
	return id
}
