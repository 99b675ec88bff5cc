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

// HostHeld is Held of the host's memory.
func (c *Cache) HostHeld() (held, counted int64) {
	if c.host == nil {
		return 0, 0
	}
	for _, n := range c.host.nodes {
		for _, d := range n.rows.Data {
			held += int64(len(d))
		}
		if n.states != nil {
			for _, d := range n.states.Data {
				held += int64(len(d))
			}
		}
	}
	return held, c.host.tree.Bytes()
}

// Under returns the number of active sequences.
func (c *Cache) Under() int { return len(c.begun) }
