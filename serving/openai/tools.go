package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/krait-ml/krait/serving/internal/api"
	"github.com/krait-ml/krait/text/chat"
	"github.com/krait-ml/krait/text/constrain"
	"github.com/krait-ml/krait/text/reply"
)

// maxTools bounds the functions of a request.
const maxTools = 128

// toolChoice are the functions of a request, and which of them a text calls.
type toolChoice struct {
	list   []reply.Tool
	raw    []json.RawMessage // as the template has them
	mode   string            // auto, none, required, or empty: not given
	only   []string          // the functions that may be called; nil: all
	single bool              // one call at most
}

var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// readTools reads the functions that a text may call.
func readTools(c *toolChoice, raw json.RawMessage) *Error {
	const what = `it must be an array of functions such as {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}`
	switch {
	case !begins(raw, '['):
		return bad("tools", what)
	case len(raw) > maxObject:
		return bad("tools", "it has %d bytes; the limit is %d", len(raw), maxObject)
	}
	for raw := range values(raw) {
		at := fmt.Sprintf("tools[%d]", len(c.list))
		var tool map[string]json.RawMessage
		var kind string
		if json.Unmarshal(raw, &tool) != nil || json.Unmarshal(tool["type"], &kind) != nil {
			return bad("tools", what)
		}
		if kind != "function" {
			return bad(at+".type", "it is %q; models call functions only", short(kind))
		}
		for key := range tool {
			if key != "type" && key != "function" {
				return unknown(at+"."+short(key), "it is not supported: a tool has type and function")
			}
		}
		if err := c.add(at+".function", tool["function"], raw); err != nil {
			return err
		}
	}
	return nil
}

// add adds a function.
func (c *toolChoice) add(at string, function, tool json.RawMessage) *Error {
	var f map[string]json.RawMessage
	if json.Unmarshal(function, &f) != nil || f == nil {
		return bad(at, `it must be an object such as {"name": "f", "parameters": {"type": "object"}}`)
	}
	var t reply.Tool
	for key, raw := range f {
		var wrong error
		switch key {
		case "name":
			wrong = json.Unmarshal(raw, &t.Name)
		case "description":
			wrong = json.Unmarshal(raw, new(string))
		case "strict":
			wrong = json.Unmarshal(raw, &t.Strict)
		case "parameters":
			t.Parameters = raw
		default:
			return unknown(at+"."+short(key), "it is not supported: a function has name, description, parameters and strict")
		}
		if wrong != nil {
			return bad(at+"."+key, "it is %s, which is of another type", short(string(raw)))
		}
	}
	switch {
	case !toolName.MatchString(t.Name):
		return bad(at+".name", "it is %q; it must have 1 to 64 letters, digits, underscores, dots and hyphens", short(t.Name))
	case slices.ContainsFunc(c.list, func(other reply.Tool) bool { return other.Name == t.Name }):
		return bad(at+".name", "%q is there twice", t.Name)
	case len(c.list) == maxTools:
		return bad("tools", "it has more than %d functions, the limit of this server", maxTools)
	}
	c.list, c.raw = append(c.list, t), append(c.raw, tool)
	return nil
}

// readToolChoice reads auto, none or required, a function, or some.
func readToolChoice(c *toolChoice, raw json.RawMessage) *Error {
	const what = `it must be "auto", "none", "required", or such as {"type": "function", "function": {"name": "f"}}`
	type function struct {
		Type, Name string // the name in responses, and in chats
		Function   struct{ Name string }
	}
	type allowed struct {
		Mode  string
		Tools []function
	}
	var choice struct {
		function
		allowed
		Allowed *allowed `json:"allowed_tools"`
	}
	name := func(f function) string { return cmp.Or(f.Name, f.Function.Name) }
	if json.Unmarshal(raw, &c.mode) == nil {
		if !slices.Contains([]string{"auto", "none", "required"}, c.mode) {
			return bad("tool_choice", "it is %q; %s", short(c.mode), what)
		}
		return nil
	}
	if json.Unmarshal(raw, &choice) != nil {
		return bad("tool_choice", what)
	}
	switch choice.Type {
	case "function":
		c.mode, c.only, c.single = "required", []string{name(choice.function)}, true
	case "allowed_tools":
		if choice.Allowed == nil {
			choice.Allowed = &choice.allowed
		}
		if c.mode = choice.Allowed.Mode; c.mode != "auto" && c.mode != "required" {
			return bad("tool_choice.allowed_tools.mode", "it is %q; it must be auto or required", short(c.mode))
		}
		c.only = []string{}
		for _, f := range choice.Allowed.Tools {
			c.only = append(c.only, name(f))
		}
	default:
		return bad("tool_choice.type", "it is %q; it must be function or allowed_tools", short(choice.Type))
	}
	return nil
}

