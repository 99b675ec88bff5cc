package reply

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/text/chat"
)

// Templates in the idioms of Hermes and Llama 3.1: macros that call themselves, tool definitions
// with an indent, calls and results in the history.
const (
	hermesLike = `{%- macro spell(s) %}{%- set plain = {"string": "str", "integer": "int", "boolean": "bool"} %}
{%- if plain[s.type] is defined %}{{- plain[s.type] }}
{%- elif s.type == "array" %}{{- "list[" + spell(s['items']) + "]" }}
{%- elif s.type is iterable and s.type is not string %}{{- "Union[" }}{%- for t in s.type %}{{- spell({"type": t}) }}{%- if not loop.last %}{{- "," }}{%- endif %}{%- endfor %}{{- "]" }}
{%- else %}{{- "Any" }}{%- endif %}{%- endmacro %}
{{- bos_token }}{%- if tools %}{{- '<|im_start|>system\nCall these functions: <tools>' }}
{%- for tool in tools %}{%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
{{- '\n' + tool.name + '(' }}{%- for name, of in (tool.parameters.properties or {}) | items %}{{- name + ': ' + spell(of) }}{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}{{- ') ' }}{{- tool | tojson }}
{%- endfor %}{{- '\n</tools>\nEach call: <tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}{%- if loop.previtem and loop.previtem.role != 'tool' %}{{- '<|im_start|>tool\n' }}{%- endif %}{{- '<tool_response>\n' + m.content }}{%- if not loop.last %}{{- '\n</tool_response>\n' }}{%- else %}{{- '\n</tool_response>' }}{%- endif %}{%- if not loop.last and loop.nextitem.role != 'tool' %}{{- '<|im_end|>' }}{%- elif loop.last %}{{- '<|im_end|>\n' }}{%- endif %}
{%- elif m.role == 'assistant' and m.tool_calls is defined %}{{- '<|im_start|>assistant' }}{%- for c in m.tool_calls %}{{- '\n<tool_call>\n' }}{%- if c.function is defined %}{%- set c = c.function %}{%- endif %}{{- '{"name": "' + c.name + '", "arguments": ' + c.arguments | tojson + '}\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`

	llamaLike = `{{- bos_token }}{%- if not date_string is defined %}{%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "then" %}{%- endif %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}{%- else %}{%- set system = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}{%- if tools is not none %}{{- "Environment: ipython\n" }}{%- endif %}{{- "Today: " + date_string + "\n\n" + system + "<|eot_id|>" }}
{%- if tools is not none %}{%- set first = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{{- '<|start_header_id|>user<|end_header_id|>\n\nCall a function as {"name": its name, "parameters": an object of its arguments}.\n' }}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}{{- first + "<|eot_id|>" }}{%- endif %}
{%- for message in messages %}
{%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
{%- elif 'tool_calls' in message %}{%- if not message.tool_calls | length == 1 %}{{- raise_exception("one call at once") }}{%- endif %}{%- set c = message.tool_calls[0].function %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + c.name + '", "parameters": ' }}{{- c.arguments | tojson }}{{- "}<|eot_id|>" }}
{%- else %}{{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}{%- if message.content is mapping or (message.content is iterable and message.content is not string) %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}{{- "<|eot_id|>" }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}`
)

