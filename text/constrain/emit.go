package constrain

import (
	"fmt"
	"slices"
)

// term reads what a term is.
func (c *compiler) term(r rule, t term) {
	n := c.net
	switch {
	case t.exact != nil:
		n.empty(n.shared(r.start, t.exact.spelled(c.words)), r.end)
	case t.kind == "null":
		n.empty(n.shared(r.start, c.words[wordNull]), r.end)
	case t.kind == "boolean":
		for i, is := range t.truth {
			if is {
				n.empty(n.shared(r.start, c.words[i]), r.end)
			}
		}
	case t.kind == "number":
		n.callTo(r.start, r.end, c.numberRule(t.number))
	case t.kind == "string":
		n.callTo(r.start, r.end, c.stringRule(t.text))
	case t.kind == "array":
		c.arrayRule(r, t.array)
	case t.kind == "object":
		c.objectRule(r, t.object)
	}
}

// once makes the rule of a key, if there is none yet.
func (c *compiler) once(key any, make func(r rule)) int32 {
	id, ok := c.made[key]
	if !ok {
		id = c.net.newRule()
		c.made[key] = id
		make(c.net.rules[id])
	}
	return id
}

func (c *compiler) numberRule(s *numbers) int32 {
	if s.plain() {
		return map[bool]int32{false: c.common.number, true: c.common.integer}[s.integer]
	}
	key := fmt.Sprint("number ", s.integer, s.low, s.high, s.multiples, s.others)
	for _, v := range s.values {
		key += " " + v.text
	}
	return c.once(key, func(r rule) {
		for _, v := range s.values {
			c.net.empty(c.net.shared(r.start, v.text), r.end)
		}
		if s.values == nil {
			c.net.digitsOf(r.start, r.end, s.decimals(false))
			c.net.digitsOf(c.net.read(r.start, '-', '-'), r.end, s.decimals(true))
		}
	})
}

func (c *compiler) stringRule(t *texts) int32 {
	return c.once(*t, func(r rule) {
		a, chars := t.regular, maxChars
		if a != nil {
			chars /= len(a.arcs)
		}
		if most := max(t.least, chars); t.most < unbounded && t.most > most {
			t = &texts{t.least, most, a}
		}
		switch {
		case a == nil:
			c.net.string(r, c.common.char, t.least, t.most)
			return
		case t.least > 0 || t.most < unbounded:
			a = both(a, lengths(t.least, t.most))
		}
		end := c.net.state()
		c.characters(c.net.text(r.start, `"`), end, a)
		c.net.readTo(end, r.end, '"', '"')
	})
}

// arrayRule reads an array. A state is how many items were read, and which of contains they
// fulfil: a bit each.
func (c *compiler) arrayRule(r rule, a *arrays) {
	n := c.net
	if len(a.contains) > maxContains {
		panic(fmt.Errorf("more than %d contains at once are not supported", maxContains))
	}
	if most := max(a.least, maxItems); a.most < unbounded && a.most > most {
		shorter := *a
		shorter.most = most
		a = &shorter
	}
	full := 1<<len(a.contains) - 1
	states := func() []int32 {
		list := make([]int32, full+1)
		for i := range list {
			list[i] = n.state()
		}
		return list
	}
	end := n.state()
	at := states()
	n.empty(n.text(r.start, "["), at[0])
	for i := 0; n.err == nil; i++ {
		if i >= a.least {
			n.empty(at[full], end)
		}
		if i == a.most || c.empty(a.item(i)) {
			break
		}
		to := at // the next is like all that follow
		loops := a.most == unbounded && i >= max(a.least, len(a.prefix), 1)
		if !loops {
			to = states()
		}
		for fulfilled, from := range at {
			if i > 0 {
				from = n.spaced(from, ",")
			}
			n.callTo(from, to[fulfilled], c.rule(a.item(i)))
			for j, node := range a.contains {
				if fulfilled>>j&1 == 0 {
					n.callTo(from, to[fulfilled|1<<j], c.rule(c.and(a.item(i), node)))
				}
			}
		}
		if at = to; loops {
			break
		}
	}
	n.readTo(end, r.end, ']', ']')
}

// pairing is a member of an object: its name and what it must be.
type pairing struct {
	name string
	node *node
}