// check checks parameters that depend on each other, and leaves the functions that may be called.
func (c *toolChoice) check() *Error {
	switch {
	case len(c.list) == 0 && c.mode != "" && c.mode != "none" && c.mode != "auto":
		return bad("tool_choice", "it requires tools: name at least one function there")
	case c.mode == "none":
		*c = toolChoice{}
	}
	if c.only == nil || len(c.list) == 0 {
		return nil
	}
	for _, name := range c.only {
		if !slices.ContainsFunc(c.list, func(t reply.Tool) bool { return t.Name == name }) {
			return bad("tool_choice", "%q is not in tools", short(name))
		}
	}
	c.list = slices.DeleteFunc(c.list, func(t reply.Tool) bool { return !slices.Contains(c.only, t.Name) })
	return nil
}

// json is the functions as the template has them; nil: none.
func (c *toolChoice) json() json.RawMessage {
	if len(c.raw) == 0 {
		return nil
	}
	data, err := json.Marshal(c.raw)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return data
}

// talk is what the server knows of the model's answers in chats.
type talk struct {
	format   *reply.Format  // of calls; nil: none
	tools    string         // the template for conversations with tools
	thinks   bool           // answers may have thoughts
	switches []string       // variables of the template that turn thoughts on and off
	efforts  bool           // the template has reasoning_effort
	specials map[int]string // special tokens
}

var reads = regexp.MustCompile(`\btools\b`)

// newTalk reads the chat template.
func (s *Server) newTalk() (t talk, err error) {
	if s.o.ToolParser != "" {
		if t.format, err = reply.Named(s.o.ToolParser); err != nil {
			return t, err
		}
	}
	t.specials = map[int]string{}
	special, eos := map[string]bool{}, s.m.EOS()
	for _, text := range chat.Specials(s.tokens) {
		special[text] = true
	}
	for id := range s.m.Vocab() {
		if piece, ok := s.tokens.Piece(id); ok && special[piece] && !slices.Contains(eos, id) {
			t.specials[id] = piece
		}
	}
	if s.chat == nil {
		return t, nil
	}
	text := s.chat.Text("")
	if t.tools = "tool_use"; s.chat.Text(t.tools) == "" {
		t.tools = ""
	}
	if t.format == nil && reads.MatchString(s.chat.Text(t.tools)) {
		t.format = reply.Of(s.chat.Text(t.tools))
	}
	t.thinks = strings.Contains(text, "<think>") && strings.Contains(text, "</think>")
	for _, name := range []string{"enable_thinking", "thinking"} {
		if strings.Contains(text, name) {
			t.switches = append(t.switches, name)
		}
	}
	t.efforts = strings.Contains(text, "reasoning_effort")
	return t, nil
}

// answers returns what an answer may have: thoughts, and calls of functions. Nil: text only.
func (s *Server) answers(c *toolChoice) (*reply.Config, *Error) {
	a := &reply.Config{}
	if s.talk.thinks {
		a.Thoughts = reply.May
	}
	if len(c.list) > 0 {
		switch a.Format = s.talk.format; {
		case s.chat == nil:
		case !reads.MatchString(s.chat.Text(s.talk.tools)):
			return nil, bad("tools", "the model's chat template knows no tools; describe them in a message, or serve a model that was trained to call them")
		case a.Format == nil:
			return nil, bad("tools", "the format of calls in the model's chat template is unknown; start krait serve with --tool-parser, one of %s", strings.Join(reply.Names(), ", "))
		}
		a.Tools = c.list
		if c.mode == "required" {
			a.Least = 1
		}
		if c.single {
			a.Most = 1
		}
	}
	if a.Format == nil && a.Thoughts == reply.None {
		return nil, nil
	}
	return a, nil
}

