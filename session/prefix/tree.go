package prefix

import "slices"

// node ends an edge of tokens from its parent. It has a whole sequence through it and not the edge,
// so that edges are split and merged without copies.
type node struct {
	time     float64
	worth    float64 // FLOPs that its edge saves, per byte
	bytes    int64
	path     int             // the last request whose path it was on
	children map[int32]*node // by the first token of their edges; the root has Tree.begins
	fan      int             // number of children, beside the fields that searches read
	state    bool
	kind     kind
	read     int32 // the tokens before this one were part of a hit; those before the edge may count as such

	tokens Tokens // its first depth tokens lead from the root to the node
	depth  int
	parent *node
	made   int   // its number, in order of creation
	index  int   // in Tree.nodes, where the last node takes the place of one that is removed
	slot   int   // in Tree.slots, where it stays
	part   *part // of Tree.ranking, where it has a place
	place  int

	uses   int   // hits so far
	since  int   // of a history: the request since which it waits for the next use
	cached *node // of a tree beside a cache: the cache's node that has its data, or had it, or one below; nil: none
	source *node // of a tree beside a cache: the cache's node from which its sequence would resume; nil: none
	joined *node // of a removed node of a cache without states: the one that has its rows, or those before it; nil: none
	shared int   // of a node with cached, without states: the first of its tokens whose rows that has
}

// kind says why a node was made.
type kind uint8

const (
	ofEnd    kind = iota // the end of a sequence
	ofPrompt             // the mark at the end of a prompt
	ofBranch             // the branch
)

// Tree is a radix tree over tokens; the package's documentation has its rules. It is not safe for
// concurrent use.
type Tree struct {
	model     Model
	capacity  int64 // in bytes
	rule      rule
	root      *node
	begins    map[begin]*node // the root's children
	nodes     []*node         // all but the root, in no order
	slots     []*node         // the root and the nodes, by their slots; nil: free
	free      []int           // slots
	ranking   ranking
	bytes     int64
	made      int
	requests  int
	evictions int
	reused    Reused
	now       float64   // time of the last request
	store     Store     // nil: none
	history   *history  // of a cache; nil: none
	hazard    *hazard   // of a history; nil: none
	stake     *stake    // of a guarded cache; nil: none
	beside    []*Tree   // of a cache: trees whose nodes know which of its nodes has their data
	cache     *Tree     // of such a tree; nil: none
	claims    []claim   // of such a tree, by the indices of its nodes
	demands   []float64 // of a cache with a history, by slot: expected uses per request
	owed      []float64 // of a guarded cache, by slot: see stake.weigh
}

// NewTree returns an empty tree, for a model that passes [Model.Check] and a capacity in bytes.
func NewTree(m Model, capacity int64, alpha float64) *Tree {
	root := &node{}
	return &Tree{model: m, capacity: capacity, rule: rule{alpha: alpha}, root: root, begins: map[begin]*node{},
		slots: []*node{root}, demands: []float64{0}, owed: []float64{0}}
}

// Bytes returns the bytes of all nodes.
func (t *Tree) Bytes() int64 { return t.bytes }

// Evictions returns the number of evicted nodes and states.
func (t *Tree) Evictions() int { return t.evictions }

// position is where a walk ended: at a node, or inside the edge of one of its children.
type position struct {
	node  *node // the last passed, or the root
	child *node // whose edge the walk ended in, or nil
	depth int   // matching tokens
}

// child returns the child of n whose edge continues with tokens, or nil.
func (t *Tree) child(n *node, tokens Tokens) *node {
	if n == t.root {
		return t.begins[tokens.begin()]
	}
	return n.children[tokens.At(n.depth)]
}

// walk follows tokens from the root while they match.
func (t *Tree) walk(tokens Tokens) position { return t.walkOn(t.root, tokens) }

