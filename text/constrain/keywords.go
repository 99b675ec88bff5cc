package constrain

import (
	"cmp"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/bail"
)

// Keywords are those of schemas that texts are held to.
var Keywords = []string{"$ref", "additionalItems", "additionalProperties", "allOf", "anyOf", "const", "contains", "dependencies", "dependentRequired", "dependentSchemas", "else", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "if", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern", "patternProperties", "prefixItems", "properties", "propertyNames", "required", "then", "type", "unevaluatedItems", "unevaluatedProperties"}

// refused are the keywords that change what a schema means and are not supported.
var refused = []string{"$dynamicRef", "$recursiveRef", "extends", "disallow", "divisibleBy", "maxContains", "uniqueItems"}

// keywords is the union of terms that fulfil a schema.
func (c *compiler) keywords(v *value) []term {
	c.refuse(v)
	list := c.typed(v)
	if k := cmp.Or(v.get("const"), v.is("enum", '[', "an array of values")); k != nil {
		values := []*value{k}
		if v.get("const") == nil {
			values = k.items
		}
		list = c.meet(list, c.values(values))
		if enum := v.get("enum"); enum != nil && enum != k {
			list = c.meet(list, c.values(enum.items))
		}
	}
	if k := v.is("$ref", '"', "a string"); k != nil {
		list = c.meet(list, c.terms(c.leaf(c.resolve(k))))
	}
	for _, k := range c.schemas(v, "allOf") {
		list = c.meet(list, c.terms(c.leaf(k)))
	}
	if v.get("anyOf") != nil {
		var any []term
		for _, k := range c.schemas(v, "anyOf") {
			any = append(any, c.terms(c.leaf(k))...)
		}
		list = c.meet(list, any)
	}
	list = c.oneOf(list, c.schemas(v, "oneOf"), v.get("oneOf") != nil)
	if k := v.get("not"); k != nil {
		list = c.without(list, c.leaf(k))
	}
	return c.depend(v, c.branch(v, list))
}

func (c *compiler) refuse(v *value) {
	for _, name := range refused {
		k := v.get(name)
		if k != nil && !(name == "uniqueItems" && (k.kind == 't' && !k.truth || v.get("maxItems") != nil && v.count("maxItems", 0) < 2)) {
			panic(fmt.Errorf("%s: the keyword %q is not supported; supported are %s", v.at, name, strings.Join(Keywords, ", ")))
		}
	}
	for name, covered := range map[string][]string{
		"unevaluatedProperties": {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies"},
		"unevaluatedItems":      {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies", "contains"},
	} {
		if k := v.get(name); k != nil && c.leaf(k) != c.anything {
			for _, other := range covered {
				if v.get(other) != nil {
					panic(fmt.Errorf("%s: the keyword %q is not supported beside %s", v.at, name, other))
				}
			}
		}
	}
}

// schemas are the schemas that a keyword lists.
func (c *compiler) schemas(v *value, name string) []*value {
	k := v.is(name, '[', "an array of schemas")
	if k == nil {
		return nil
	}
	if len(k.items) > maxAlternatives {
		panic(fmt.Errorf("%s: it has %d schemas; the limit is %d", k.at, len(k.items), maxAlternatives))
	}
	return k.items
}

// resolve finds the schema that $ref names: # or such as #/$defs/name or #anchor.
func (c *compiler) resolve(k *value) *value {
	ref := k.text
	for _, name := range []string{"$id", "id"} {
		if id := c.root.get(name); id != nil && id.kind == '"' && id.text != "" {
			if rest, ok := strings.CutPrefix(ref, strings.TrimSuffix(id.text, "#")); ok && (rest == "" || rest[0] == '#') {
				ref = cmp.Or(rest, "#")
			}
		}
	}
	path, ok := strings.CutPrefix(ref, "#")
	if decoded, err := url.PathUnescape(path); err == nil {
		path = decoded
	}
	if k.nested {
		panic(fmt.Errorf("%s: a $ref in a part with an $id of its own is not supported", k.at))
	}
	var to *value
	switch {
	case ok && (path == "" || path[0] == '/'):
		to = c.root.find(path)
	case ok:
		to = c.root.anchor(path)
	}
	if to == nil || to.nested && to.kind == '{' && path != "" && path[0] != '/' {
		panic(fmt.Errorf("%s: %q is not in the schema; it must be # or such as #/$defs/name", k.at, short(k.text)))
	}
	return to
}

// anchor returns the object with an anchor.
func (v *value) anchor(name string) *value {
	for _, key := range []string{"$anchor", "$id", "id"} {
		if k := v.get(key); k != nil && k.kind == '"' && (k.text == "#"+name || key == "$anchor" && k.text == name) {
			return v
		}
	}
	for _, m := range v.members {
		if to := m.value.anchor(name); to != nil {
			return to
		}
	}
	for _, item := range v.items {
		if to := item.anchor(name); to != nil {
			return to
		}
	}
	return nil
}

// scope marks the parts with a base URI of their own.
func (v *value) scope(nested bool) {
	for _, key := range []string{"$id", "id"} {
		if k := v.get(key); k != nil && k.kind == '"' && !strings.HasPrefix(k.text, "#") && v.at != "#" {
			nested = true
		}
	}
	v.nested = nested
	for _, m := range v.members {
		m.value.scope(nested)
	}
	for _, item := range v.items {
		item.scope(nested)
	}
}

// values is the union of some values.
func (c *compiler) values(list []*value) (out []term) {
	var words []string
	var numbers []*value
	truth, null := [2]bool{}, false
	for _, v := range list {
		switch v.kind {
		case '"':
			words = append(words, whole(v.at, v.text))
		case '0':
			numbers = append(numbers, v)
		case 't':
			truth = [2]bool{truth[0] || !v.truth, truth[1] || v.truth}
		case 'n':
			null = true
		default:
			t := c.all(kindOf(v))
			t.exact = v
			out = append(out, t)
		}
	}
	add := func(kind string, is bool, change func(*term)) {
		if is {
			t := c.all(kind)
			change(&t)
			out = append(out, t)
		}
	}
	add("string", words != nil, func(t *term) { t.text.regular = among(words) })
	add("number", numbers != nil, func(t *term) { t.number.values = numbers })
	add("boolean", truth != [2]bool{}, func(t *term) { t.truth = truth })
	add("null", null, func(*term) {})
	return out
}

// oneOf is what one schema of a list admits, and no other.
func (c *compiler) oneOf(list []term, of []*value, is bool) (out []term) {
	if !is {
		return list
	}
	for i, k := range of {
		one := c.meet(list, c.terms(c.leaf(k)))
		for j, other := range of {
			if i != j && len(one) > 0 {
				one = c.without(one, c.leaf(other))
			}
		}
		out = append(out, one...)
	}
	return out
}

// branch applies if, then and else.
func (c *compiler) branch(v *value, list []term) []term {
	condition := v.get("if")
	if condition == nil || v.get("then") == nil && v.get("else") == nil {
		return list
	}
	part := func(name string, list []term) []term {
		if k := v.get(name); k != nil {
			return c.meet(list, c.terms(c.leaf(k)))
		}
		return list
	}
	n := c.leaf(condition)
	return slices.Concat(part("then", c.meet(list, c.terms(n))), part("else", c.without(list, n)))
}

// depend applies what the presence of a member requires.
func (c *compiler) depend(v *value, list []term) []term {
	for _, name := range []string{"dependencies", "dependentRequired", "dependentSchemas"} {
		k := v.is(name, '{', "an object")
		if k == nil {
			continue
		}
		for _, m := range k.members {
			absent, present := c.all("object"), c.all("object")
			absent.object.layers = []*layer{c.absent(m.name)}
			present.object.required = []string{m.name}
			with := []term{present}
			if m.value.kind == '[' {
				present.object.required = union(present.object.required, k.words(m.name, "an array of names"))
			} else {
				with = c.meet(with, c.terms(c.leaf(m.value)))
			}
			others := slices.DeleteFunc(c.any(), func(t term) bool { return t.kind == "object" })
			list = c.meet(list, slices.Concat(others, []term{absent}, with))
		}
	}
	return list
}

// about are the keywords about one kind of values.
var about = map[string][]string{
	"array":  {"additionalItems", "contains", "items", "maxItems", "minItems", "prefixItems", "unevaluatedItems"},
	"number": {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"},
	"object": {"additionalProperties", "maxProperties", "minProperties", "patternProperties", "properties", "propertyNames", "required", "unevaluatedProperties"},
	"string": {"format", "maxLength", "minLength", "pattern"},
}

// typed is the union of the kinds of a schema, each with the keywords about it.
func (c *compiler) typed(v *value) (list []term) {
	types := kinds
	if k := v.get("type"); k != nil && k.kind == '"' {
		types = []string{k.text}
	} else if k != nil {
		types = v.words("type", "a type or an array of types")
	}
	for _, kind := range types {
		if kind == "integer" {
			if slices.Contains(types, "number") {
				continue
			}
		} else if !slices.Contains(kinds, kind) {
			panic(fmt.Errorf("%s/type: unknown type %q; it must be one of %s or integer", v.at, short(kind), strings.Join(kinds, ", ")))
		}
		t := c.all(cmp.Or(map[string]string{"integer": "number"}[kind], kind))
		t.free = v.get("type") == nil && !slices.ContainsFunc(about[t.kind], func(name string) bool { return v.get(name) != nil })
		empty := false
		switch t.kind {
		case "number":
			c.number(v, t.number, kind == "integer")
			empty = t.number.empty()
		case "string":
			c.text(v, t.text)
			empty = t.text.least > t.text.most || t.text.regular != nil && t.text.regular.empty()
		case "array":
			c.array(v, t.array)
			empty = c.emptyArray(t.array)
		case "object":
			c.object(v, t.object)
			empty = c.emptyObject(t.object)
		}
		if !empty {
			list = append(list, t)
		}
	}
	return list
}

func (c *compiler) number(v *value, n *numbers, integer bool) {
	n.integer = integer
	for _, b := range []struct {
		name, open string
		side       int
		into       **bound
	}{{"minimum", "exclusiveMinimum", 1, &n.low}, {"maximum", "exclusiveMaximum", -1, &n.high}} {
		open := v.get(b.open)
		if k := v.is(b.name, '0', "a number"); k != nil {
			*b.into = tighter(*b.into, &bound{k.rat(), open != nil && open.kind == 't' && open.truth}, b.side) // as in draft 4
		}
		if open != nil && open.kind != 't' {
			*b.into = tighter(*b.into, &bound{v.is(b.open, '0', "a number").rat(), true}, b.side)
		}
	}
	if k := v.is("multipleOf", '0', "a number"); k != nil {
		r := k.rat()
		if r.Sign() <= 0 {
			panic(fmt.Errorf("%s: it is %s; it must be above 0", k.at, short(k.text)))
		}
		n.multiples = []*big.Rat{r}
	}
}

func (c *compiler) text(v *value, t *texts) {
	t.least, t.most = v.count("minLength", 0), v.count("maxLength", unbounded)
	if k := v.is("pattern", '"', "a string"); k != nil {
		p := c.pattern(k.at, k.text)
		if p.exact || !c.wide {
			t.regular = p.regular
		}
	}
	if k := v.is("format", '"', "a string"); k != nil {
		f, ok := formats[k.text]
		if !ok && k.text == "regex" {
			panic(fmt.Errorf("%s: the format regex is not supported", k.at))
		} else if !ok { // no draft has it, so that no validator looks at it
			return
		}
		if !c.wide {
			t.regular = both(t.regular, c.pattern(k.at, "^("+f.expression+")$").regular)
			t.most = min(t.most, f.most)
		}
	}
}

func (c *compiler) pattern(at, expression string) *named {
	if p, ok := c.patterns[expression]; ok {
		return p
	}
	defer bail.In(func() string { return at })
	a, exact, err := pattern(whole(at, expression))
	bail.If(err)
	p := &named{regular: a, exact: exact}
	c.patterns[expression] = p
	return p
}

func (c *compiler) array(v *value, a *arrays) {
	a.least, a.most = v.count("minItems", 0), v.count("maxItems", unbounded)
	prefix, rest := v.is("prefixItems", '[', "an array of schemas"), v.get("items")
	if rest != nil && rest.kind == '[' {
		prefix, rest = rest, v.get("additionalItems")
	}
	if prefix != nil {
		for _, k := range c.schemas(&value{members: []member{{"items", prefix}}}, "items") {
			a.prefix = append(a.prefix, c.leaf(k))
		}
	}
	if rest = cmp.Or(rest, v.get("unevaluatedItems")); rest != nil {
		a.rest = c.leaf(rest)
	}
	if k := v.get("contains"); k != nil {
		switch n := v.count("minContains", 1); {
		case n == 1:
			a.contains = []*node{c.leaf(k)}
		case n > 1:
			panic(fmt.Errorf("%s/minContains: it is %d; only 0 and 1 are supported", v.at, n))
		}
	}
}

func (c *compiler) object(v *value, o *objects) {
	o.least, o.most = v.count("minProperties", 0), v.count("maxProperties", unbounded)
	o.required = union(nil, v.words("required", "an array of names"))
	l := &layer{members: map[string]*node{}, others: c.anything}
	if k := v.is("properties", '{', "an object of schemas"); k != nil {
		if len(k.members) > maxAlternatives {
			panic(fmt.Errorf("%s: it has %d; the limit is %d", k.at, len(k.members), maxAlternatives))
		}
		for _, m := range k.members {
			l.names = append(l.names, whole(k.at, m.name))
			l.members[m.name] = c.leaf(m.value)
		}
	}
	if k := v.is("patternProperties", '{', "an object of schemas"); k != nil {
		for _, m := range k.members {
			p := c.pattern(k.at, m.name)
			l.patterns = append(l.patterns, named{p.regular, p.exact, c.leaf(m.value)})
		}
	}
	if k := cmp.Or(v.get("additionalProperties"), v.get("unevaluatedProperties")); k != nil {
		l.others = c.leaf(k)
	}
	if len(l.names)+len(l.patterns) > 0 || l.others != c.anything {
		o.layers = []*layer{l}
	}
	if k := v.get("propertyNames"); k != nil && c.leaf(k) != c.anything {
		o.names = []*node{c.leaf(k)}
	}
}