// hold sets the grammar of an answer, and which special tokens its text keeps. It returns nothing
// more to hold if the answer is text and thoughts.
func (s *Server) hold(p *params, a *reply.Config) *Error {
	p.answer = a
	if err := a.Read(); err != nil {
		return bad("tools", "%v", err)
	}
	list := make([]string, 0, len(s.talk.specials))
	for _, text := range s.talk.specials {
		list = append(list, text)
	}
	kept := a.Mark(list)
	p.generate.Keep = map[int]string{}
	for id, text := range s.talk.specials {
		if slices.Contains(kept, text) {
			p.generate.Keep[id] = reply.Special + text
		}
	}
	if a.Format == nil && p.grammar == nil {
		return nil
	}
	key, err := json.Marshal([]any{a.Thoughts, a.Format, a.Tools, a.Least, a.Most, p.notation})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	content := p.grammar
	p.grammar, err = p.grammars.Get(p.tenant, "answer", key, func([]byte) (*constrain.Grammar, error) { return a.Grammar(content) })
	if err != nil {
		return bad("tools", "%v", err)
	}
	return nil
}

// toolCall is a call, or in a stream a part of one.
type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in a stream
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function toolFunction `json:"function"`
}

type toolFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// calls formats parts of calls.
func calls(f *reply.Format, list []reply.Delta, stream bool) (out []toolCall) {
	for _, d := range list {
		c := toolCall{Function: toolFunction{d.Name, d.Arguments}}
		if d.Name != "" {
			c.ID, c.Type = f.NewID(api.NewID("")), "function"
		}
		if stream {
			c.Index = &d.Index
		}
		out = append(out, c)
	}
	return out
}

// readCalls reads the calls of an assistant's message, for the template: arguments are objects.
func readCalls(at string, raw json.RawMessage) (any, *Error) {
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, bad(at, `it must be an array of calls such as {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}`)
	}
	out := []any{}
	for i, call := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		var f struct {
			Name      *string
			Arguments json.RawMessage
		}
		var id, text string
		if call["id"] != nil && json.Unmarshal(call["id"], &id) != nil || json.Unmarshal(call["function"], &f) != nil || f.Name == nil {
			return nil, bad(at, "a call must have an id and a function with a name and arguments")
		}
		var arguments any = f.Arguments
		if json.Unmarshal(f.Arguments, &text) == nil {
			arguments = text
			if begins([]byte(text), '{') && json.Valid([]byte(text)) {
				arguments = json.RawMessage(text)
			}
		} else if !begins(f.Arguments, '{') {
			return nil, bad(at+".function.arguments", "it must be a string of JSON, or an object")
		}
		out = append(out, map[string]any{"id": id, "type": "function", "function": map[string]any{"name": *f.Name, "arguments": arguments}})
	}
	return out, nil
}

// thinking sets the template's variables for reasoning_effort.
func (s *Server) thinking(effort string, variables map[string]any) *Error {
	const name = "reasoning_effort"
	switch {
	case effort == "none" && len(s.talk.switches) > 0:
		for _, name := range s.talk.switches {
			if _, given := variables[name]; !given {
				variables[name] = false
			}
		}
	case s.talk.efforts:
		variables[name] = effort
	case effort == "none" && !s.talk.thinks:
	case effort == "none":
		return bad(name, "it is not supported: the model's chat template has no switch for thoughts")
	default:
		return bad(name, "it is %q; the model's chat template has no such degrees: use none, or leave it out", short(effort))
	}
	return nil
}

// hear takes more of a choice's text apart. The reason is why it ends, nil if it does not.
func (c *choice) hear(text string, reason *string) (reply.Output, *string) {
	if c.parser == nil {
		return reply.Output{Content: text}, reason
	}
	out := c.parser.Push(text)
	if reason == nil {
		return out, nil
	}
	out.Add(c.parser.End(*reason == "length"))
	if c.parser.Calls() > 0 && *reason == "stop" {
		calls := "tool_calls"
		reason = &calls
	}
	return out, reason
}
