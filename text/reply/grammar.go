package reply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/bail"
	"github.com/krait-ml/krait/text/constrain"
)

// Grammar makes the grammar of the answer; content is what it says if it calls nothing, nil for any
// text. A strict tool's schema that texts cannot be held to is a [*SchemaError]; other such tools
// are in the grammar's Loose.
func (c *Config) Grammar(content *constrain.Grammar) (*constrain.Grammar, error) {
	g, err := c.build(content)
	if err != nil && c.Format != nil {
		if wrong := c.loosen(); wrong != nil {
			return nil, wrong
		}
		g, err = c.build(content)
	}
	if err != nil {
		return nil, err
	}
	for _, t := range c.Tools {
		if t.loose {
			g.Loose = append(g.Loose, t.Name)
		}
	}
	return g, nil
}

func (c *Config) build(content *constrain.Grammar) (*constrain.Grammar, error) {
	return constrain.Build(c.words(), func(b *constrain.Builder) constrain.Part {
		said, thought := c.body(b, content), b.Until(c.marked(thinkClose))
		behind := b.Seq(thought, said)
		if content == nil && c.Least == 0 { // it may also end within the thought
			behind = b.Any(b.Free(c.marked(thinkClose)), behind)
		}
		switch c.Thoughts {
		case Begun:
			return behind
		case May:
			return b.Any(b.Seq(b.Text(c.marked(thinkOpen)), behind), said)
		}
		return said
	})
}

// SchemaError is the error of a tool's parameters.
type SchemaError struct {
	Tool string
	Err  error
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("function %s: parameters: %v", e.Tool, e.Err)
}
func (e *SchemaError) Unwrap() error { return e.Err }

// Read reads the tools' parameters. It comes before Grammar and Parser.
func (c *Config) Read() error {
	for i := range c.Tools {
		t := &c.Tools[i]
		err := t.read(c.Format)
		if err != nil && !t.Strict {
			t.loose = true
			err = t.read(c.Format)
		}
		if err != nil {
			return &SchemaError{t.Name, err}
		}
	}
	return nil
}

// loosen finds the tools whose schemas are not supported. All share the bounds of one grammar, so
// that many schemas take no more time than one.
func (c *Config) loosen() error {
	_, err := constrain.Build(c.words(), func(b *constrain.Builder) constrain.Part {
		for i := range c.Tools {
			t := &c.Tools[i]
			err := c.try(b, t)
			if err != nil && t.Strict {
				panic(&SchemaError{t.Name, err})
			}
			t.loose = t.loose || err != nil
		}
		return b.Text("")
	})
	return err
}

func (c *Config) try(b *constrain.Builder, t *Tool) (err error) {
	defer bail.Catch(&err)
	c.arguments(b, t)
	return nil
}

func (c *Config) words() constrain.Words {
	if c.Format != nil && c.Format.args == asKeywords {
		return constrain.Python
	}
	return constrain.JSON
}

// body is an answer behind its thought.
func (c *Config) body(b *constrain.Builder, content *constrain.Grammar) constrain.Part {
	space := b.Times(b.Any(b.Text("\n"), b.Text(" ")), 0, 2)
	if c.Format == nil {
		return b.Seq(space, b.Grammar(content))
	}
	f := c.Format
	var list []constrain.Part
	for i := range c.Tools {
		t := &c.Tools[i]
		list = append(list, b.Seq(b.Text(t.Name+f.between), c.arguments(b, t), b.Text(f.after)))
	}
	call, most := b.Any(list...), c.Most-1
	first, rest := f.open+f.before, b.Seq(call, b.Times(b.Seq(b.Text(f.sep+f.before), call), max(c.Least-1, 0), most), b.Text(f.close))
	calls := b.Seq(space, b.Text(first), rest)
	switch {
	case c.Least > 0:
		return calls
	case content != nil:
		return b.Any(calls, b.Seq(space, b.Grammar(content)))
	case f.anchored:
		return b.Any(calls, b.Seq(space, b.Unlike(f.trigger)))
	}
	return b.Any(b.Free(f.trigger), b.Seq(b.Until(f.trigger), b.Text(first[len(f.trigger):]), rest))
}

