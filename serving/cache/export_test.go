package cache

// Held adds up what the nodes hold, beside what the tree counts.
func (c *Cache) Held() (held, counted int64) {
	for _, n := range c.nodes {
		held += n.rows.Bytes()
		if n.states != nil {
			held += n.states.Bytes()
		}
	}
	return held, c.tree.Bytes()
}

// Under is how many sequences are under way.
func (c *Cache) Under() int { return len(c.begun) }
