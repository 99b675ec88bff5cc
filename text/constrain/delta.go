package constrain

// maxNear bounds the sets that a mask may be made from.
const maxNear = 8

// near returns one of the last sets with a mask that goes on alike behind the first bytes of most
// tokens; nil: there is none. A name that is not one of a schema's, for example, goes on alike at
// each of its characters but those on the way to one of the schema's.
func (m *machine) near(from int32) *set {
	s := m.sets[from]
	for _, other := range m.recent {
		r, alike := m.sets[other], 0
		for n, b := range m.v.children(0) {
			if m.stepOf(s, b) == m.stepOf(r, b) {
				alike += len(m.v.below(n))
			}
		}
		if 2*alike > len(m.v.tokens) {
			return r
		}
	}
	return nil
}

// remember keeps a set with a mask for near.
func (m *machine) remember(at int32) {
	if len(m.recent) == maxNear {
		m.recent = append(m.recent[:0], m.recent[1:]...)
	}
	m.recent = append(m.recent, at)
}

// differ makes the mask of a set from that of another, by the branches where they lead elsewhere.
// Beyond the bounds of work tokens are left out.
func (m *machine) differ(branch int32, s, r *set, mask []int32) {
	for n, b := range m.v.children(branch) {
		to, was := m.stepOf(s, b), m.stepOf(r, b)
		if to == was {
			continue
		}
		if to != dead && was != dead && m.within() && !(m.inString(visit{n, to}) && m.inString(visit{n, was})) {
			m.differ(n, m.sets[to], m.sets[was], mask)
			continue
		}
		if was != dead {
			for _, id := range m.v.below(n) {
				mask[id/32] &^= 1 << (id % 32)
			}
		}
		if to != dead && m.within() {
			allow(m.v.own(n), mask)
			m.walk(m.v, visit{n, to}, mask)
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
