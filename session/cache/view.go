package cache

// Node describes a node of the tree, without its tokens.
type Node struct {
	Parent   int  // index in [Cache.Nodes]; -1: the root
	From, To int  // tokens before and after its edge
	State    bool // it has a snapshot
	Bytes    int64
	Hits     int     // of it and the nodes below
	Unused   float64 // seconds since it was last used
}

// Nodes lists the nodes on the device; Parent may follow its children.
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

// Capacity returns the capacity on the device in bytes.
func (c *Cache) Capacity() int64 { return c.o.Capacity }
