package constrain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/bail"
)

// Object is the grammar of any JSON object.
func Object() *Grammar {
	n := &network{}
	n.newRule()
	c := newCommon(n)
	n.callTo(n.rules[0].start, n.rules[0].end, c.object)
	n.finish()
	return &n.Grammar
}

// Keywords are those of schemas that texts are held to, and Annotations those that change nothing.
var (
	Keywords    = []string{"$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "enum", "items", "maxItems", "maxLength", "minItems", "minLength", "properties", "required", "type"}
	Annotations = []string{"$comment", "$id", "$schema", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
)

const (
	maxDepth        = 32  // of schemas in each other
	maxAlternatives = 128 // of anyOf, and properties of an object: less than maxConfigs
)

// Compile makes the grammar of a JSON schema. Objects have the properties that it names, in its
// order, and others only if it names none. A keyword that is not in [Keywords] or [Annotations] is
// an error with its place, as is a schema that no text of bounded depth fulfils.
func Compile(schema []byte) (_ *Grammar, err error) {
	defer bail.Catch(&err)
	c := &compiler{defs: map[string]*value{}, rules: map[*value]int32{}, places: map[int32]string{}}
	c.newRule()
	c.common = newCommon(&c.network)
	root, err := parse(schema)
	if err != nil {
		return nil, fmt.Errorf("#: %w", err)
	}
	c.root = root
	c.callTo(c.Grammar.rules[0].start, c.Grammar.rules[0].end, c.schema("#", root, 0))
	if !c.finish() {
		return nil, c.impossible()
	}
	return &c.Grammar, nil
}

// impossible is the error of a schema that no text fulfils: it names the innermost part of which
// that is so.
func (c *compiler) impossible() error {
	inOrder := func(a, b *value) int { return int(c.rules[a] - c.rules[b]) }
	for _, v := range slices.SortedFunc(maps.Keys(c.rules), inOrder) {
		id := c.rules[v]
		if c.states[c.Grammar.rules[id].start].need != never || c.calls(id) {
			continue
		}
		at := c.places[id]
		switch {
		case v.get("enum") != nil || v.get("const") != nil:
			return fmt.Errorf("%s: no text fulfils it: none of its values is of its type, or there are none", at)
		case v.get("anyOf") != nil:
			return fmt.Errorf("%s/anyOf: no text fulfils it: it has no schemas", at)
		}
		return fmt.Errorf("%s: no text fulfils it: it has no type", at)
	}
	return fmt.Errorf("#: no text fulfils the schema: a part of it requires itself, without an end, or is nested too deep")
}

// calls reports whether a rule that has no end lacks it for a schema within it.
func (c *compiler) calls(id int32) bool {
	reached, todo := map[int32]bool{}, []int32{c.Grammar.rules[id].start}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if reached[at] {
			continue
		}
		reached[at] = true
		for _, e := range c.states[at].edges {
			if e.call != noRule && c.states[c.Grammar.rules[e.call].start].need == never {
				return true
			}
			todo = append(todo, e.to)
		}
	}
	return false
}

// compiler makes rules of schemas. Its methods panic with their errors.
type compiler struct {
	network
	common common
	root   *value
	defs   map[string]*value
	rules  map[*value]int32
	places map[int32]string // of rules, in the schema
}

// value is a JSON value whose object's members keep their order.
type value struct {
	raw     json.RawMessage
	members []member // of an object
	object  bool
}

type member struct {
	name  string
	value *value
}

func (v *value) get(name string) *value {
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// parse reads a value; objects in arrays are read when they are come to.
func parse(raw []byte) (*value, error) {
	v := &value{raw: bytes.TrimSpace(raw)}
	d := json.NewDecoder(bytes.NewReader(v.raw))
	t, err := d.Token()
	if err != nil || t != json.Delim('{') {
		return v, err
	}
	v.object = true
	for seen := map[string]bool{}; d.More(); {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		name := key.(string)
		if seen[name] {
			return nil, fmt.Errorf("%q is there twice", short(name))
		}
		seen[name] = true
		v.members = append(v.members, member{name, &value{raw: raw}})
	}
	return v, nil
}

// open parses a member of an object, once.
func (v *value) open() error {
	if v.object {
		return nil
	}
	p, err := parse(v.raw)
	if err == nil {
		*v = *p
	}
	return err
}

func short(name string) string {
	if len(name) > 64 {
		return name[:64] + "…"
	}
	return name
}

// schema is the rule of a schema. One that is come to twice, by $ref, has one.
func (c *compiler) schema(at string, v *value, depth int) int32 {
	if rule, ok := c.rules[v]; ok {
		return rule
	}
	if err := v.open(); err != nil {
		panic(fmt.Errorf("%s: %w", at, err))
	}
	switch {
	case depth > maxDepth:
		panic(fmt.Errorf("%s: schemas are more than %d deep", short(at), maxDepth))
	case string(v.raw) == "true":
		return c.common.any
	case string(v.raw) == "false":
		panic(fmt.Errorf("%s: no text fulfils the schema false", at))
	case !v.object:
		panic(fmt.Errorf("%s: a schema must be an object or true, and is %s", at, short(string(v.raw))))
	}
	check(at, v)
	id := c.newRule()
	c.rules[v], c.places[id] = id, at
	r := c.Grammar.rules[id]
	c.read(at, r, v, depth)
	if c.err != nil {
		panic(fmt.Errorf("%s: %w", at, c.err))
	}
	return id
}

// read makes the rule of a schema that is an object.
func (c *compiler) read(at string, r rule, v *value, depth int) {
	for _, whole := range []struct {
		name  string
		among []string // keywords that may stand beside it
		read  func(at string, r rule, v *value, depth int)
	}{{"$ref", nil, c.ref}, {"anyOf", nil, c.anyOf}, {"const", []string{"type"}, c.constant}, {"enum", []string{"type"}, c.enum}} {
		if v.get(whole.name) == nil {
			continue
		}
		for _, m := range v.members {
			if m.name != whole.name && !slices.Contains(whole.among, m.name) && m.name != "$defs" && m.name != "definitions" && slices.Contains(Keywords, m.name) {
				panic(fmt.Errorf("%s: %s beside %s is not supported", at, m.name, whole.name))
			}
		}
		whole.read(at, r, v, depth)
		return
	}
	c.types(at, r, v, depth)
}

// check looks at the keywords' names.
func check(at string, v *value) {
	for _, m := range v.members {
		if !slices.Contains(Keywords, m.name) && !slices.Contains(Annotations, m.name) {
			panic(fmt.Errorf("%s: the keyword %q is not supported; supported are %s", at, short(m.name), strings.Join(Keywords, ", ")))
		}
	}
}

// read reads what a keyword says; what is not there changes nothing.
func read[T any](at string, v *value, name, kind string, into *T) {
	m := v.get(name)
	if m != nil && (bytes.Equal(m.raw, []byte("null")) || json.Unmarshal(m.raw, into) != nil) {
		panic(fmt.Errorf("%s/%s: it must be %s, and is %s", at, name, kind, short(string(m.raw))))
	}
}

// ref is another part of the schema: # or #/a/b.
func (c *compiler) ref(at string, r rule, v *value, depth int) {
	var ref string
	read(at, v, "$ref", "a string", &ref)
	path, ok := strings.CutPrefix(ref, "#")
	to := c.root
	for _, name := range strings.Split(path, "/")[1:] {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		if ok = ok && to != nil && to.open() == nil; ok {
			to = to.get(name)
		}
	}
	if !ok || to == nil || path != "" && path[0] != '/' {
		panic(fmt.Errorf("%s/$ref: %q is not in the schema; it must be # or such as #/$defs/name", at, short(ref)))
	}
	c.callTo(r.start, r.end, c.schema(short(ref), to, depth+1))
}

func (c *compiler) anyOf(at string, r rule, v *value, depth int) {
	var list []json.RawMessage
	read(at, v, "anyOf", "an array of schemas", &list)
	if len(list) > maxAlternatives {
		panic(fmt.Errorf("%s/anyOf: it has %d schemas; the limit is %d", at, len(list), maxAlternatives))
	}
	for i, raw := range list {
		c.callTo(r.start, r.end, c.schema(fmt.Sprintf("%s/anyOf/%d", at, i), &value{raw: raw}, depth+1))
	}
}

func (c *compiler) constant(at string, r rule, v *value, _ int) {
	c.among(at, r, v, []json.RawMessage{v.get("const").raw})
}

func (c *compiler) enum(at string, r rule, v *value, _ int) {
	var list []json.RawMessage
	read(at, v, "enum", "an array of values", &list)
	c.among(at, r, v, list)
}

// among reads one of some values, of those that are of the types.
func (c *compiler) among(at string, r rule, v *value, list []json.RawMessage) {
	types := typesOf(at, v)
	for _, raw := range list {
		kind := kindOf(raw)
		if !slices.Contains(types, kind) && !(kind == "integer" && slices.Contains(types, "number")) {
			continue
		}
		if kind == "string" {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				panic(fmt.Errorf("%s: %w", at, err))
			}
			c.empty(c.quoted(r.start, text), r.end)
			continue
		}
		compact, err := ascii(raw)
		if err != nil {
			panic(fmt.Errorf("%s: %w", at, err))
		}
		c.empty(c.shared(r.start, compact), r.end)
	}
}

// ascii is a value as JSON without spaces and without what is not ASCII.
func ascii(raw json.RawMessage) (string, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "", err
	}
	var out strings.Builder
	for _, c := range b.String() { // beyond ASCII only strings have something
		if c < 0x7f {
			out.WriteRune(c)
		} else {
			out.WriteString(escaped(c))
		}
	}
	return out.String(), nil
}

