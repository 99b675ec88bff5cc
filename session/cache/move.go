package cache

import "github.com/krait-ml/krait/session/prefix"

// Move tells the cache that a sequence resumed in another slot.
func (c *Cache) Move(from, to int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.begun[from]; q != nil {
		delete(c.begun, from)
		q.slot = to
		c.begun[to] = q
	}
}

// Fork tells the cache that the sequence of a slot was forked after its prompt. The lookup of the
// other sequence counts.
func (c *Cache) Fork(slot int, salt string, prompt []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(prompt) <= prefix.MaxTokens && !c.closed {
		c.begun[slot] = &sequence{slot: slot, salt: salt, prompt: len(prompt), fed: len(prompt)}
	}
}
