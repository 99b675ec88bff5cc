package constrain

import (
	"fmt"
	"slices"
)

// A schema is compiled to a union of terms. A term is the values of one kind that fulfil some
// constraints; an intersection of terms is a term, or none. The constraints on parts of a value
// are nodes, which are expanded when they are come to, so that schemas may contain themselves.

// term is a set of values of a kind; what another kind has is not used.
type term struct {
	kind   string
	truth  [2]bool // of a boolean: false, true
	number *numbers
	text   *texts
	array  *arrays
	object *objects
	exact  *value // an array or object: this one
	free   bool   // no keyword is about its kind
}

// texts is a set of strings.
type texts struct {
	least, most int
	regular     *automaton // nil: all
}

// arrays is a set of arrays: items by place, and behind them; some item must fulfil each of
// contains.
type arrays struct {
	prefix      []*node
	rest        *node
	least, most int
	contains    []*node
}

// objects is a set of objects: of all layers, each of one schema.
type objects struct {
	layers      []*layer
	required    []string
	names       []*node // that all names fulfil
	least, most int
}

// layer is the constraints on members by name, and of those that have neither a name nor a pattern.
type layer struct {
	names    []string
	members  map[string]*node
	patterns []named
	others   *node
}

type named struct {
	regular *automaton
	exact   bool
	node    *node
}

var kinds = []string{"array", "boolean", "null", "number", "object", "string"}

// any is the terms of all values.
func (c *compiler) any() (list []term) {
	for _, kind := range kinds {
		t := c.all(kind)
		t.free = true
		list = append(list, t)
	}
	return list
}

// all is the term of all values of a kind.
func (c *compiler) all(kind string) term {
	return term{kind: kind, truth: [2]bool{true, true}, number: &numbers{}, text: &texts{most: unbounded},
		array: &arrays{rest: c.anything, most: unbounded}, object: &objects{most: unbounded}}
}

// meet is the intersection of two unions.
func (c *compiler) meet(a, b []term) (out []term) {
	for _, t := range a {
		for _, u := range b {
			c.count()
			if both, ok := c.intersect(t, u); ok {
				out = append(out, both)
			}
		}
	}
	c.bound(out)
	return out
}

// bound bounds the size of a union.
func (c *compiler) bound(list []term) {
	if len(list) > maxTerms {
		panic(fmt.Errorf("the schema has more than %d combinations of its alternatives", maxTerms))
	}
}

// count bounds the work of a schema.
func (c *compiler) count() {
	if c.work++; c.work > maxMeets {
		panic(fmt.Errorf("the schema has too many combinations of its alternatives"))
	}
}

// intersect is the intersection of two terms, unless it is known to be empty.
func (c *compiler) intersect(t, u term) (term, bool) {
	if t.kind != u.kind {
		return term{}, false
	}
	t.free = t.free && u.free
	switch {
	case t.exact != nil:
		return t, c.holds(u, t.exact)
	case u.exact != nil:
		return u, c.holds(t, u.exact)
	}
	switch t.kind {
	case "boolean":
		t.truth = [2]bool{t.truth[0] && u.truth[0], t.truth[1] && u.truth[1]}
		return t, t.truth[0] || t.truth[1]
	case "number":
		t.number = t.number.and(u.number)
		return t, !t.number.empty()
	case "string":
		t.text = &texts{max(t.text.least, u.text.least), min(t.text.most, u.text.most), both(t.text.regular, u.text.regular)}
		return t, t.text.least <= t.text.most && (t.text.regular == nil || !t.text.regular.empty())
	case "array":
		t.array = c.bothArrays(t.array, u.array)
		return t, !c.emptyArray(t.array)
	case "object":
		a, b := t.object, u.object
		t.object = &objects{slices.Concat(a.layers, b.layers), union(a.required, b.required), slices.Concat(a.names, b.names), max(a.least, b.least), min(a.most, b.most)}
		return t, !c.emptyObject(t.object)
	}
	return t, true
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, name := range b {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func (a *arrays) item(i int) *node {
	if i < len(a.prefix) {
		return a.prefix[i]
	}
	return a.rest
}

func (c *compiler) bothArrays(a, b *arrays) *arrays {
	out := &arrays{rest: c.and(a.rest, b.rest), least: max(a.least, b.least), most: min(a.most, b.most), contains: slices.Concat(a.contains, b.contains)}
	for i := range max(len(a.prefix), len(b.prefix)) {
		out.prefix = append(out.prefix, c.and(a.item(i), b.item(i)))
	}
	return out
}

// The two below may miss that a set is empty, where a schema contains itself.

func (c *compiler) emptyArray(a *arrays) bool {
	if a.least > a.most || len(a.contains) > 0 && a.most == 0 {
		return true
	}
	for i := range min(a.least, len(a.prefix)+1) {
		if c.empty(a.item(i)) {
			return true
		}
	}
	return slices.ContainsFunc(a.contains, c.empty)
}

func (c *compiler) emptyObject(o *objects) bool {
	if len(o.required) > o.most || o.least > o.most {
		return true
	}
	return slices.ContainsFunc(o.required, func(name string) bool { return c.empty(c.memberOf(o, name)) })
}

// memberOf is what a member of a name must be; none if it may not be there.
func (c *compiler) memberOf(o *objects, name string) *node {
	out := c.anything
	for _, l := range o.layers {
		out = c.and(out, c.layerMember(l, name))
	}
	for _, n := range o.names {
		if !c.admits(n, &value{kind: '"', text: name}) {
			return c.nothing
		}
	}
	return out
}

func (c *compiler) layerMember(l *layer, name string) *node {
	out, found := l.members[name]
	if !found {
		out = c.anything
	}
	for _, p := range l.patterns {
		switch {
		case p.regular.has(name):
			out, found = c.and(out, p.node), true
		case p.exact:
		case c.wide: // it may match, or not
			found = true
		default:
			out = c.and(out, p.node)
		}
	}
	if !found {
		out = c.and(out, l.others)
	}
	return out
}

// admits reports whether a value fulfils a node.
func (c *compiler) admits(n *node, v *value) bool {
	return slices.ContainsFunc(c.terms(n), func(t term) bool { return c.holds(t, v) })
}

// holds reports whether a value is in a term.
func (c *compiler) holds(t term, v *value) bool {
	if t.kind != kindOf(v) {
		return false
	}
	if t.exact != nil {
		return t.exact.equal(v)
	}
	switch t.kind {
	case "boolean":
		return t.truth[0] && !v.truth || t.truth[1] && v.truth
	case "number":
		return t.number.has(v)
	case "string":
		n := len([]rune(v.text))
		return t.text.least <= n && n <= t.text.most && (t.text.regular == nil || t.text.regular.has(v.text))
	case "array":
		for i, item := range v.items {
			if !c.admits(t.array.item(i), item) {
				return false
			}
		}
		for _, n := range t.array.contains {
			if !slices.ContainsFunc(v.items, func(item *value) bool { return c.admits(n, item) }) {
				return false
			}
		}
		return t.array.least <= len(v.items) && len(v.items) <= t.array.most
	case "object":
		for _, m := range v.members {
			if !c.admits(c.memberOf(t.object, m.name), m.value) {
				return false
			}
		}
		missing := func(name string) bool { return v.get(name) == nil }
		return t.object.least <= len(v.members) && len(v.members) <= t.object.most && !slices.ContainsFunc(t.object.required, missing)
	}
	return true
}

func kindOf(v *value) string {
	return map[byte]string{'n': "null", 't': "boolean", '0': "number", '"': "string", '[': "array", '{': "object"}[v.kind]
}