// TestToolTemplates: templates in the idioms of Hermes and Llama 3.1 render tools, a call and its
// result, and say how answers write calls.
func TestToolTemplates(t *testing.T) {
	called := map[string]any{"tool_calls": []any{map[string]any{"function": map[string]any{"name": "f", "arguments": map[string]any{"city": "Rome"}}}}}
	messages := []chat.Message{{Role: "user", Content: " Weather? "}, {Role: "assistant", Fields: called}, {Role: "tool", Content: "sun"}}
	for _, c := range []struct {
		format, template string
		has              []string
	}{
		{"hermes", hermesLike, []string{"f(city: str, days: list[int], x: Union[str,bool])", "assistant\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call><|im_end|>\n<|im_start|>tool\n<tool_response>\nsun\n</tool_response><|im_end|>\n<|im_start|>assistant\n"}},
		{"llama", llamaLike, []string{"Today: 02 Jan 2031\n", "{\n    \"type\": \"function\",", "\n\nWeather?<|eot_id|>", "{\"name\": \"f\", \"parameters\": {\"city\": \"Rome\"}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\nsun<|eot_id|><|start_header_id|>assistant"}},
	} {
		tmpl, err := chat.New(c.template, map[string]string{"bos_token": "<s>"})
		if err != nil {
			t.Fatalf("%s: %v", c.format, err)
		}
		if f := Of(tmpl.Text("")); f == nil || f.Name != c.format {
			t.Errorf("%s: its format is %v", c.format, f)
		}
		got, err := tmpl.Render(messages, chat.Options{Generate: true, Now: time.Date(2031, 1, 2, 0, 0, 0, 0, time.UTC),
			Tools: []byte(`[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}, "x": {"type": ["string", "boolean"]}}}}}]`)})
		if err != nil {
			t.Fatalf("%s: %v", c.format, err)
		}
		for _, want := range c.has {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q lacks %q", c.format, got, want)
			}
		}
	}
}

// TestAnswers: what models write beside calls that are held to the grammar, cut anywhere: text and
// other notations before calls, quotes and tags inside arguments, calls that break off.
func TestAnswers(t *testing.T) {
	const quoted = `{"text": "say \"}\n</tool_call>]\" {[", "n": {"a": [1, "}"]}}`
	hermes, llama := "<tool_call>\n{\"name\": \"note\", \"arguments\": ", `{"name": "note", "parameters": `
	for _, c := range []struct {
		format, answer string
		want           heard
	}{
		{"hermes", "I shall note {that} <tool>.\n\n" + hermes + quoted + "}\n</tool_call>", heard{"", "I shall note {that} <tool>.", []call{{"note", quoted}}}},
		{"hermes", hermes + quoted + "}\n</tool_call>\n" + hermes + "{}}\n</tool_call>", heard{"", "", []call{{"note", quoted}, {"note", "{}"}}}},
		{"hermes", hermes + `{"text": "a`, heard{"", "", []call{{"note", `{"text": "a`}}}},
		{"hermes", "```json\n{\"name\": \"note\"}\n```", heard{"", "```json\n{\"name\": \"note\"}\n```", nil}},
		{"llama", llama + quoted + "}", heard{"", "", []call{{"note", quoted}}}},
		{"llama", "\n\n" + llama + quoted + "}; " + llama + "{}}", heard{"", "", []call{{"note", quoted}, {"note", "{}"}}}},
		{"llama", `The answer is {"name": "note", "parameters": {}}`, heard{"", `The answer is {"name": "note", "parameters": {}}`, nil}},
		{"llama", `{"title": 1}`, heard{"", `{"title": 1}`, nil}},
		{"mistral", "So:[TOOL_CALLS][{\"name\": \"note\", \"arguments\": " + quoted + "}]", heard{"", "So:", []call{{"note", quoted}}}},
		{"mistral-args", "[TOOL_CALLS]note[ARGS]" + quoted + "[TOOL_CALLS]note[ARGS]{}", heard{"", "", []call{{"note", quoted}, {"note", "{}"}}}},
		{"granite", "Let me see.<|tool_call|>[{\"name\": \"note\", \"arguments\": " + quoted + "}]", heard{"", "Let me see.", []call{{"note", quoted}}}},
		{"nemotron", "<TOOLCALL>[{\"name\": \"note\", \"arguments\": " + quoted + "}]</TOOLCALL>", heard{"", "", []call{{"note", quoted}}}},
		{"jamba", "Now. <tool_calls>[\n{\"name\": \"note\", \"arguments\": " + quoted + "}\n]</tool_calls>", heard{"", "Now.", []call{{"note", quoted}}}},
	} {
		config := configOf(t, c.format, Config{})
		for i := range len(c.answer) + 1 {
			if got := hear(t, config, false, c.answer[:i], c.answer[i:]); !reflect.DeepEqual(got, c.want) {
				t.Fatalf("%s: %q cut at %d: %+v, want %+v", c.format, c.answer, i, got, c.want)
			}
		}
	}
}
