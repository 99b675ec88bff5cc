package openai_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/openai"
)

// TestFormats: answers that end by themselves are what response_format says, streamed or not,
// in completions and chats, several together as alone.
func TestFormats(t *testing.T) {
	_, h, _ := server(t, openai.Options{}, 3)
	for name, schema := range map[string]string{
		"person": `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["a", "bé"]}, "maxItems": 2}}, "required": ["name", "age"], "additionalProperties": false}`,
		"choice": `{"anyOf": [{"type": "boolean"}, {"const": null}, {"type": "integer"}]}`,
	} {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("schema.json", doc); err != nil {
			t.Fatal(err)
		}
		valid, err := c.Compile("schema.json")
		if err != nil {
			t.Fatal(err)
		}
		format := fmt.Sprintf(`"response_format": {"type": "json_schema", "json_schema": {"name": %q, "schema": %s, "strict": true}}`, name, schema)
		ended := 0
		for _, temperature := range []string{"0", "2"} {
			if temperature == "0" && goldens.Few(t) {
				continue
			}
			body := fmt.Sprintf(`"max_tokens": 300, "seed": 3, "n": 3, "temperature": %s, %s`, temperature, format)
			whole := ask(t, h, "/v1/completions", `{"prompt": "In the beginning", `+body+`}`)
			for i, choice := range whole.Choices {
				if i > 0 && *choice.Finish == "stop" {
					alone := ask(t, h, "/v1/completions", fmt.Sprintf(`{"prompt": "In the beginning", %s, "n": 1}`, strings.NewReplacer(`"seed": 3`, fmt.Sprintf(`"seed": %d`, 3+i), `"n": 3, `, ``).Replace(body)))
					if alone.Choices[0].Text != choice.Text {
						t.Errorf("%q alone, %q together", alone.Choices[0].Text, choice.Text)
					}
				}
				if *choice.Finish != "stop" {
					continue
				}
				ended++
				if value, err := jsonschema.UnmarshalJSON(strings.NewReader(choice.Text)); err != nil {
					t.Errorf("%q: %v", choice.Text, err)
				} else if err := valid.Validate(value); err != nil {
					t.Errorf("%q: %v", choice.Text, err)
				}
			}
			texts, _, _, _ := stream(t, h, "/v1/completions", `{"prompt": "In the beginning", "stream": true, `+body+`}`)
			if want := map[int]string{0: whole.Choices[0].Text, 1: whole.Choices[1].Text, 2: whole.Choices[2].Text}; !reflect.DeepEqual(texts, want) {
				t.Errorf("streamed %v, whole %v", texts, want)
			}
		}
		if ended == 0 {
			t.Errorf("%s: no text ended by itself", name)
		}
	}
	a := ask(t, h, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40, "seed": 1, "response_format": {"type": "json_object"}}`)
	if text := a.Choices[0].Message.Content; !strings.HasPrefix(text, "{") || *a.Choices[0].Finish == "stop" && !json.Valid([]byte(text)) {
		t.Errorf("%q is no object", text)
	}
	// Without the token that ends texts, a complete one ends.
	a = ask(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 40, "ignore_eos": true, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "boolean"}}}}`)
	if c := a.Choices[0]; c.Text != "true" && c.Text != "false" || *c.Finish != "stop" {
		t.Errorf("%q, %s", c.Text, *c.Finish)
	}
	for fields, want := range map[string]string{
		`"structured_outputs": {"choice": ["lamb"]}`:                                        "lamb",
		`"structured_outputs": {"regex": "(ab){3}", "json": null}`:                          "ababab",
		`"structured_outputs": {"json": "{\"const\": [1]}"}`:                                `[1]`,
		`"structured_outputs": {"grammar": "root ::= a a\na ::= \"x\" \"y\""}`:              "xyxy",
		`"guided_choice": ["ox"]`:                                                           "ox",
		`"guided_regex": "c{4}"`:                                                            "cccc",
		`"guided_json": {"const": true}`:                                                    "true",
		`"guided_grammar": "root ::= \"z\""`:                                                "z",
		`"response_format": {"type": "json_object", "schema": {"const": {"a": null}}}`:      `{"a":null}`,
		`"response_format": {"type": "text"}, "structured_outputs": {"json_object": false}`: "",
	} {
		a := ask(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 20, `+fields+`}`)
		if got := a.Choices[0].Text; want != "" && strings.ReplaceAll(got, " ", "") != want {
			t.Errorf("%s: %q; want %q", fields, got, want)
		}
	}
	large := `"` + strings.Repeat("a|", 1<<17) + `b"`
	for fields, param := range map[string]string{
		`"structured_outputs": {"regex": ` + large + `}`:                "structured_outputs",
		`"guided_regex": ` + large:                                      "guided_regex",
		`"response_format": {"type": ` + large + `}`:                    "response_format",
		`"structured_outputs": []`:                                      "structured_outputs",
		`"structured_outputs": {"choice": []}`:                          "structured_outputs.choice",
		`"structured_outputs": {"regex": "("}`:                          "structured_outputs.regex",
		`"structured_outputs": {"structural_tag": {}}`:                  "structured_outputs.structural_tag",
		`"structured_outputs": {"json": {}, "regex": "a"}`:              "structured_outputs.regex",
		`"guided_json": {}, "guided_regex": "a"`:                        "guided_regex",
		`"guided_grammar": "root ::= root"`:                             "guided_grammar",
		`"response_format": {"type": "json_object"}, "guided_json": {}`: "guided_json",
	} {
		status, text := post(t, h, "/v1/completions", `{"prompt": "a", `+fields+`}`)
		if status != 400 || !strings.Contains(text, fmt.Sprintf(`"param":%q`, param)) {
			t.Errorf("%.80s: status %d, %s", fields, status, text)
		}
	}
	for format, param := range map[string]string{
		`"json_object"`:            "response_format",
		`{"type": "xml"}`:          "response_format.type",
		`{"type": "text", "a": 1}`: "response_format.a",
		`{"type": "json_schema"}`:  "response_format.json_schema",
		`{"type": "json_schema", "json_schema": {"name": "a"}}`:                    "response_format.json_schema.schema",
		`{"type": "json_schema", "json_schema": {"schema": {"pattern": "(?=a)"}}}`: "response_format.json_schema.schema",
		`{"type": "json_schema", "json_schema": {"schema": {}, "other": 1}}`:       "response_format.json_schema.other",
	} {
		status, text := post(t, h, "/v1/completions", `{"prompt": "a", "response_format": `+format+`}`)
		if status != 400 || !strings.Contains(text, fmt.Sprintf(`"param":%q`, param)) {
			t.Errorf("%s: status %d, %s", format, status, text)
		}
	}
	for bias, want := range map[string]int{"100": 400, "-100": 400, "99.5": 200, "-99.5": 200} {
		status, text := post(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 40, "response_format": {"type": "json_object"}, "logit_bias": {"65": `+bias+`}}`)
		if status != want || want == 400 && !strings.Contains(text, `"param":"logit_bias"`) {
			t.Errorf("bias %s: status %d, %s", bias, status, text)
		}
	}
}