// kindOf is the type of a value; a number that is written as one is an integer.
func kindOf(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	if bytes.ContainsAny(raw, ".eE") {
		return "number"
	}
	return "integer"
}

var kinds = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// typesOf are the types that a schema allows.
func typesOf(at string, v *value) []string {
	if v.get("type") == nil {
		return kinds
	}
	var one string
	list := []string{}
	if json.Unmarshal(v.get("type").raw, &one) == nil {
		list = []string{one}
	} else {
		read(at, v, "type", "a type or an array of types", &list)
	}
	for _, name := range list {
		if !slices.Contains(kinds, name) {
			panic(fmt.Errorf("%s/type: unknown type %q; it must be one of %s", at, short(name), strings.Join(kinds, ", ")))
		}
	}
	return list
}

// of are the keywords that only values of a type have.
var of = map[string][]string{
	"object": {"properties", "required", "additionalProperties"},
	"array":  {"items", "minItems", "maxItems"},
	"string": {"minLength", "maxLength"},
}

// types reads a value of one of the types. A schema without a type is of those that its
// keywords are about, or of any.
func (c *compiler) types(at string, r rule, v *value, depth int) {
	types := typesOf(at, v)
	if v.get("type") == nil {
		var about []string
		for _, kind := range slices.Sorted(maps.Keys(of)) {
			if slices.ContainsFunc(of[kind], func(name string) bool { return v.get(name) != nil }) {
				about = append(about, kind)
			}
		}
		if types = about; about == nil {
			c.callTo(r.start, r.end, c.common.any)
			return
		}
	}
	for _, kind := range types {
		switch kind {
		case "object":
			c.object(at, r, v, depth)
		case "array":
			c.array(at, r, v, depth)
		case "string":
			c.string(at, r, v)
		case "integer":
			c.callTo(r.start, r.end, c.common.integer)
		case "number":
			c.callTo(r.start, r.end, c.common.number)
		case "null":
			c.empty(c.text(r.start, "null"), r.end)
		case "boolean":
			c.empty(c.text(r.start, "true"), r.end)
			c.empty(c.text(r.start, "false"), r.end)
		}
	}
}

