package cache

// Node is a node of the tree as it is now: how much is held, and no token of it.
type Node struct {
	Parent   int  // its index among [Cache.Nodes]; -1: the root
	From, To int  // tokens before its edge, and up to its end
	State    bool // it has one
	Bytes    int64
	Hits     int     // sequences that went on from it, or from what is below it
	Unused   float64 // seconds since it was last used
}

// Nodes lists what the device holds, parents before their children where these were made later.
func (c *Cache) Nodes() []Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	list, now := c.tree.Nodes(), c.o.Now()
	out := make([]Node, len(list))
	for i, n := range list {
		out[i] = Node{n.Parent, n.From, n.To, n.State, n.Bytes, c.nodes[n.Number].hits, now - n.Time}
	}
	return out
}

// Capacity is how many bytes the device holds at most.
func (c *Cache) Capacity() int64 { return c.o.Capacity }
