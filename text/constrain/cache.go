package constrain

import (
	"container/list"
	"crypto/sha256"
	"sync"
)

// Bounds of a cache: states of all its grammars (30 MB), and grammars, each with its machine.
const (
	maxCached   = 1 << 18
	maxGrammars = 32
)

// Cache keeps the grammars that were used last, for all who ask for them. An owner that has many
// made displaces its own first. The zero value is ready, and safe for concurrent use.
type Cache struct {
	mu     sync.Mutex
	byKey  map[[sha256.Size]byte]*list.Element
	used   list.List      // the last one first
	states map[string]int // by owner
}

type cached struct {
	key     [sha256.Size]byte
	owner   string
	grammar *Grammar
}

// Get returns the grammar that compile made of a text the last time, or lets it make one. The kind
// names compile. Errors are not kept.
func (c *Cache) Get(owner, kind string, text []byte, compile func([]byte) (*Grammar, error)) (*Grammar, error) {
	key := sha256.Sum256(append([]byte(kind+"\x00"), text...))
	c.mu.Lock()
	if e, ok := c.byKey[key]; ok {
		c.used.MoveToFront(e)
		c.mu.Unlock()
		return e.Value.(*cached).grammar, nil
	}
	c.mu.Unlock()
	g, err := compile(text)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok { // another was faster
		return e.Value.(*cached).grammar, nil
	}
	if c.byKey == nil {
		c.byKey, c.states = map[[sha256.Size]byte]*list.Element{}, map[string]int{}
	}
	c.byKey[key] = c.used.PushFront(&cached{key, owner, g})
	c.states[owner] += len(g.states)
	c.evict()
	return g, nil
}

// evict drops the grammars unused for longest of the owner whose are largest, down to the bounds.
func (c *Cache) evict() {
	for {
		sum, largest := 0, ""
		for owner, n := range c.states {
			if sum += n; n > c.states[largest] || n == c.states[largest] && owner < largest {
				largest = owner
			}
		}
		if sum <= maxCached && c.used.Len() <= maxGrammars {
			return
		}
		e := c.used.Back()
		for e.Value.(*cached).owner != largest {
			e = e.Prev()
		}
		old := c.used.Remove(e).(*cached)
		delete(c.byKey, old.key)
		if c.states[largest] -= len(old.grammar.states); c.states[largest] == 0 {
			delete(c.states, largest)
		}
	}
}
