package openai_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/serving/openai"
)

// description is what the test reads of /openapi.json.
type description struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		Summary     string
		RequestBody *struct {
			Content map[string]struct{ Schema json.RawMessage }
		}
		Responses map[string]struct {
			Content map[string]struct{ Schema json.RawMessage }
		}
	}
}

func compiled(t *testing.T, schema json.RawMessage) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(schema)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s.Validate(v)
}

// TestOpenAPI: the description has every path, and agrees with the handlers on parameters: what one
// rejects by its type, the other does; what handlers answer is as described.
func TestOpenAPI(t *testing.T) {
	few := goldens.Few(t)
	_, h, _ := server(t, openai.Options{StrictAPI: true, Metrics: metrics.New()}, 2)
	_, text := get(t, h.URL+"/openapi.json")
	var d description
	if err := json.Unmarshal([]byte(text), &d); err != nil || d.OpenAPI != "3.1.0" {
		t.Fatalf("%v: %.300s", err, text)
	}
	bodies := map[string]string{
		"/v1/completions": `{"prompt": "a", "max_tokens": 2, "logprobs": 1, "prompt_logprobs": 1, "return_token_ids": true, "timings": true}`, "/v1/responses": `{"input": "a", "max_output_tokens": 2}`,
		"/v1/chat/completions": `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "logprobs": true, "top_logprobs": 1}`, "/tokenize": `{"prompt": "a"}`, "/detokenize": `{"tokens": [65]}`,
	}
	notations := []string{"guided_json", "guided_grammar", "json_schema", "grammar"} // which a schema does not describe
	// Values of every kind, and at the bounds of numbers.
	values := []string{`{"x": {"y": []}}`, `[[[1.5]]]`, `""`, `"\u0000"`, `[]`, `["a"]`, `[1]`, `-7.5`, `0`, `1`, `2`, `20`, `21`, `100`, `20000000`, `true`}
	for path, methods := range d.Paths {
		for method, o := range methods {
			if o.Summary == "" {
				t.Errorf("%s has no summary", path)
			}
			status, text := 0, ""
			if method == "get" {
				status, text = get(t, h.URL+strings.ReplaceAll(path, "{model}", "tiny-mamba"))
			} else {
				status, text = post(t, h, path, bodies[path])
			}
			if status != 200 {
				t.Errorf("%s %s: %d %s", method, path, status, text)
			}
			if schema := o.Responses["200"].Content["application/json"].Schema; schema != nil {
				if err := valid(t, compiled(t, schema), text); err != nil {
					t.Errorf("%s: %v\n%s", path, err, text)
				}
			}
			if o.RequestBody == nil {
				continue
			}
			raw := o.RequestBody.Content["application/json"].Schema
			schema := compiled(t, raw)
			if err := valid(t, schema, bodies[path]); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			var object struct{ Properties map[string]json.RawMessage }
			if err := json.Unmarshal(raw, &object); err != nil || len(object.Properties) < 2 {
				t.Fatalf("%s: %v", path, err)
			}
			for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
				for i, v := range values {
					if few && (i+len(name))%3 > 0 {
						continue
					}
					body := fmt.Sprintf(`{%q: %s}`, name, v)
					status, text := post(t, h, path, body)
					refused := status == 400 && strings.Contains(text, fmt.Sprintf(`"message":"%s`, name)) && !strings.Contains(text, "missing") && !strings.Contains(text, "either")
					if described := valid(t, compiled(t, object.Properties[name]), v) == nil; described == refused && name != "model" && !slices.Contains(notations, name) {
						t.Errorf("%s: %s: the handler says %d %s, and the description allows it: %v", path, body, status, text, described)
					}
				}
			}
			if err := valid(t, schema, `{"frobnicate": 1}`); err == nil {
				t.Errorf("%s allows unknown parameters", path)
			}
		}
	}
	for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/models", "/v1/models/{model}", "/metrics", "/health", "/ready", "/version", "/tokenize", "/detokenize", "/openapi.json"} {
		if d.Paths[path] == nil {
			t.Errorf("%s is not described", path)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	return r.StatusCode, readAll(t, r.Body)
}
