package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/openai"
)

// message is a message of the assistant, or what a stream's deltas join to.
type message struct {
	Role      string
	Content   *string
	Reasoning string `json:"reasoning_content"`
	Calls     []struct {
		Index    *int
		ID, Type string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// say asks for a chat, whole and streamed, which must be the same.
func say(t *testing.T, h *httptest.Server, body string) (m message, finish string) {
	t.Helper()
	status, text := post(t, h, "/v1/chat/completions", "{"+body+"}")
	var whole struct {
		Choices []struct {
			Message message
			Finish  string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal([]byte(text), &whole); status != 200 || err != nil {
		t.Fatalf("%s: %d %s", body, status, text)
	}
	m, finish = whole.Choices[0].Message, whole.Choices[0].Finish
	status, text = post(t, h, "/v1/chat/completions", "{"+body+`, "stream": true}`)
	var joined message
	end := ""
	for event := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		if event == "data: [DONE]" {
			continue
		}
		var part struct {
			Choices []struct {
				Delta  message
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &part); status != 200 || err != nil || len(part.Choices) != 1 {
			t.Fatalf("%s: %d %s", body, status, event)
		}
		d := part.Choices[0].Delta
		joined.Role += d.Role
		joined.Reasoning += d.Reasoning
		if d.Content != nil {
			all := *d.Content
			if joined.Content != nil {
				all = *joined.Content + all
			}
			joined.Content = &all
		}
		for _, c := range d.Calls {
			if c.Index == nil || *c.Index > len(joined.Calls) || (c.ID == "") != (*c.Index < len(joined.Calls)) || (c.ID == "") != (c.Type == "") {
				t.Fatalf("%s: the delta %s", body, event)
			}
			if *c.Index == len(joined.Calls) {
				joined.Calls = append(joined.Calls, c)
				continue
			}
			joined.Calls[*c.Index].Function.Arguments += c.Function.Arguments
		}
		end += part.Choices[0].Finish
	}
	for i := range joined.Calls { // identifiers are random
		joined.Calls[i].Index, joined.Calls[i].ID = nil, m.Calls[i].ID
	}
	if !reflect.DeepEqual(joined, m) || end != finish {
		t.Errorf("%s: streamed %+v %s, whole %+v %s", body, joined, end, m, finish)
	}
	return m, finish
}

// toolList are the tools of the tests.
const toolList = `"tools": [{"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}, "days": {"type": "integer"}}, "required": ["city"]}}},
	{"type": "function", "function": {"name": "note", "strict": true, "parameters": {"type": "object", "properties": {"text": {"type": "string", "maxLength": 20}, "done": {"type": "boolean"}}, "required": ["text", "done"], "additionalProperties": false}}}]`

const user = `"messages": [{"role": "user", "content": "Hi"}], "temperature": 0`

// scripts are what models of each format say: a thought, a sentence, and two calls.
var scripts = map[string]string{
	"hermes":       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"note\", \"arguments\": {\"text\": \"a é\", \"done\": true}}\n</tool_call>",
	"nemotron":     `<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}, {"name": "note", "arguments": {"text": "a é", "done": true}}]</TOOLCALL>`,
	"jamba":        "<tool_calls>[\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 2}},\n{\"name\": \"note\", \"arguments\": {\"text\": \"a é\", \"done\": true}}\n]</tool_calls>",
	"granite":      `<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}, {"name": "note", "arguments": {"text": "a é", "done": true}}]`,
	"mistral":      `[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}, {"name": "note", "arguments": {"text": "a é", "done": true}}]`,
	"mistral-args": `[TOOL_CALLS]get_weather[ARGS]{"city": "Rome", "days": 2}[TOOL_CALLS]note[ARGS]{"text": "a é", "done": true}`,
	"llama":        `{"name": "get_weather", "parameters": {"city": "Rome", "days": 2}}; {"name": "note", "parameters": {"text": "a é", "done": true}}`,
	"lfm2":         `<|tool_call_start|>[get_weather(city="Rome", days=2), note(text="a é", done=True)]<|tool_call_end|>`,
	"qwen3-coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n" +
		"<tool_call>\n<function=note>\n<parameter=text>\na é\n</parameter>\n<parameter=done>\ntrue\n</parameter>\n</function>\n</tool_call>",
}

// TestToolCalls: what models of each family write become calls, streamed and whole, with the format
// found by the template or named; a call that is cut off leaks into no content.
func TestToolCalls(t *testing.T) {
	special := map[string][]string{"lfm2": {"<|tool_call_start|>", "<|tool_call_end|>"}, "granite": {"<|tool_call|>"}, "mistral": {"[TOOL_CALLS]"}}
	short, few := regexp.MustCompile(`^[0-9a-f]{9}$`), goldens.Few(t)
	for name, script := range scripts {
		for _, o := range []openai.Options{{}, {ToolParser: name}} {
			sign, said := script, "Let me see.\n"
			if o.ToolParser != "" {
				sign = "no sign"
			}
			if name == "llama" {
				said = ""
			}
			h := play(t, actor{said + script, chatting(sign), special[name]}, o)
			m, finish := say(t, h, user+", "+toolList)
			if finish != "tool_calls" || len(m.Calls) != 2 || m.Role != "assistant" {
				t.Fatalf("%s: %+v, %s", name, m, finish)
			}
			if said == "" && m.Content != nil || said != "" && *m.Content != strings.TrimSpace(said) {
				t.Errorf("%s: content %v", name, *m.Content)
			}
			for i, want := range [][2]string{{"get_weather", `{"city": "Rome", "days": 2}`}, {"note", `{"text": "a é", "done": true}`}} {
				c := m.Calls[i]
				if c.Function.Name != want[0] || c.Function.Arguments != want[1] || c.Type != "function" || c.ID == m.Calls[1-i].ID || strings.HasPrefix(name, "mistral") != short.MatchString(c.ID) {
					t.Errorf("%s: call %d is %+v", name, i, c)
				}
			}
			for most := 2; o.ToolParser == "" && !few; most += 9 {
				m, finish := say(t, h, user+", "+toolList+fmt.Sprintf(`, "max_tokens": %d`, most))
				if m.Content != nil && !strings.HasPrefix(strings.TrimSpace(said), *m.Content) && *m.Content != said {
					t.Errorf("%s: content %q after %d tokens", name, *m.Content, most)
				}
				if finish != "length" {
					break
				}
			}
			// Without tools, or with none of them, the text is what it is; specials are none.
			for _, fields := range []string{"", ", " + toolList + `, "tool_choice": "none"`} {
				m, finish := say(t, h, user+fields)
				want := said + script
				for _, s := range special[name] {
					want = strings.Replace(want, s, "", 1)
				}
				if finish != "stop" || m.Calls != nil || *m.Content != want {
					t.Errorf("%s: %+v, %s; want %q", name, *m.Content, finish, want)
				}
			}
		}
	}
}

// TestToolChoice: calls are held to what is asked for, whatever the model wants to say.
func TestToolChoice(t *testing.T) {
	goldens.CI(t)
	for name, script := range scripts {
		h := play(t, actor{"No, thank you.", chatting(script), nil}, openai.Options{})
		if m, finish := say(t, h, user+", "+toolList); finish != "stop" || *m.Content != "No, thank you." {
			t.Errorf("%s: auto: %+v, %s", name, m, finish)
		}
		for choice, want := range map[string]string{
			`"required", "parallel_tool_calls": false`:                  "",
			`{"type": "function", "function": {"name": "note"}}`:        "note",
			`{"type": "function", "function": {"name": "get_weather"}}`: "get_weather",
			`{"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "note"}}]}}, "parallel_tool_calls": false`: "note",
		} {
			m, finish := say(t, h, strings.ReplaceAll(user, `"temperature": 0`, `"temperature": 1.5, "seed": 3, "max_tokens": 200`)+", "+toolList+`, "tool_choice": `+choice)
			if len(m.Calls) != 1 || m.Content != nil || want != "" && m.Calls[0].Function.Name != want {
				t.Fatalf("%s: %s: %+v, %s", name, choice, m, finish)
			}
			if finish == "length" {
				continue
			}
			var arguments struct {
				City, Text *string
				Done       *bool
			}
			c := m.Calls[0].Function
			if err := json.Unmarshal([]byte(c.Arguments), &arguments); err != nil || finish != "tool_calls" || (c.Name == "note") != (arguments.Text != nil && arguments.Done != nil) || (c.Name == "get_weather") != (arguments.City != nil) {
				t.Errorf("%s: %s: %+v, %s, %v", name, choice, c, finish, err)
			}
		}
	}
}

// TestToolHistory: the template has the tools, and messages with calls and their results.
func TestToolHistory(t *testing.T) {
	h := play(t, actor{"Fine.", chatting("<tool_call>"), nil}, openai.Options{})
	const messages = `"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]},
		{"role": "assistant", "content": null, "refusal": null, "annotations": [], "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"days\": 2, \"city\": \"Rome\"}"}}]},
		{"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]`
	status, text := post(t, h, "/tokenize", "{"+messages+", "+toolList+"}")
	var tokens struct{ Tokens []int }
	if err := json.Unmarshal([]byte(text), &tokens); err != nil || status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	ids, err := json.Marshal(tokens.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	_, text = post(t, h, "/detokenize", `{"tokens": `+string(ids)+"}")
	var prompt struct{ Prompt string }
	if err := json.Unmarshal([]byte(text), &prompt); err != nil {
		t.Fatal(err)
	}
	const want = "user\nHi<|im_end|>\n<|im_start|>assistant\n[get_weather {\"days\": 2, \"city\": \"Rome\"}]<|im_end|>\n<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n"
	if tools, rest, _ := strings.Cut(prompt.Prompt, "<|im_start|>"); !strings.HasPrefix(tools, `TOOLS [{"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": {"type": "object", "properties": {"city"`) || rest != want {
		t.Errorf("the prompt is %q", prompt.Prompt)
	}
	if m, _ := say(t, h, messages+`, "temperature": 0, `+toolList); *m.Content != "Fine." {
		t.Errorf("%+v", m)
	}
}

// TestToolErrors: what is wrong is an error with its name; a model without tools refuses them.
func TestToolErrors(t *testing.T) {
	h := play(t, actor{"Fine.", chatting("<tool_call>"), nil}, openai.Options{})
	function := func(f string) string { return `"tools": [{"type": "function", "function": ` + f + `}]` }
	for body, want := range map[string][2]string{
		`"tools": {}`:                       {"tools", "must be an array"},
		`"tools": [{"type": "web_search"}]`: {"tools[0].type", "functions only"},
		`"tools": [{"type": "function", "function": {"name": "f"}, "x": 1}]`: {"tools[0].x", "not supported"},
		function(`{}`):                              {"tools[0].function.name", "must have 1 to 64"},
		function(`{"name": "a b"}`):                 {"tools[0].function.name", "must have 1 to 64"},
		function(`{"name": "f", "x": 1}`):           {"tools[0].function.x", "not supported"},
		function(`{"name": "f", "strict": 1}`):      {"tools[0].function.strict", "another type"},
		function(`{"name": "f", "parameters": []}`): {"tools", "function f: parameters"},
		function(`{"name": "f", "strict": true, "parameters": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}}`): {"tools", "uniqueItems"},
		function(`{"name": "f", "strict": true, "parameters": {"type": "string"}}`):                                                              {"tools", "no text fulfils it"},
		toolList + `, "tool_choice": "any"`:                                                          {"tool_choice", "it is \"any\""},
		toolList + `, "tool_choice": {"type": "function", "function": {"name": "g"}}`:                {"tool_choice", "\"g\" is not in tools"},
		toolList + `, "tool_choice": {"type": "custom"}`:                                             {"tool_choice.type", "custom"},
		`"tool_choice": "required"`:                                                                  {"tool_choice", "requires tools"},
		`"tools": [` + strings.Repeat(`{"type": "function", "function": {"name": "f"}},`, 2) + `{}]`: {"tools[1].function.name", "twice"},
	} {
		checkError(t, h, user+", "+body, want)
	}
	for messages, want := range map[string][2]string{
		`[{"role": "user", "content": "a", "tool_calls": []}]`:                                 {"messages[0].tool_calls", "only messages of the assistant"},
		`[{"role": "assistant", "content": null}]`:                                             {"messages[0].content", "missing"},
		`[{"role": "assistant", "tool_calls": [{"id": "a"}]}]`:                                 {"messages[0].tool_calls[0]", "a function with a name"},
		`[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}]`: {"messages[0].tool_calls[0].function.arguments", "string of JSON"},
		`[{"role": "tool", "content": "a", "tool_call_id": 1}]`:                                {"messages[0].tool_call_id", "must be a string"},
	} {
		checkError(t, h, `"messages": `+messages, want)
	}
	// Arguments that need not be strict and cannot be held to their schema are any object.
	// A header says so, also if the grammar is a kept one.
	loose := function(`{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}}`)
	for range 2 {
		r, err := http.Post(h.URL+"/v1/chat/completions", "application/json", strings.NewReader("{"+user+`, "max_tokens": 1, `+loose+"}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if got := r.Header.Values("Krait-Warning"); r.StatusCode != 200 || len(got) != 1 || !strings.HasPrefix(got[0], "function f: its parameters are not enforced") {
			t.Errorf("%d %q", r.StatusCode, got)
		}
	}
	if m, _ := say(t, h, user+`, "max_tokens": 60, "tool_choice": "required", "parallel_tool_calls": false, `+loose); len(m.Calls) != 1 {
		t.Errorf("%+v", m)
	}
	for template, want := range map[string]string{`{{ messages[0].content }}`: "knows no tools", `{{ tools }}{{ messages[0].content }}`: "--tool-parser, one of granite, hermes"} {
		checkError(t, play(t, actor{"Fine.", template, nil}, openai.Options{}), user+", "+toolList, [2]string{"tools", want})
	}
	m := actor{"Fine.", "", nil}.open(t, krait.Options{})
	defer m.Close()
	if _, err := openai.New(m, openai.Options{ToolParser: "none"}); err == nil || !strings.Contains(err.Error(), `unknown format "none"`) {
		t.Errorf("%v", err)
	}
}

// checkError asks for a chat that is refused: by the parameter, with a part of the message.
func checkError(t *testing.T, h *httptest.Server, body string, want [2]string) {
	t.Helper()
	status, text := post(t, h, "/v1/chat/completions", "{"+body+"}")
	var a answer
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != 400 || a.Error == nil || a.Error.Param != want[0] || !strings.Contains(a.Error.Message, want[1]) {
		t.Errorf("%s: %d %s, want %q", body, status, text, want)
	}
}

// TestToolStream: chunks of a stream are OpenAI's: the role first, then content, the name and id
// of the call, pieces of its arguments, and the reason at the end.
func TestToolStream(t *testing.T) {
	h := play(t, actor{"<think>\nHm.\n</think>\n\nOn it.\n<tool_call>\n{\"name\": \"ping\", \"arguments\": {\"n\": 10}}\n</tool_call>", thinker(false), nil}, openai.Options{})
	_, text := post(t, h, "/v1/chat/completions", "{"+user+`, "stream": true, "stream_options": {"include_usage": true}, "tools": [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}}}]}`)
	var got []string
	for event := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		if _, choice, ok := strings.Cut(event, `"choices":`); ok {
			event = choice
		}
		event = regexp.MustCompile(`"call_[0-9a-f]{24}"`).ReplaceAllString(event, `"ID"`)
		got = append(got, strings.NewReplacer(`{"index":0,"delta":`, "", `,"logprobs":null,"finish_reason":null}`, "", `,"usage":null}`, "").Replace(event))
	}
	want := []string{
		`[{"role":"assistant","content":null,"reasoning_content":"Hm"}]`, `[{"reasoning_content":"."}]`, `[{"content":"On"}]`, `[{"content":" i"}]`, `[{"content":"t."}]`,
		`[{"tool_calls":[{"index":0,"id":"ID","type":"function","function":{"name":"ping","arguments":"{"}}]}]`, `[{"tool_calls":[{"index":0,"function":{"arguments":"\"n\""}}]}]`,
		`[{"tool_calls":[{"index":0,"function":{"arguments":": 1"}}]}]`, `[{"tool_calls":[{"index":0,"function":{"arguments":"0}"}}]}]`, `[{},"logprobs":null,"finish_reason":"tool_calls"}]`,
		`[],"usage":{"prompt_tokens":205,"completion_tokens":42,"total_tokens":247,"prompt_tokens_details":{"cached_tokens":0}}}`, "data: [DONE]",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the stream is\n%s", strings.Join(got, "\n"))
	}
}
