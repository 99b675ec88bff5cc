package cuda

// maxPlans bounds what is kept of batches of different sizes.
const maxPlans = 64

// plans are those of a rank, of which the least recently used goes when there are
// too many: batches of sizes that come once do not drop those that come again. All
// ranks use the same keys in the same order, and so drop the same.
type plans struct {
	most  int // how many are kept; two at least, the last and the next
	byKey map[planKey]*plan
	clock int // counts uses
}

func newPlans(most int) *plans { return &plans{most: most, byKey: map[planKey]*plan{}} }

// find is the plan for a key, or nil, and counts as a use.
func (l *plans) find(key planKey) *plan {
	p := l.byKey[key]
	if p != nil {
		l.clock++
		p.last = l.clock
	}
	return p
}

// put adds a plan. There must be room.
func (l *plans) put(p *plan) {
	l.byKey[p.key] = p
	l.find(p.key)
}

// makeRoom drops the plan that was not used for the longest time, if there are as many
// as are kept.
func (l *plans) makeRoom() error {
	if len(l.byKey) < l.most {
		return nil
	}
	var oldest *plan
	for _, p := range l.byKey {
		if oldest == nil || p.last < oldest.last {
			oldest = p
		}
	}
	return l.drop(oldest)
}

// clear drops all.
func (l *plans) clear() error {
	for _, p := range l.byKey {
		if err := l.drop(p); err != nil {
			return err
		}
	}
	return nil
}

func (l *plans) drop(p *plan) error {
	delete(l.byKey, p.key)
	return p.close()
}
