package openai

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/program"
)

// The description of the API (OpenAPI 3.1) is made of the routes: parameters are the fields that
// handlers read, and answers the types that they write.

// described is what the description has of a route.
type described struct {
	about  string
	fields map[string]string // JSON schemas of the parameters
	needs  []string          // required ones
	answer any               // a value of the answer's type; nil: it is not JSON
	choice any               // of the answer's choices
	events bool              // the answer may be streamed
}

// shapes are the schemas of fields with readers of their own.
var shapes = map[string]string{
	"prompt":               `{"anyOf":[{"type":"string","minLength":1},{"type":"array","minItems":1,"items":{"type":"string"}},{"type":"array","minItems":1,"items":{"type":"integer","minimum":0}},{"type":"array","minItems":1,"items":{"type":"array","minItems":1,"items":{"type":"integer","minimum":0}}}]}`,
	"messages":             `{"type":"array","minItems":1,"maxItems":4096,"items":{"type":"object","required":["role"],"properties":{"role":{"type":"string"},"content":{"type":["string","array","null"]},"tool_calls":{"type":["array","null"]}}}}`,
	"input":                `{"anyOf":[{"type":"string"},{"type":"array","minItems":1,"maxItems":4096,"items":{"type":"object"}}]}`,
	"tools":                `{"type":"array","maxItems":128,"items":{"type":"object","required":["type"],"properties":{"type":{"const":"function"}}}}`,
	"tool_choice":          `{"anyOf":[{"enum":["auto","none","required"]},{"type":"object","required":["type"]}]}`,
	"top_k":                `{"type":"integer","minimum":-1}`,
	"logit_bias":           `{"type":"object","additionalProperties":{"type":"number","minimum":-100,"maximum":100}}`,
	"response_format":      `{"type":"object","required":["type"],"properties":{"type":{"enum":["text","json_object","json_schema"]}}}`,
	"structured_outputs":   `{"type":"object","additionalProperties":false,"properties":{"json":{},"regex":{"type":["string","null"]},"choice":{"type":["array","null"]},"grammar":{"type":["string","null"]},"json_object":{"type":["boolean","null"]}}}`,
	"guided_json":          `{"type":["object","boolean","string"]}`,
	"guided_regex":         `{"type":"string"}`,
	"guided_grammar":       `{"type":"string"}`,
	"json_schema":          `{"type":["object","boolean","string"]}`,
	"grammar":              `{"type":"string"}`,
	"guided_choice":        `{"type":"array","minItems":1,"items":{"type":"string"}}`,
	"stop":                 `{"anyOf":[{"type":"string","minLength":1},{"type":"array","maxItems":16,"items":{"type":"string","minLength":1}}]}`,
	"stop_token_ids":       `{"type":"array","maxItems":256,"items":{"type":"integer","minimum":0}}`,
	"tokens":               `{"type":"array","items":{"type":"integer","minimum":0}}`,
	"stream_options":       `{"type":"object","additionalProperties":false,"properties":{"include_usage":{"type":["boolean","null"]},"include_obfuscation":{"enum":[false,null]}}}`,
	"chat_template_kwargs": `{"type":"object"}`,
	"text":                 `{"type":"object","additionalProperties":false,"properties":{"format":{"type":["object","null"]},"verbosity":{"enum":["medium",null]}}}`,
	"reasoning":            `{"type":"object"}`,
	"max_tokens":           `{"type":"integer","minimum":0,"maximum":16777216}`,
	"logprobs":             `{"type":"integer","minimum":0,"maximum":20}`,
	"prompt_logprobs":      `{"type":"integer","minimum":0,"maximum":20}`,
}

// schemasOf returns the schemas of fields; the first of a name counts.
func schemasOf[T any](list []field[T]) map[string]string {
	out := map[string]string{}
	for _, f := range slices.Backward(list) {
		if out[f.name] = f.schema; f.schema == "" {
			out[f.name] = shapes[f.name]
		}
	}
	return out
}

// schemaOf returns the JSON schema of what encoding/json writes of a type.
func schemaOf(t reflect.Type) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{schemaOf(t.Elem()), map[string]any{"type": "null"}}}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": schemaOf(t.Elem())}
	case reflect.Slice:
		if t == reflect.TypeFor[json.RawMessage]() {
			return map[string]any{}
		}
		return map[string]any{"type": []string{"array", "null"}, "items": schemaOf(t.Elem())}
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for _, f := range reflect.VisibleFields(t) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || name == "" || name == "-" {
				continue
			}
			if properties[name] = schemaOf(f.Type); options != "omitempty" {
				required = append(required, name)
			}
		}
		return map[string]any{"type": "object", "properties": properties, "required": required}
	}
	return map[string]any{} // any value
}

