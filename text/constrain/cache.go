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

// Cache keeps the grammars that were used last. The zero value is ready, and safe for concurrent
// use.
type Cache struct {
	mu     sync.Mutex
	byKey  map[[sha256.Size]byte]*list.Element
	used   list.List // the last one first
	states int
}

type cached struct {
	key     [sha256.Size]byte
	grammar *Grammar
}

// Get returns the grammar that compile made of a text the last time, or lets it make one. The kind
// names compile. Errors are not kept.
func (c *Cache) Get(kind string, text []byte, compile func([]byte) (*Grammar, error)) (*Grammar, error) {
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
		c.byKey = map[[sha256.Size]byte]*list.Element{}
	}
	c.byKey[key] = c.used.PushFront(&cached{key, g})
	for c.states += len(g.states); c.states > maxCached || c.used.Len() > maxGrammars; {
		e := c.used.Back()
		old := c.used.Remove(e).(*cached)
		delete(c.byKey, old.key)
		c.states -= len(old.grammar.states)
	}
	return g, nil
}
