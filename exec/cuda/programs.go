package cuda

// maxPrograms bounds the number of programs, one for each size of a batch.
const maxPrograms = 64

// programs is a rank's LRU cache of programs: sizes that come once do not evict those that come
// again. All ranks use the same keys in the same order, and so evict the same programs.
type programs struct {
	most  int // how many are kept; two at least, the last and the next
	byKey map[programKey]*program
	clock int // counts uses
}

func newPrograms(most int) *programs { return &programs{most: most, byKey: map[programKey]*program{}} }

// find returns the program for a key, or nil, and counts as a use.
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

// makeRoom evicts the least recently used program if the cache is full.
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