// body is the description of a request's body.
func (d *described) body(strict bool) map[string]any {
	properties := map[string]any{}
	for name, schema := range d.fields {
		properties[name] = map[string]any{"anyOf": []any{json.RawMessage(schema), map[string]any{"type": "null"}}}
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": !strict}
	if d.needs != nil {
		schema["required"] = d.needs
	}
	return map[string]any{"required": true, "content": map[string]any{"application/json": map[string]any{"schema": schema}}}
}

// answers is the description of a route's answer.
func (d *described) answers() map[string]any {
	content := map[string]any{}
	if d.answer != nil {
		schema := schemaOf(reflect.TypeOf(d.answer))
		if d.choice != nil {
			schema["properties"].(map[string]any)["choices"] = map[string]any{"type": "array", "items": schemaOf(reflect.TypeOf(d.choice))}
		}
		content["application/json"] = map[string]any{"schema": schema}
	}
	if d.events {
		content["text/event-stream"] = map[string]any{}
	}
	return map[string]any{"200": map[string]any{"description": "the answer", "content": content}, "default": map[string]any{"$ref": "#/components/responses/error"}}
}

// openAPI answers /openapi.json.
func (s *Server) openAPI(w *response, _ *http.Request) error {
	paths := map[string]any{}
	for path, to := range s.routes {
		paths[path] = to.describe(s, nil)
	}
	name := map[string]any{"name": "model", "in": "path", "required": true, "schema": map[string]any{"type": "string"}}
	_, to, _ := s.find(modelPath + s.o.Name)
	paths[modelPath+"{model}"] = to.describe(s, []any{name})
	failure := map[string]any{"type": "object", "required": []string{"error"}, "properties": map[string]any{"error": schemaOf(reflect.TypeFor[Error]())}}
	components := map[string]any{
		"responses": map[string]any{"error": map[string]any{"description": "what is wrong", "content": map[string]any{"application/json": map[string]any{"schema": failure}}}},
	}
	if s.keys.Load() != nil {
		components["securitySchemes"] = map[string]any{"key": map[string]any{"type": "http", "scheme": "bearer"}}
	}
	data, err := json.Marshal(map[string]any{"openapi": "3.1.0", "info": map[string]any{"title": "Krait", "version": program.Version()}, "paths": paths, "components": components})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(data, '\n'))
	return nil
}

// describe returns the description of a route.
func (to *route) describe(s *Server, parameters []any) map[string]any {
	operation := map[string]any{"summary": to.about, "responses": to.answers()}
	if parameters != nil {
		operation["parameters"] = parameters
	}
	if to.method == http.MethodPost {
		operation["requestBody"] = to.body(s.o.StrictAPI)
	}
	if !to.open && s.keys.Load() != nil {
		operation["security"] = []any{map[string]any{"key": []string{}}}
	}
	return map[string]any{strings.ToLower(to.method): operation}
}

// apiRoutes returns the routes of the API itself.
func (s *Server) apiRoutes() map[string]route {
	completion, chat, response, encode, decode := completionFields(s.queue.Max()), chatFields(), responsesFields(), tokenizeFields(), s.detokenizeFields()
	return map[string]route{
		"/v1/completions":      {method: "POST", handle: s.completions, described: described{"continues texts", schemasOf(completion), []string{"prompt"}, answer{}, completionChoice{}, true}},
		"/v1/chat/completions": {method: "POST", handle: s.chats, described: described{"answers conversations", schemasOf(chat), []string{"messages"}, answer{}, chatChoice{}, true}},
		"/v1/responses":        {method: "POST", handle: s.responses, described: described{"answers conversations, by items", schemasOf(response), []string{"input"}, map[string]any{}, nil, true}},
		"/tokenize":            {method: "POST", handle: s.tokenize, described: described{"encodes a text or a conversation", schemasOf(encode), nil, tokensAnswer{}, nil, false}},
		"/detokenize":          {method: "POST", handle: s.detokenize, described: described{"decodes token ids", schemasOf(decode), []string{"tokens"}, textAnswer{}, nil, false}},
		"/v1/models":           {method: "GET", handle: s.models, described: described{about: "lists the served model", answer: modelList{}}},
		"/version":             {method: "GET", handle: s.version, described: described{about: "tells Krait's version", answer: version{}}},
		"/load":                {method: "GET", handle: s.load, described: described{about: "tells how many sequences run or wait", answer: load{}}},
		"/openapi.json":        {method: "GET", handle: s.openAPI, described: described{about: "describes the API", answer: map[string]any{}}},
		"/health":              {method: "GET", open: true, quiet: true, handle: s.health, described: described{about: "tells that the server lives", answer: status{}}},
		"/ready":               {method: "GET", open: true, quiet: true, handle: s.ready, described: described{about: "tells that the server takes requests", answer: status{}}},
	}
}
