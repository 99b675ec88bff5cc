package constrain

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// Bounds of a machine: its memory is a few MiB at most.
const (
	maxConfigs = 1024    // in a set
	maxVisited = 1 << 14 // while a set is made
	maxSets    = 1024    // of 1 KiB and their configs each
	maxMasks   = 4 << 20 // bytes, of a bit per token each
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
	mask    []int32    // without the tokens that end a text
	quoted  []int32    // the mask of tokens with a quote, if this set is behind it; nil: not known yet
	taken   []taken
	reads   [4]uint64 // a bit for each byte that may come; 0: not known yet
	places  int8      // 2: some config is in a string of any characters; 1: none; 0: not known yet
}

const dead = -1

// machine is the sets of a grammar that texts of a vocabulary have come to. Texts share it, so that
// each set's mask is made once. Its lock guards all of it but masks that are made.
type machine struct {
	mu     sync.Mutex
	g      *Grammar
	v      *Vocabulary
	sets   []*set // the first is none
	ids    map[string]int32
	frames []frame
	stacks map[frame]int32
	recent []int32 // the last sets with masks
	masks  int     // bytes, of those that are not alike
	twins  map[twins]taken
	pairs  int // compared since the mask was begun
	alike  *alike
	// classes are those of stacks, as far as they are known.
	classes []int32
	work    int // configs moved since the mask was begun
}

// Matcher tracks one text as it is generated. It is not safe for concurrent use; matchers of one
// grammar are independent.
type Matcher struct {
	m   *machine
	eos []int
	at  int32
}

// Match begins a text of the vocabulary's tokens. Those of eos end it where it may end.
func (g *Grammar) Match(v *Vocabulary, eos []int) *Matcher {
	m := g.machine(v)
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Matcher{m, eos, m.intern([]config{{g.rules[0].start, 0}})}
}

// machine returns the grammar's machine for a vocabulary, a new one if the last is full.
func (g *Grammar) machine(v *Vocabulary) *machine {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.last; m != nil && m.v == v && !m.full() {
		return m
	}
	a := newAlike()
	if m := g.last; m != nil && m.v == v {
		a = m.alike.next()
	}
	g.last = &machine{g: g, v: v, sets: []*set{nil}, ids: map[string]int32{}, frames: []frame{{}}, stacks: map[frame]int32{}, twins: map[twins]taken{}, alike: a}
	return g.last
}

func (m *machine) full() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sets) >= maxSets || m.masks >= maxMasks || len(m.frames) >= 16*maxSets || m.alike.full()
}

// Mask has the bits of the tokens that may come next. The caller must not change it.
func (t *Matcher) Mask() []int32 {
	t.move()
	s := t.m.masked(t.at)
	if !s.final || len(t.eos) == 0 {
		return s.mask
	}
	mask := slices.Clone(s.mask)
	for _, id := range t.eos {
		setBit(mask, int32(id))
	}
	return mask
}

// Prepare begins to make the next mask, beside what the caller does before it asks for it.
func (t *Matcher) Prepare() {
	t.move()
	go t.m.masked(t.at)
}

// masked is a set with its mask.
func (m *machine) masked(at int32) *set {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[at]
	if s.mask == nil {
		m.work, m.pairs = 0, 0
		s.mask = m.share(s, func() []int32 { return m.make(at) })
		m.remember(at)
	}
	return s
}

// make makes the mask of a set.
func (m *machine) make(at int32) []int32 {
	if !m.inString(visit{0, at}) {
		if other := m.near(at); other != dead {
			mask := patch{mask: m.sets[other].mask}
			m.differ(at, other, &mask)
			return mask.mask
		}
	}
	mask := make([]int32, m.v.words)
	m.walk(m.v, visit{0, at}, mask)
	return mask
}

// Accept goes on by a token that Mask had, and reports whether the text is complete: nothing
// could follow.
func (t *Matcher) Accept(id int) (last bool) {
	if slices.Contains(t.eos, id) {
		return true
	}
	m := t.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work = 0
	for _, b := range m.v.bytes[id] {
		if t.at = m.step(t.at, b); t.at == dead {
			panic("BUG: a token came that the grammar has not")
		}
	}
	s := m.sets[t.at]
	return s.final && len(s.configs) == 0
}

// move goes to the grammar's last machine if the text's own is full.
func (t *Matcher) move() {
	if !t.m.full() {
		return
	}
	old, m := t.m, t.m.g.machine(t.m.v)
	old.mu.Lock()
	s, frames := old.sets[t.at], old.frames
	old.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	var move func(stack int32) int32
	move = func(stack int32) int32 {
		if stack == 0 {
			return 0
		}
		return m.push(move(frames[stack].below), frames[stack].back)
	}
	configs := slices.Clone(s.configs)
	for i, c := range configs {
		configs[i].stack = move(c.stack)
	}
	t.m, t.at = m, m.keep(configs, s.final)
}

func (m *machine) push(below, back int32) int32 {
	f := frame{below, back, m.frames[below].depth + 1}
	id, ok := m.stacks[f]
	if !ok {
		id = int32(len(m.frames))
		m.frames, m.stacks[f] = append(m.frames, f), id
	}
	return id
}

// taken is up to how many bytes of some classes may come behind a set: yes may, no may not.
type taken struct {
	by      classes
	yes, no int32
}

// takes reports whether any n bytes of some classes may come behind a set. It may miss that they
// do.
func (m *machine) takes(at int32, by classes, n int32) bool {
	if n == 0 || by == 0 {
		return true
	}
	s := m.sets[at]
	i := 0
	for i < len(s.taken) && s.taken[i].by != by {
		i++
	}
	if i == len(s.taken) {
		s.taken = append(s.taken, taken{by, 0, math.MaxInt32})
	}
	switch t := s.taken[i]; {
	case n <= t.yes:
		return true
	case n >= t.no || !m.within():
		return false
	}
	for rest := by; rest != 0; rest &= rest - 1 {
		last := at
		for _, b := range bytesOf[bits.TrailingZeros8(uint8(rest))] {
			to := m.stepOf(s, b)
			if to == last || to == at {
				continue
			}
			if to == dead || !m.takes(to, by, n-1) {
				s.taken[i].no = min(s.taken[i].no, n)
				return false
			}
			last = to
		}
	}
	s.taken[i].yes = max(s.taken[i].yes, n)
	return true
}

// step is the set behind a byte.
func (m *machine) step(at int32, b byte) int32 { return m.stepOf(m.sets[at], b) }

// stepFrom makes the set behind a byte and those beside it that the same edges read.
func (m *machine) stepFrom(s *set, b byte) int32 {
	var to []config
	low, high := byte(0), byte(math.MaxUint8)
	for _, c := range s.configs {
		for _, e := range m.g.states[c.state].edges {
			switch {
			case e.call != noRule || e.empty:
			case e.high < b:
				low = max(low, e.high+1)
			case e.low > b:
				high = min(high, e.low-1)
			default:
				low, high = max(low, e.low), min(high, e.high)
				to = append(to, config{e.to, c.stack})
			}
		}
	}
	m.work += 1 + len(s.configs)
	next := m.intern(to)
	for i := int(low); i <= int(high); i++ {
		s.next[i] = next
	}
	return next
}

// intern is the set of configs, and of those that they lead to without a byte.
func (m *machine) intern(from []config) int32 {
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
func (m *machine) live(state, stack int32) bool {
	return m.g.states[state].need <= maxCalls-m.frames[stack].depth
}

// keep gives a set its number.
func (m *machine) keep(list []config, final bool) int32 {
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