// walkOn is walk from a node on their path.
func (t *Tree) walkOn(n *node, tokens Tokens) position {
	at := position{node: n, depth: n.depth}
	for at.depth < tokens.n {
		next := t.child(at.node, tokens)
		if next == nil {
			return at
		}
		at.depth = agree(tokens, next.tokens, at.depth+1, min(tokens.n, next.depth))
		if at.depth < next.depth {
			at.child = next
			return at
		}
		at.node = next
	}
	return at
}

// Lookup returns the number of tokens of the input that hit, and the depths of snapshots during its
// prefill. It touches the node that it hits.
func (t *Tree) Lookup(input Tokens, now float64) (hit int, marks Marks) {
	used, hit, marks := t.find(input)
	if used == nil {
		return hit, marks
	}
	used.time = now
	if t.hazard != nil {
		t.hazard.count(used, t.requests, true)
	}
	t.reused.hit(t, used, hit)
	used.uses++
	t.touch(used)
	for p := used.parent; t.rule.leaves && p != t.root; p = p.parent {
		p.time = now
		t.touch(p)
	}
	return hit, marks
}

// find is Lookup without a touch: used is the node to touch, or nil.
func (t *Tree) find(input Tokens) (used *node, hit int, marks Marks) {
	at, most := t.walk(input), max(input.n-1, 0)
	if t.model.StateBytes == 0 {
		if used = at.child; used == nil && at.node != t.root {
			used = at.node
		}
		return used, min(at.depth, most), Marks{}
	}
	for n := at.node; n != t.root; n = n.parent {
		if n.state && n.depth <= most {
			used, hit = n, n.depth
			break
		}
	}
	return used, hit, t.model.marks(at.depth, most, hit)
}

// branch returns the mark where an input diverges from the tree, whether or not a state is there; 0
// where it continues a whole sequence, whose next turn will continue from its own end.
func (t *Tree) branch(input Tokens) int {
	at := t.walk(input)
	if t.model.StateBytes == 0 || at.child == nil && len(at.node.children) == 0 {
		return 0
	}
	return t.model.marks(at.depth, max(input.n-1, 0), 0).Branch
}

// Admit adds a sequence, input and output, with states at its end and at the marks of
// [Tree.Lookup], and evicts down to the capacity.
func (t *Tree) Admit(tokens Tokens, marks Marks, now float64) {
	states, n := t.model.StateBytes > 0, t.root
	for at := marks.Next(0); at > 0 && states; at = marks.Next(at) {
		kind := ofPrompt
		if at == marks.Branch {
			kind = ofBranch
		}
		n = t.ensure(n, tokens.Prefix(at), true, kind, now)
	}
	t.insert(n, tokens, states, now)
}

// ensure returns the node that ends the tokens, which it adds if necessary, with the time now. Its
// path passes the node above.
func (t *Tree) ensure(above *node, tokens Tokens, state bool, of kind, now float64) *node {
	at := t.walkOn(above, tokens)
	n := at.node
	if at.child != nil {
		n = t.split(at.child, at.depth, now)
	}
	if at.depth < tokens.n {
		leaf := &node{tokens: tokens, depth: tokens.n}
		t.add(leaf, n, now)
		t.reused.CacheTokens += int64(leaf.depth - n.depth)
		if t.store != nil {
			t.store.Add(leaf.made, n.depth, leaf.depth)
		}
		n = leaf
	}
	marked := state && !n.state
	if n.time, n.kind = now, max(n.kind, of); marked {
		n.state, n.since = true, t.requests
		t.reused.States++
	}
	t.link(n)
	if marked && (t.rule.demand || t.stake != nil) {
		t.touchBelow(n) // they may be worth less
	}
	if marked && t.store != nil {
		t.store.Mark(n.made, n.depth)
	}
	t.measure(n)
	return n
}

// split makes a node inside the edge of n.
func (t *Tree) split(n *node, depth int, now float64) *node {
	upper := &node{tokens: n.tokens.Prefix(depth), depth: depth, read: min(n.read, int32(depth))}
	t.add(upper, n.parent, now)
	t.attach(n, upper)
	t.measure(upper)
	if t.store != nil {
		t.store.Split(upper.made, n.made, depth)
	}
	t.link(upper)
	return upper
}

