package cuda

// maxPrograms bounds the number of programs, one for each size of a batch.
const maxPrograms = 64

// programs are those of a rank, of which the least recently used goes when there are
// too many: batches of sizes that come once do not drop those that come again. All
// ranks use the same keys in the same order, and so drop the same.
type programs struct {
	most  int // how many are kept; two at least, the last and the next
	byKey map[programKey]*program
	clock int // counts uses
}

func newPrograms(most int) *programs { return &programs{most: most, byKey: map[programKey]*program{}} }

// find is the program for a key, or nil, and counts as a use.
func (l *programs) find(key programKey) *program {
	p := l.byKey[key]
	if p != nil {
		l.clock++
		p.last = l.clock
	}
	return p
}

// put adds a program. There must be room.
func (l *programs) put(p *program) {
	l.byKey[p.key] = p
	l.find(p.key)
}

// makeRoom drops the program that was not used for the longest time, if there are as many
// as are kept.
func (l *programs) makeRoom() error {
	if len(l.byKey) < l.most {
		return nil
	}
	var oldest *program
	for _, p := range l.byKey {
		if oldest == nil || p.last < oldest.last {
			oldest = p
		}
	}
	return l.drop(oldest)
}

// clear drops all.
func (l *programs) clear() error {
	for _, p := range l.byKey {
		if err := l.drop(p); err != nil {
			return err
		}
	}
	return nil
}

func (l *programs) drop(p *program) error {
	delete(l.byKey, p.key)
	return p.close()
}
