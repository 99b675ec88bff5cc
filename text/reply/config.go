package reply

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Tool is a function that a model may call.
type Tool struct {
	Name       string
	Parameters json.RawMessage // the schema of its arguments, an object
	Strict     bool            // a schema that texts cannot be held to is an error, and not any object

	loose bool // arguments need not fulfil the schema

	properties []property
}

// Thoughts say whether an answer has reasoning.
type Thoughts int

// Reasoning of an answer.
const (
	None  Thoughts = iota // no thoughts: think tags are text
	May                   // an answer may begin with a thought
	Begun                 // the prompt ends within a thought
)

// Config says what an answer may have. The zero value is text only.
type Config struct {
	Thoughts Thoughts
	Format   *Format // nil: no calls
	Tools    []Tool
	Least    int // calls
	Most     int // calls; 0: any number
	specials []string
}

// The tags of a thought.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// Mark returns the special tokens, of those of a tokenizer, that the answer's notation has. Their
// texts must come with [Special] in front, as tokens of the grammar and as text of the parser.
func (c *Config) Mark(specials []string) []string {
	texts := []string{}
	if c.Thoughts != None {
		texts = append(texts, thinkOpen, thinkClose)
	}
	if c.Format != nil {
		for _, l := range c.Format.literals() {
			texts = append(texts, *l)
		}
	}
	c.specials = nil
	for _, s := range specials {
		if s != "" && slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, s) }) {
			c.specials = append(c.specials, s)
		}
	}
	slices.SortFunc(c.specials, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	if c.Format != nil {
		f := *c.Format
		for _, l := range f.literals() {
			*l = c.marked(*l)
		}
		c.Format = &f
	}
	return c.specials
}

// marked puts Special before the special tokens in a text.
func (c *Config) marked(text string) string {
	var pairs []string
	for _, s := range c.specials {
		pairs = append(pairs, s, Special+s)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// tool returns the tool of a name, or nil.
func (c *Config) tool(name string) *Tool {
	i := slices.IndexFunc(c.Tools, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Tools[i]
}