// add makes n a node of the tree and a child of its parent, possibly in place of another.
func (t *Tree) add(n, parent *node, now float64) {
	n.time, n.made, n.index, n.since = now, t.made, len(t.nodes), t.requests
	t.made++
	t.nodes = append(t.nodes, n)
	if last := len(t.free) - 1; last >= 0 {
		n.slot, t.free = t.free[last], t.free[:last]
		t.slots[n.slot] = n
	} else {
		n.slot = len(t.slots)
		t.slots, t.demands, t.owed = append(t.slots, n), append(t.demands, 0), append(t.owed, 0)
	}
	if t.cache != nil {
		t.claims = append(t.claims, claim{})
	}
	t.attach(n, parent)
}

// attach makes n a child of parent, which begins n's edge.
func (t *Tree) attach(n, parent *node) {
	if t.hazard != nil && parent != t.root {
		t.hazard.count(parent, t.requests, false) // its class may change
	}
	n.parent = parent
	if parent == t.root {
		t.begins[n.tokens.begin()] = n
	} else {
		if parent.children == nil {
			parent.children = map[int32]*node{}
		}
		parent.children[n.tokens.At(parent.depth)] = n
		parent.fan = len(parent.children)
		t.touch(parent)
	}
	t.measure(n)
}

// measure updates the bytes, the worth and the rank of n.
func (t *Tree) measure(n *node) {
	t.bytes -= n.bytes
	n.bytes = t.model.Bytes(n.depth-n.parent.depth, n.state)
	t.bytes += n.bytes
	n.worth = 0
	if n.bytes > 0 {
		bytes := n.bytes
		if t.rule.released {
			bytes = t.model.Bytes(n.depth, n.state)
		}
		n.worth = (t.model.FLOPs(n.depth) - t.model.FLOPs(n.parent.depth)) / float64(bytes)
	}
	t.touch(n)
}

// Serve looks a request up and admits it at its time. It returns the hit.
func (t *Tree) Serve(r Request) int {
	hit, marks := t.Lookup(r.Input(), r.At)
	t.Admit(r.Tokens, marks, r.At)
	return hit
}

// growth returns the bytes that a sequence adds before eviction.
func (t *Tree) growth(tokens Tokens, marks Marks) int64 {
	if tokens.n == 0 {
		return 0
	}
	at := t.walk(tokens)
	added := t.model.Bytes(tokens.n-at.depth, !at.hasState(tokens.n))
	for depth := marks.Next(0); depth > 0; depth = marks.Next(depth) {
		if !t.walk(tokens.Prefix(depth)).hasState(depth) {
			added += t.model.StateBytes
		}
	}
	return added
}

// hasState reports whether a walk ended at a node of that depth with a state.
func (p position) hasState(depth int) bool { return p.depth == depth && p.child == nil && p.node.state }

// Clone returns an independent copy without a store, of a tree without a history. Both share
// tokens, which are immutable.
func (t *Tree) Clone() *Tree {
	c := *t
	c.store, c.ranking = nil, ranking{}
	c.free, c.demands, c.owed = slices.Clone(t.free), slices.Clone(t.demands), slices.Clone(t.owed)
	c.root, c.begins, c.nodes, c.slots = &node{}, map[begin]*node{}, make([]*node, len(t.nodes)), make([]*node, len(t.slots))
	c.slots[0] = c.root
	for i, n := range t.nodes {
		copied := *n
		copied.children, copied.fan, copied.part = nil, 0, nil
		c.nodes[i], c.slots[n.slot] = &copied, &copied
	}
	for i, n := range t.nodes {
		parent := c.root
		if n.parent != t.root {
			parent = c.nodes[n.parent.index]
		}
		c.attach(c.nodes[i], parent)
	}
	return &c
}
