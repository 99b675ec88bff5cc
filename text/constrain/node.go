package constrain

import (
	"fmt"
	"slices"
)

// node is what fulfils a schema, all of several nodes, or what does not fulfil one.
type node struct {
	id     int
	schema *value
	all    []*node
	except *node

	of [2]struct { // narrow and wide
		terms      []term
		busy, done bool
	}
}

// place says which schema a node is of, for errors.
func (n *node) place() string {
	switch {
	case n.schema != nil:
		return n.schema.at
	case n.except != nil:
		return n.except.place()
	case n.all != nil:
		return n.all[0].place()
	}
	return "#"
}

func (c *compiler) node(n node) *node {
	if n.id = len(c.nodes); n.id >= maxNodes {
		panic(fmt.Errorf("the schema is too large: it has more than %d combinations of its parts", maxNodes))
	}
	c.nodes = append(c.nodes, &n)
	return &n
}

// leaf is the node of a schema.
func (c *compiler) leaf(v *value) *node {
	if n, ok := c.leaves[v]; ok {
		return n
	}
	n := c.anything
	switch {
	case v.kind == 't' && !v.truth:
		n = c.nothing
	case v.kind == 't':
	case v.kind != '{':
		panic(fmt.Errorf("%s: a schema must be an object, true or false, and is %s", v.at, short(v.String())))
	case slices.ContainsFunc(v.members, func(m member) bool {
		return slices.Contains(Keywords, m.name) || slices.Contains(refused, m.name)
	}):
		n = c.node(node{schema: v})
	}
	c.leaves[v] = n
	return n
}

// and is what fulfils two nodes.
func (c *compiler) and(a, b *node) *node {
	switch {
	case a == c.anything || a == b || b == c.nothing:
		return b
	case b == c.anything || a == c.nothing:
		return a
	}
	parts := func(n *node) []*node {
		if n.all != nil {
			return n.all
		}
		return []*node{n}
	}
	list := slices.Concat(parts(a), parts(b))
	slices.SortFunc(list, func(x, y *node) int { return x.id - y.id })
	list = slices.Compact(list)
	key := ""
	for _, n := range list {
		key += fmt.Sprint(n.id, " ")
	}
	n, ok := c.conjunctions[key]
	if !ok {
		n = c.node(node{all: list})
		c.conjunctions[key] = n
	}
	return n
}

// except is what does not fulfil a node.
func (c *compiler) except(n *node) *node {
	switch {
	case n == c.anything:
		return c.nothing
	case n == c.nothing:
		return c.anything
	case n.except != nil:
		return n.except
	}
	out, ok := c.exceptions[n]
	if !ok {
		out = c.node(node{except: n})
		c.exceptions[n] = out
	}
	return out
}

// endless is the panic of a schema that requires itself.
type endless struct{ error }

// terms expands a node.
func (c *compiler) terms(n *node) []term {
	u := &n.of[0]
	if c.wide {
		u = &n.of[1]
	}
	switch {
	case u.done:
		return u.terms
	case u.busy:
		panic(endless{fmt.Errorf("%s: no text fulfils it: it requires itself", n.place())})
	}
	c.count()
	u.busy = true
	defer func() { u.busy = false }()
	switch {
	case n.schema != nil:
		u.terms = c.keywords(n.schema)
	case n.except != nil:
		u.terms = c.without(c.any(), n.except)
	default:
		terms := c.terms(n.all[0])
		for _, part := range n.all[1:] {
			terms = c.meet(terms, c.terms(part))
		}
		u.terms = terms
	}
	u.done = true
	return u.terms
}

// empty reports whether nothing fulfils a node. It may miss that where a schema contains itself.
func (c *compiler) empty(n *node) (is bool) {
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(endless); !ok {
				panic(e)
			}
		}
	}()
	return n == c.nothing || len(c.terms(n)) == 0
}
