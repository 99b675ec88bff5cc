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

// Wait waits for the running trial.
func (c *Cache) Wait() { c.trials.live.Wait() }

// Trying reports whether a trial runs.
func (c *Cache) Trying() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trials.stopped != nil
}

// Yield lets trials that begin later call f before each request.
func (c *Cache) Yield(f func()) { c.trials.yield = f }
