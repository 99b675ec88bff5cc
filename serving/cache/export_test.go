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

// Wait waits for the trial under way.
func (c *Cache) Wait() { c.trials.Wait() }

// Trying reports whether a trial is under way.
func (c *Cache) Trying() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trials.stopped != nil
}

// Yield lets trials that begin later call f before each request.
func (c *Cache) Yield(f func()) { c.trials.yield = f }
