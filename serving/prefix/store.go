package prefix

// Store keeps what the nodes of a [Tree] stand for. Nodes have numbers, which are never
// used again. It is told of what happens while [Tree.Admit] runs.
type Store interface {
	// Add says that a node was made for the tokens of the sequence that is admitted,
	// from one depth to another.
	Add(node, from, to int)
	// Mark says that a node gets the state of that sequence after depth tokens.
	Mark(node, depth int)
	// Split says that the beginning of a node's edge, up to a depth, is upper's, which is new.
	Split(upper, node, depth int)
	// Join says that a node's edge is the beginning of its child's now, and its state goes.
	Join(node, child int)
	// Drop says that a node goes with all that it has.
	Drop(node int)
}

// NewTreeOf is an empty tree that tells a store.
func NewTreeOf(m Model, capacity int64, alpha float64, s Store) *Tree {
	t := NewTree(m, capacity, alpha)
	t.store = s
	return t
}

// Path lists the nodes from the root to the one at a depth, where [Tree.Lookup] has hit.
func (t *Tree) Path(tokens Tokens, depth int) []int {
	var path []int
	n := t.root
	for n.depth < depth {
		n = n.children[tokens.At(n.depth)]
		path = append(path, n.made)
	}
	return path
}