// property is one of a tool's arguments.
type property struct {
	name     string
	required bool
	bare     bool // its values are strings, which are written without quotes where the format has parameters
}

// plain are the keywords of a schema whose properties are written one by one.
var plain = []string{"type", "properties", "required", "additionalProperties", "title", "description", "$schema", "$defs", "definitions", "$id", "examples"}

// read reads the properties of the parameters.
func (t *Tool) read(f *Format) error {
	if len(bytes.TrimSpace(t.Parameters)) == 0 || string(t.Parameters) == "null" {
		t.Parameters = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	}
	var schema struct {
		Properties json.RawMessage
		Required   []string
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(t.Parameters, &fields) != nil || json.Unmarshal(t.Parameters, &schema) != nil {
		return fmt.Errorf("it must be a JSON schema of an object")
	}
	if t.properties = nil; f.args == asJSON {
		return nil
	}
	for key := range fields {
		if !slices.Contains(plain, key) && !t.loose {
			return fmt.Errorf("the keyword %q is not supported beside properties in this model's format of calls; supported are %s", key, strings.Join(plain, ", "))
		}
	}
	for d := json.NewDecoder(bytes.NewReader(schema.Properties)); ; {
		token, err := d.Token()
		if err != nil || token == json.Delim('}') {
			break
		}
		name, is := token.(string)
		if !is {
			continue
		}
		var of json.RawMessage
		if err := d.Decode(&of); err != nil {
			return err
		}
		if strings.ContainsAny(name, "<>=\n\"(), ") || name == "" {
			return fmt.Errorf("the property %q is not supported: this model's format of calls cannot write its name", name)
		}
		t.properties = append(t.properties, property{name, slices.Contains(schema.Required, name), bare(of)})
	}
	for _, name := range schema.Required {
		if t.property(name) == nil && !t.loose {
			return fmt.Errorf("%q is required and not in properties", name)
		}
	}
	return nil
}

// bare reports whether a schema says at its top that it is of strings.
func bare(schema json.RawMessage) bool {
	var s struct {
		Type any
		Enum []any
	}
	if json.Unmarshal(schema, &s) != nil {
		return false
	}
	text := func(v any) bool { _, is := v.(string); return is }
	return s.Type == "string" || s.Type == nil && len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(v any) bool { return !text(v) })
}

func (t *Tool) property(name string) *property {
	i := slices.IndexFunc(t.properties, func(p property) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return &t.properties[i]
}

// arguments are the arguments of a call.
func (c *Config) arguments(b *constrain.Builder, t *Tool) constrain.Part {
	schema := b.Schema([]byte(`{"type": "object"}`))
	if !t.loose {
		schema = b.Schema(t.Parameters)
	}
	if c.Format.args == asJSON {
		return schema.Object().Value()
	}
	schema.Object().Value() // its errors
	value := func(p property) constrain.Part {
		bare := p.bare && c.Format.args == asParameters
		switch {
		case t.loose && bare:
			return b.Free(parameterEnd)
		case t.loose:
			return b.Schema([]byte("true")).Value()
		case bare:
			return schema.Property(p.name).Bare(parameterEnd)
		}
		return schema.Property(p.name).Value()
	}
	// What may follow, from the last property to the first: without arguments before, and with some.
	var tail [2]constrain.Part
	tail[0] = b.Text("")
	tail[1] = tail[0]
	for _, p := range slices.Backward(t.properties) {
		one := b.Seq(b.Text(p.name+"="), value(p), tail[1])
		next := [2]constrain.Part{one, b.Seq(b.Text(", "), one)}
		if c.Format.args == asParameters {
			one = b.Seq(b.Text(parameter+p.name+">\n"), value(p), b.Text(parameterEnd+"\n"), tail[1])
			next = [2]constrain.Part{one, one}
		}
		if !p.required {
			next = [2]constrain.Part{b.Any(next[0], tail[0]), b.Any(next[1], tail[1])}
		}
		tail = next
	}
	return tail[0]
}

// The tags around a parameter's value.
const (
	parameter    = "<parameter="
	parameterEnd = "\n</parameter>"
)