// bounds reads a minimum and a maximum; high is -1 if the schema has no maximum.
func bounds(at string, v *value, least, most string) (low, high int) {
	high = -1
	for _, b := range []struct {
		name string
		into *int
	}{{least, &low}, {most, &high}} {
		read(at, v, b.name, "a whole number", b.into)
		if v.get(b.name) != nil && (*b.into < 0 || *b.into > maxStates) {
			panic(fmt.Errorf("%s/%s: it is %d; it must be from 0 to %d", at, b.name, *b.into, maxStates))
		}
	}
	if high >= 0 && low > high {
		panic(fmt.Errorf("%s/%s: it is %d, which is more than %s, %d", at, least, low, most, high))
	}
	return low, high
}

func (c *compiler) string(at string, r rule, v *value) {
	least, most := bounds(at, v, "minLength", "maxLength")
	c.network.string(r, c.common.char, least, most)
}

func (c *compiler) array(at string, r rule, v *value, depth int) {
	least, most := bounds(at, v, "minItems", "maxItems")
	item := c.common.any
	if items := v.get("items"); items != nil {
		item = c.schema(at+"/items", items, depth+1)
	}
	c.network.array(r, item, least, most)
}

func (c *compiler) object(at string, r rule, v *value, depth int) {
	properties, others := &value{object: true}, v.get("additionalProperties")
	if p := v.get("properties"); p != nil {
		if err := p.open(); err != nil || !p.object {
			panic(fmt.Errorf("%s/properties: it must be an object of schemas, each name once%s", at, because(err)))
		}
		if properties = p; len(p.members) > maxAlternatives {
			panic(fmt.Errorf("%s/properties: it has %d; the limit is %d", at, len(p.members), maxAlternatives))
		}
	}
	var required []string
	read(at, v, "required", "an array of names", &required)
	for _, name := range required {
		if properties.get(name) == nil {
			panic(fmt.Errorf("%s/required: %q is not in properties", at, short(name)))
		}
	}
	value, none := c.common.any, others != nil && string(others.raw) == "false"
	if others != nil && !none {
		value = c.schema(at+"/additionalProperties", others, depth+1)
	}
	if len(properties.members) == 0 && !none {
		c.mapping(r, c.common.str, value)
		return
	}
	c.members(at, r, properties.members, required, depth)
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// members reads an object's members in their order; the state where one was read, of which
// another follows behind a comma, is not that where none was.
func (c *compiler) members(at string, r rule, list []member, required []string, depth int) {
	none := c.text(r.start, "{")
	some := c.state()
	for _, m := range list {
		rule := c.schema(at+"/properties/"+short(m.name), m.value, depth+1)
		name := c.state()
		if none >= 0 {
			c.empty(none, name)
		}
		c.empty(c.spaced(some, ","), name)
		next := c.call(c.spaced(c.quoted(name, m.name), ":"), rule)
		if slices.Contains(required, m.name) {
			none, some = -1, next
			continue
		}
		after := c.state()
		c.empty(some, after)
		c.empty(next, after)
		some = after
	}
	c.readTo(some, r.end, '}', '}')
	if none >= 0 {
		c.readTo(none, r.end, '}', '}')
	}
}
