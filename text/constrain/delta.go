package constrain

import (
	"math"
	"math/bits"
	"slices"
)

// Bounds of the sets that a mask may be made from, and of the pairs of sets compared for one mask.
const (
	maxNear  = 64
	maxClose = 8 // of them the last, of which bytes are compared
	maxPairs = 1 << 10
)

// near returns one of the last sets with a mask, behind which most tokens go on alike; dead: there
// is none. A name that is not one of a schema's, for example, goes on alike at each of its
// characters but those on the way to one of the schema's, and counted words as long as both may go
// on.
func (m *machine) near(from int32) int32 {
	s := m.sets[from]
	for _, other := range m.recent[max(0, len(m.recent)-maxClose):] {
		r, alike := m.sets[other], 0
		for b, n := range m.v.starts {
			if n > 0 && m.stepOf(s, byte(b)) == m.stepOf(r, byte(b)) {
				alike += int(n)
			}
		}
		if 2*alike > len(m.v.tokens) {
			return other
		}
	}
	for _, other := range slices.Backward(m.recent) {
		if m.mayRead(other) == m.mayRead(from) && m.mostlySame(from, other) {
			return other
		}
	}
	return dead
}

// mostlySame reports whether most tokens of the largest clusters go on alike behind two sets.
func (m *machine) mostlySame(a, b int32) bool {
	left := int32(len(m.v.tokens)) / 2
	for _, i := range m.v.largest {
		c := &m.v.clusters[i]
		if !m.same(a, b, c.classes, c.height) {
			if left -= c.size; left < 0 {
				return false
			}
		}
	}
	return true
}

// mayRead is the bytes that may come behind a set.
func (m *machine) mayRead(at int32) [4]uint64 {
	s := m.sets[at]
	if s.reads == ([4]uint64{}) {
		for b := range 256 {
			if m.stepOf(s, byte(b)) != dead {
				s.reads[b/64] |= 1 << (b % 64)
			}
		}
	}
	return s.reads
}

// remember keeps a set with a mask for near.
func (m *machine) remember(at int32) {
	if len(m.recent) == maxNear {
		m.recent = append(m.recent[:0], m.recent[1:]...)
	}
	m.recent = append(m.recent, at)
}

// twins are two sets, and the classes of the texts behind them.
type twins struct {
	a, b int32
	by   classes
}

// same reports whether of the texts of n bytes of some classes the same may come behind two sets.
// It may miss that they do.
func (m *machine) same(a, b int32, by classes, n int32) bool {
	if a == b {
		return true
	}
	if a == dead || b == dead {
		return false
	}
	if n == 0 || by == 0 {
		return true
	}
	key := twins{a, b, by}
	if t, ok := m.twins[key]; ok && n <= t.yes {
		return true
	} else if ok && n >= t.no || m.pairs >= maxPairs || !m.within() {
		return false
	}
	m.pairs++
	s, r, last := m.sets[a], m.sets[b], twins{}
	for rest := by; rest != 0; rest &= rest - 1 {
		for _, c := range bytesOf[bits.TrailingZeros8(uint8(rest))] {
			to := twins{m.stepOf(s, c), m.stepOf(r, c), by}
			if to == last || to == key {
				continue
			}
			if !m.same(to.a, to.b, by, n-1) {
				m.note(key, func(t *taken) { t.no = min(t.no, n) })
				return false
			}
			last = to
		}
	}
	m.note(key, func(t *taken) { t.yes = max(t.yes, n) })
	return true
}

// note keeps what same found.
func (m *machine) note(key twins, change func(t *taken)) {
	t, ok := m.twins[key]
	if !ok {
		t = taken{no: math.MaxInt32}
	}
	if change(&t); len(m.twins) >= 4*maxPairs {
		clear(m.twins)
	}
	m.twins[key] = t
}

// patch is a mask that is another's until it changes.
type patch struct {
	mask []int32
	own  bool
}

func (p *patch) change() []int32 {
	if !p.own {
		p.mask, p.own = slices.Clone(p.mask), true
	}
	return p.mask
}

// differ makes the mask of a set from that of another, by the branches where they lead elsewhere.
// Beyond the bounds of work tokens are left out.
func (m *machine) differ(from, other int32, mask *patch) {
	s, r := m.sets[from], m.sets[other]
	for _, c := range m.v.clusters {
		if !m.same(from, other, c.classes, c.height) {
			m.differAt(c.begin, c.end, s, r, mask)
		}
	}
}

// differAt is differ for some branches.
func (m *machine) differAt(begin, end int32, s, r *set, mask *patch) {
	for n, b := range m.v.siblings(begin, end) {
		to, was := m.stepOf(s, b), m.stepOf(r, b)
		if to == was {
			continue
		}
		if below := &m.v.trie[n]; to != dead && was != dead && m.within() {
			if m.same(to, was, below.classes, below.height) {
				continue
			}
			if !m.inString(visit{n, to}) || !m.inString(visit{n, was}) {
				m.differAt(n+1, below.end, m.sets[to], m.sets[was], mask)
				continue
			}
		}
		if was != dead {
			old := mask.change()
			for _, id := range m.v.below(n) {
				old[id/32] &^= 1 << (id % 32)
			}
		}
		if to != dead && m.within() {
			allow(m.v.own(n), mask.change())
			m.walk(m.v, visit{n, to}, mask.change())
		}
	}
}

// within reports whether a mask may take more work.
func (m *machine) within() bool { return m.work < maxWork && len(m.sets) < 2*maxSets }

// stepOf is step of a set.
func (m *machine) stepOf(s *set, b byte) int32 {
	if s.next[b] != 0 {
		return s.next[b]
	}
	return m.stepFrom(s, b)
}
