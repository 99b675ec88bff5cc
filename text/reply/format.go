package reply

import (
	"fmt"
	"slices"
	"strings"
)

// Special is the byte before the text of a special token.
const Special = "\xff"

// notation is how arguments are written.
type notation int

const (
	asJSON       notation = iota // {"a": 1}
	asKeywords                   // a=1, b="c"
	asParameters                 // <parameter=a>, the value on lines of its own, </parameter>
)

// Format is how a family of models writes calls of tools: open, then for each call before, the
// name, between, the arguments and after, with sep between two calls, then close.
type Format struct {
	Name  string
	signs []string // texts of the chat templates that ask for it

	open, before, between, after, sep, close string

	trigger  string // a beginning of open and before, with which calls begin
	anchored bool   // calls begin with the answer, and not behind what the model says
	args     notation
	short    bool // identifiers of calls have nine letters
}

// formats are all formats, those with the more telling signs first.
var formats = []Format{
	{Name: "qwen3-coder", signs: []string{"<tool_call>", "<function=", "<parameter="}, trigger: "<tool_call>", args: asParameters,
		before: "<tool_call>\n<function=", between: ">\n", after: "</function>\n</tool_call>", sep: "\n"},
	{Name: "nemotron", signs: []string{"<TOOLCALL>"}, trigger: "<TOOLCALL>",
		open: "<TOOLCALL>[", before: `{"name": "`, between: `", "arguments": `, after: "}", sep: ", ", close: "]</TOOLCALL>"},
	{Name: "jamba", signs: []string{"<tool_calls>"}, trigger: "<tool_calls>",
		open: "<tool_calls>[\n", before: `{"name": "`, between: `", "arguments": `, after: "}", sep: ",\n", close: "\n]</tool_calls>"},
	{Name: "lfm2", signs: []string{"<|tool_call_start|>"}, trigger: "<|tool_call_start|>", args: asKeywords,
		open: "<|tool_call_start|>[", between: "(", after: ")", sep: ", ", close: "]<|tool_call_end|>"},
	{Name: "granite", signs: []string{"<|tool_call|>"}, trigger: "<|tool_call|>",
		open: "<|tool_call|>[", before: `{"name": "`, between: `", "arguments": `, after: "}", sep: ", ", close: "]"},
	{Name: "mistral-args", signs: []string{"[TOOL_CALLS]", "[ARGS]"}, trigger: "[TOOL_CALLS]", short: true,
		before: "[TOOL_CALLS]", between: "[ARGS]"},
	{Name: "mistral", signs: []string{"[TOOL_CALLS]"}, trigger: "[TOOL_CALLS]", short: true,
		open: "[TOOL_CALLS][", before: `{"name": "`, between: `", "arguments": `, after: "}", sep: ", ", close: "]"},
	{Name: "hermes", signs: []string{"<tool_call>"}, trigger: "<tool_call>",
		before: "<tool_call>\n{\"name\": \"", between: `", "arguments": `, after: "}\n</tool_call>", sep: "\n"},
	{Name: "llama", signs: []string{`"name":`, `"parameters":`}, trigger: `{"name"`, anchored: true,
		before: `{"name": "`, between: `", "parameters": `, after: "}", sep: "; "},
}

// Names lists the formats.
func Names() (list []string) {
	for _, f := range formats {
		list = append(list, f.Name)
	}
	slices.Sort(list)
	return list
}

// Named returns a format by its name.
func Named(name string) (*Format, error) {
	for _, f := range formats {
		if f.Name == name {
			return &f, nil
		}
	}
	return nil, fmt.Errorf("unknown format %q of tool calls; it must be one of %s", name, strings.Join(Names(), ", "))
}

// Of returns the format that a chat template asks for, by its text; nil: none that is known.
func Of(template string) *Format {
	for _, f := range formats {
		if !slices.ContainsFunc(f.signs, func(sign string) bool { return !strings.Contains(template, sign) }) {
			return &f
		}
	}
	return nil
}

// NewID makes the identifier of a call of 24 random hexadecimal digits, in the form that templates
// of the format take.
func (f *Format) NewID(random string) string {
	if f.short {
		return random[:9]
	}
	return "call_" + random
}

// literals are the texts of the format that special tokens may be in.
func (f *Format) literals() []*string {
	return []*string{&f.open, &f.before, &f.between, &f.after, &f.sep, &f.close, &f.trigger}
}