// objectRule reads an object: the members that the schema names, in its order, and then others.
// A state is how many members were read, as far as that matters.
func (c *compiler) objectRule(r rule, o *objects) {
	n := c.net
	top := max(1, o.least)
	if o.most < unbounded {
		top = max(1, o.most)
	}
	if top > maxCounted {
		panic(fmt.Errorf("minProperties and maxProperties above %d are not supported", maxCounted))
	}
	at := make([]int32, top+1)
	for i := range at {
		at[i] = n.state()
	}
	n.empty(n.text(r.start, "{"), at[0])
	var known []string
	for _, l := range o.layers {
		known = union(known, l.names)
	}
	known = union(known, o.required)
	most := 0
	for _, name := range known {
		value := c.memberOf(o, name)
		if c.empty(value) {
			continue
		}
		member := c.once(pairing{name, value}, func(r rule) {
			n.callTo(n.spaced(n.quoted(r.start, name), ":"), r.end, c.rule(value))
		})
		at = c.member(o, at, member, slices.Contains(o.required, name))
		most++
	}
	end := n.state()
	for i, from := range at {
		if o.least <= i && i <= o.most {
			n.empty(from, end)
		}
	}
	if other := c.other(o, known); other != noRule {
		if o.least > most+1 { // names may come twice
			panic(fmt.Errorf("minProperties above %d is not supported here: it counts members without a name in properties", most+1))
		}
		c.others(o, at, end, other)
	}
	n.readTo(end, r.end, '}', '}')
}

// after reads what is between members, from the state of i members.
func (c *compiler) after(from int32, i int) int32 {
	if i == 0 {
		return from
	}
	return c.net.spaced(from, ",")
}

// member reads one member, or if it is not required perhaps none.
func (c *compiler) member(o *objects, at []int32, member int32, required bool) []int32 {
	n := c.net
	to := make([]int32, len(at))
	for i := range to {
		to[i] = n.state()
	}
	for i, from := range at {
		if i < o.most {
			n.callTo(c.after(from, i), to[min(i+1, len(at)-1)], member)
		}
		if !required {
			n.empty(from, to[i])
		}
	}
	return to
}

// others reads members that have no name in the schema. Only the first counts for minProperties.
func (c *compiler) others(o *objects, at []int32, end, other int32) {
	n := c.net
	some := make([]int32, len(at))
	for i := range some {
		some[i] = n.state()
		n.empty(some[i], end)
	}
	for i := range at {
		j := min(i+1, len(at)-1)
		if i < o.most && i+1 >= o.least {
			n.callTo(c.after(at[i], i), some[j], other)
		}
		if i > 0 && i < o.most {
			n.callTo(c.after(some[i], i), some[j], other)
		}
	}
}

// region is the names that the same patterns match, and what their members must be.
type region struct {
	regular *automaton // nil: all
	node    *node
}

// other is the rule of a member that has no name in the schema, or noRule.
func (c *compiler) other(o *objects, known []string) int32 {
	regions := []region{{nil, c.anything}}
	if len(known) > 0 {
		regions[0].regular = minus(nil, among(known))
	}
	for _, names := range o.names {
		var next []region
		for _, t := range c.terms(names) {
			for _, g := range regions {
				if t.kind == "string" {
					g.regular = both(both(g.regular, t.text.regular), lengths(t.text.least, t.text.most))
					next = append(next, g)
				}
			}
		}
		regions = next
	}
	for _, l := range o.layers {
		regions = c.split(regions, l)
	}
	regions = slices.DeleteFunc(regions, func(g region) bool { return g.regular != nil && g.regular.empty() || c.empty(g.node) })
	if len(regions) == 0 {
		return noRule
	}
	id := c.net.newRule()
	r := c.net.rules[id]
	for _, g := range regions {
		name := c.stringRule(&texts{0, unbounded, g.regular})
		c.net.callTo(c.net.spaced(c.net.call(r.start, name), ":"), r.end, c.rule(g.node))
	}
	return id
}

// split splits regions by the patterns of a layer.
func (c *compiler) split(regions []region, l *layer) (out []region) {
	states := 0
	sum := func(a *automaton) *automaton {
		if states += len(a.arcs); states > maxRegionStates {
			panic(fmt.Errorf("patternProperties has patterns that overlap in too many ways; use fewer, or simpler ones"))
		}
		return a
	}
	for _, g := range regions {
		unmatched := []region{g}
		var matched []region
		for _, p := range l.patterns {
			var in, rest []region
			for _, g := range slices.Concat(matched, unmatched) {
				if a := sum(both(g.regular, p.regular)); !a.empty() {
					in = append(in, region{a, c.and(g.node, p.node)})
				}
			}
			cut := func(list []region) (rest []region) {
				for _, g := range list {
					if a := sum(minus(g.regular, p.regular)); !a.empty() {
						if g.regular = a; !p.exact { // it may match for a validator
							g.node = c.and(g.node, p.node)
						}
						rest = append(rest, g)
					}
				}
				return rest
			}
			rest, unmatched = cut(matched), cut(unmatched)
			matched = slices.Concat(rest, in)
			if len(matched)+len(unmatched) > maxRegions {
				panic(fmt.Errorf("patternProperties has patterns that overlap in more than %d ways", maxRegions))
			}
		}
		for _, g := range unmatched {
			matched = append(matched, region{g.regular, c.and(g.node, l.others)})
		}
		out = append(out, matched...)
	}
	return out
}
