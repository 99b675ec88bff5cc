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
	maxSets    = 4096    // of half a KiB with their configs each
	maxMasks   = 4 << 20 // bytes, of a bit per token each
	maxTaken   = 32      // classes that a set may take
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
	next    [maxClasses]int32 // sets by class of bytes, several or mixed; 0: not known yet, dead: none
	rows    []row             // of classes that lead to several, or are mixed
	mask    []int32           // without the tokens that end a text
	quoted  []int32           // the mask of tokens with a quote, if this set is behind it; nil: not known yet
	never   classes           // of which some byte may not come
	taken   []taken
	places  int8 // 2: some config is in a string of any characters; 1: none; 0: not known yet
}

// row is the sets behind the bytes of a class.
type row struct {
	class uint8
	to    []int32
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
	masks  int // bytes, of those that are not alike
	alike  *alike
	// classes are those of stacks, as far as they are known.
	classes []int32
	work    int // configs moved since the mask was begun

	// What intern uses again.
	todo, list, moved []config
	seen              visits
	key               []byte
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
	g.last = &machine{g: g, v: v, sets: []*set{nil}, ids: map[string]int32{}, frames: []frame{{}}, stacks: map[frame]int32{}, alike: a}
	return g.last
}

func (m *machine) full() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sets) >= maxSets || m.masks >= maxMasks || len(m.frames) >= 4*maxSets || m.alike.full()
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
		m.work = 0
		s.mask = m.share(s, func() []int32 { return m.make(at) })
	}
	return s
}

// make makes the mask of a set.
func (m *machine) make(at int32) []int32 {
	mask := make([]int32, m.v.words)
	m.walk(m.v, at, mask)
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
	s := m.sets[at]
	switch {
	case n == 0 || by == 0:
		return true
	case by&s.never != 0:
		return false
	}
	i := 0
	for i < len(s.taken) && s.taken[i].by != by {
		i++
	}
	if i == len(s.taken) {
		if i < maxTaken {
			s.taken = append(s.taken, taken{})
		} else {
			i = int(uint64(by) * 0x9e3779b97f4a7c15 >> 32 % maxTaken)
		}
		s.taken[i] = taken{by, 0, math.MaxInt32}
	}
	switch t := s.taken[i]; {
	case n <= t.yes:
		return true
	case n >= t.no || !m.within():
		return false
	}
	for rest := by; rest != 0; rest &= rest - 1 {
		class := uint8(bits.TrailingZeros64(uint64(rest)))
		if to := m.behind(s, class); to == dead || to == mixed {
			s.never |= 1 << class
			return false
		}
	}
	may := func(to int32) bool { return to == at || m.takes(to, by, n-1) }
	for rest := by; rest != 0; rest &= rest - 1 {
		class := uint8(bits.TrailingZeros64(uint64(rest)))
		to := m.behind(s, class)
		if to != several && may(to) || to == several && every(bytesOf[class], func(b byte) bool { return may(m.stepOf(s, b)) }) {
			continue
		}
		s.note(by, func(t *taken) { t.no = min(t.no, n) })
		return false
	}
	s.note(by, func(t *taken) { t.yes = max(t.yes, n) })
	return true
}

// note changes what is known of some classes, if it is kept still.
func (s *set) note(by classes, change func(*taken)) {
	for i := range s.taken {
		if s.taken[i].by == by {
			change(&s.taken[i])
		}
	}
}

// within reports whether a mask may take more work.
func (m *machine) within() bool { return m.work < maxWork && len(m.sets) < 2*maxSets }

// stepOf is step of a set.
func (m *machine) stepOf(s *set, b byte) int32 {
	class := classOf[b]
	to := s.next[class]
	if to == 0 {
		to = m.behind(s, class)
	}
	if to >= dead {
		return to
	}
	for i := range s.rows {
		if r := &s.rows[i]; r.class == class {
			return r.to[rankOf[b]]
		}
	}
	panic("BUG: a class of several sets has no row")
}

// step is the set behind a byte.
func (m *machine) step(at int32, b byte) int32 { return m.stepOf(m.sets[at], b) }

// stepFrom makes the set behind a byte and those beside it that the same edges read, from low to
// high.
func (m *machine) stepFrom(s *set, b byte) (to int32, low, high byte) {
	list := m.moved[:0]
	low, high = 0, math.MaxUint8
	for _, c := range s.configs {
		edges := m.g.states[c.state].edges
		for i := range edges {
			switch e := &edges[i]; {
			case e.call != noRule || e.empty:
			case e.high < b:
				low = max(low, e.high+1)
			case e.low > b:
				high = min(high, e.low-1)
			default:
				low, high = max(low, e.low), min(high, e.high)
				list = append(list, config{e.to, c.stack})
			}
		}
	}
	m.work += 1 + len(s.configs)
	m.moved = list
	to = m.intern(list)
	for class, of := range bytesOf {
		if low <= of[0] && of[len(of)-1] <= high {
			s.next[class] = to
		}
	}
	return to, low, high
}

// intern is the set of configs, and of those that they lead to without a byte.
func (m *machine) intern(from []config) int32 {
	list, final := m.list[:0], false
	m.seen.clear()
	slices.Reverse(from)
	todo := append(m.todo[:0], from...)
	for len(todo) > 0 && m.seen.n < maxVisited && len(list) < maxConfigs {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !m.live(c.state, c.stack) || !m.seen.add(c) {
			continue
		}
		s, reads := &m.g.states[c.state], false
		switch {
		case s.end && c.stack == 0:
			final = true
		case s.end:
			f := m.frames[c.stack]
			todo = append(todo, config{f.back, f.below})
		}
		for i := len(s.edges) - 1; i >= 0; i-- {
			switch e := &s.edges[i]; {
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
	m.work += m.seen.n
	m.todo, m.list = todo, list
	if len(list) == 0 && !final {
		return dead
	}
	return m.keep(list, final)
}

// visits are configs that were visited: few, or many in a map.
type visits struct {
	few  []config
	many map[config]bool
	n    int
}

func (v *visits) clear() { v.few, v.many, v.n = v.few[:0], nil, 0 }

// add reports whether a config is new.
func (v *visits) add(c config) bool {
	const most = 16
	if slices.Contains(v.few, c) || v.many[c] {
		return false
	}
	switch v.n++; {
	case len(v.few) < most:
		v.few = append(v.few, c)
	case v.many == nil:
		v.many = map[config]bool{c: true}
	default:
		v.many[c] = true
	}
	return true
}

// live reports whether the end can be reached from a state within the bound of depth.
func (m *machine) live(state, stack int32) bool {
	return m.g.states[state].need <= maxCalls-m.frames[stack].depth
}

// keep gives a set its number. It keeps a copy of the list.
func (m *machine) keep(list []config, final bool) int32 {
	slices.SortFunc(list, func(a, b config) int {
		if a.state != b.state {
			return int(a.state - b.state)
		}
		return int(a.stack - b.stack)
	})
	key := m.key[:0]
	for _, c := range list {
		key = binary.LittleEndian.AppendUint32(key, uint32(c.state))
		key = binary.LittleEndian.AppendUint32(key, uint32(c.stack))
	}
	if final {
		key = append(key, 1)
	}
	m.key = key
	id, ok := m.ids[string(key)]
	if !ok {
		id = int32(len(m.sets))
		m.sets, m.ids[string(key)] = append(m.sets, &set{configs: slices.Clone(list), final: final}), id
	}
	return id
}
