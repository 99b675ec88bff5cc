package constrain

import "slices"

// A difference is not always a union of terms, and of some formats and patterns only a part is
// regular. A node therefore has two unions. The narrow one lies within it, and texts are held to
// it. The wide one encloses it, and is subtracted, as not and oneOf require. The compiler's field
// wide says which one is made.

// flipped calls f for the other union.
func (c *compiler) flipped(f func()) {
	defer func(was bool) { c.wide = was }(c.wide)
	c.wide = !c.wide
	f()
}

// without is what is in a union but not in a node.
func (c *compiler) without(list []term, n *node) []term {
	var remove []term
	c.flipped(func() { remove = c.terms(n) })
	for _, u := range remove {
		var kept []term
		for _, t := range list {
			if c.meets(t, u) {
				kept = append(kept, c.meet([]term{t}, c.not(u, t))...)
			} else {
				kept = append(kept, t)
			}
			c.bound(kept)
		}
		list = kept
	}
	return list
}

// meets reports whether two terms may have a value in common.
func (c *compiler) meets(t, u term) bool {
	defer func(was bool) { c.wide = was }(c.wide)
	c.wide = true
	c.count()
	_, ok := c.intersect(t, u)
	return ok
}

// not is what of a term's kind is not in it, as far as it may be in t.
func (c *compiler) not(u, t term) (list []term) {
	add := func(change func(*term)) {
		all := c.all(u.kind)
		change(&all)
		list = append(list, all)
	}
	exact := u.exact == nil
	switch {
	case u.exact != nil:
	case u.kind == "boolean":
		add(func(t *term) { t.truth = [2]bool{!u.truth[0], !u.truth[1]} })
	case u.kind == "number":
		for _, set := range u.number.not() {
			add(func(t *term) { t.number = set })
		}
	case u.kind == "string":
		if u.text.least > 0 {
			add(func(t *term) { t.text.most = u.text.least - 1 })
		}
		if u.text.most < unbounded {
			add(func(t *term) { t.text.least = u.text.most + 1 })
		}
		if u.text.regular != nil {
			add(func(t *term) { t.text.regular = minus(nil, u.text.regular) })
		}
	case u.kind == "array":
		exact = c.notArray(u.array, add)
	case u.kind == "object":
		exact = c.notObject(u.object, t.object, add)
	}
	if !exact && c.wide {
		add(func(*term) {})
	}
	return list
}

func (c *compiler) notArray(a *arrays, add func(func(*term))) (exact bool) {
	if a.least > 0 {
		add(func(t *term) { t.array.most = a.least - 1 })
	}
	if a.most < unbounded {
		add(func(t *term) { t.array.least = a.most + 1 })
	}
	for i, item := range a.prefix {
		if item != c.anything {
			add(func(t *term) {
				t.array.least = i + 1
				for range i {
					t.array.prefix = append(t.array.prefix, c.anything)
				}
				t.array.prefix = append(t.array.prefix, c.except(item))
			})
		}
	}
	if a.rest != c.anything && len(a.prefix) == 0 {
		add(func(t *term) { t.array.contains = []*node{c.except(a.rest)} })
	}
	for _, n := range a.contains {
		add(func(t *term) { t.array.rest = c.except(n) })
	}
	return a.rest == c.anything || len(a.prefix) == 0
}

// notObject looks at the members that o names, and of others at those that among names.
func (c *compiler) notObject(o, among *objects, add func(func(*term))) (exact bool) {
	if o.least > 0 {
		add(func(t *term) { t.object.most = o.least - 1 })
	}
	if o.most < unbounded {
		add(func(t *term) { t.object.least = o.most + 1 })
	}
	for _, name := range o.required {
		add(func(t *term) { t.object.layers = []*layer{c.absent(name)} })
	}
	var known []string
	for _, l := range slices.Concat(o.layers, among.layers) {
		known = union(known, l.names)
	}
	for _, name := range union(known, among.required) {
		for _, l := range o.layers {
			var n *node
			c.flipped(func() { n = c.layerMember(l, name) })
			if n == c.anything {
				continue
			}
			add(func(t *term) {
				t.object.required = []string{name}
				t.object.layers = []*layer{{names: []string{name}, members: map[string]*node{name: c.except(n)}, others: c.anything}}
			})
		}
	}
	unknown := func(l *layer) bool { return len(l.patterns) > 0 || l.others != c.anything }
	return len(o.names) == 0 && !slices.ContainsFunc(o.layers, unknown)
}

// absent is the layer of objects without a member.
func (c *compiler) absent(name string) *layer {
	return &layer{names: []string{name}, members: map[string]*node{name: c.nothing}, others: c.anything}
}
