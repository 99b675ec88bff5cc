package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/openai"
)

// thinker is a template with thoughts, which begin in the prompt if begun.
func thinker(begun bool) string {
	open := ""
	if begun {
		open = "<think>\n"
	}
	return chatting("<tool_call>") + `{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% else %}` + open + `{% endif %}`
}

// TestReasoning: thoughts are apart from what is said, before calls and JSON too; none are asked
// for, and none come.
func TestReasoning(t *testing.T) {
	call := "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"
	few := goldens.Few(t)
	for i, begun := range []bool{false, true} {
		for k, specials := range [][]string{nil, {"<think>", "</think>"}, {"</think>"}} {
			if few && k != i {
				continue
			}
			tag := "<think>\n"
			if begun {
				tag = ""
				if len(specials) == 2 {
					specials = specials[1:]
				}
			}
			h := play(t, actor{tag + "Let <me> see. \n</think>\n\nIt is one.", thinker(begun), specials}, openai.Options{})
			m, finish := say(t, h, user)
			if m.Reasoning != "Let <me> see." || *m.Content != "It is one." || finish != "stop" {
				t.Errorf("%q %q, %s", m.Reasoning, *m.Content, finish)
			}
			m, _ = say(t, h, user+`, "max_tokens": 5`)
			if m.Content != nil || !strings.HasPrefix("Let <me> see.", m.Reasoning) {
				t.Errorf("%+v", m)
			}
			h = play(t, actor{tag + "A <tool_call> or not?</think>" + call, thinker(begun), specials}, openai.Options{})
			for _, choice := range []string{"auto", "required"} {
				m, finish = say(t, h, user+", "+toolList+`, "tool_choice": "`+choice+`"`)
				if m.Reasoning != "A <tool_call> or not?" || m.Content != nil || len(m.Calls) != 1 || m.Calls[0].Function.Arguments != `{"city": "Rome"}` || finish != "tool_calls" {
					t.Errorf("%s: %+v, %s", choice, m, finish)
				}
			}
			h = play(t, actor{tag + "An {object}.\n</think>\n\n{\"a\": 1}", thinker(begun), specials}, openai.Options{})
			m, finish = say(t, h, user+`, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}}}`)
			if m.Reasoning != "An {object}." || *m.Content != `{"a": 1}` || finish != "stop" {
				t.Errorf("%+v, %s", m, finish)
			}
		}
	}
	// The prompt closes the thought, so that the answer has none.
	for _, fields := range []string{`"reasoning_effort": "none"`, `"chat_template_kwargs": {"enable_thinking": false}`} {
		h := play(t, actor{"It is one.", thinker(true), nil}, openai.Options{})
		if m, _ := say(t, h, user+", "+fields); m.Reasoning != "" || *m.Content != "It is one." {
			t.Errorf("%s: %+v", fields, m)
		}
		if m, _ := say(t, h, user); m.Reasoning != "It is one." || m.Content != nil {
			t.Errorf("%+v", m)
		}
	}
	// A call that is required does not end within a thought, as an answer may.
	h := play(t, actor{"A thought.", thinker(true), nil}, openai.Options{})
	for choice, want := range map[string]string{"auto": "stop", "required": "length"} {
		if m, finish := say(t, h, user+", "+toolList+`, "max_tokens": 30, "tool_choice": "`+choice+`"`); finish != want || !strings.HasPrefix(m.Reasoning, "A thought.") {
			t.Errorf("%s: %+v, %s", choice, m, finish)
		}
	}
	h = play(t, actor{"It.", thinker(true), nil}, openai.Options{})
	checkError(t, h, user+`, "reasoning_effort": "low"`, [2]string{"reasoning_effort", "no such degrees"})
	checkError(t, h, user+`, "reasoning_effort": 1`, [2]string{"reasoning_effort", "a string"})
	checkError(t, play(t, actor{"It.", chatting("") + "<think></think>", nil}, openai.Options{}), user+`, "reasoning_effort": "none"`, [2]string{"reasoning_effort", "no switch"})
	// Without thoughts in the template, none is the same as absent; with degrees they are its variable.
	if m, _ := say(t, play(t, actor{"It.", chatting(""), nil}, openai.Options{}), user+`, "reasoning_effort": "none"`); *m.Content != "It." {
		t.Errorf("%+v", m)
	}
	h = play(t, actor{"It.", chatting("") + "{{ reasoning_effort }}", nil}, openai.Options{})
	status, text := post(t, h, "/v1/chat/completions", "{"+user+`, "reasoning_effort": "high"}`)
	var a answer
	if err := json.Unmarshal([]byte(text), &a); status != 200 || err != nil {
		t.Errorf("%d %s", status, text)
	}
	low := ask(t, h, "/v1/chat/completions", "{"+user+`, "reasoning_effort": "l"}`)
	if a.Usage.Prompt != low.Usage.Prompt+3 {
		t.Errorf("prompts of %d and %d tokens", a.Usage.Prompt, low.Usage.Prompt)
	}
}
