package openai_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/krait-ml/krait/serving/openai"
)

var updatePeers = flag.Bool("update-peers", false, "rewrite the table of docs/serving.md")

// A peerTest is a test of another server, by file and name: what it asks, in Krait's terms, and
// what must come. Names of models are the server's, and prompts those of the model here.
type peerTest struct {
	file, name string
	ask        []peerAsk
	differs    string // how Krait answers otherwise; empty: alike
	absent     string // why the test makes no sense here; empty: it does
}

// peerAsk is a request, and parts of its answer.
type peerAsk struct {
	path, body string
	status     int // 0: 200
	has, not   []string
	check      func(t *testing.T, text string) // nil: none
}

const (
	vCompletion = "vLLM completion/test_completion.py"
	vChat       = "vLLM chat_completion/test_chat.py"
	vBasic      = "vLLM basic/test_basic.py"
	vPrompt     = "vLLM completion/test_prompt_validation.py"
	lBasic      = "llama.cpp unit/test_basic.py"
	lCompletion = "llama.cpp unit/test_completion.py"
	lChat       = "llama.cpp unit/test_chat_completion.py"
	lTokenize   = "llama.cpp unit/test_tokenize.py"
	lSecurity   = "llama.cpp unit/test_security.py"
	lResponses  = "llama.cpp unit/test_compat_oai_responses.py"

	ownAPI = "llama.cpp's own API: /completion, /props, /slots, /apply-template and their fields"
	inside = "calls functions of the server's code"
)

// completion is a request of a few tokens, with more parameters.
func completion(more string, has ...string) peerAsk {
	return peerAsk{path: "/v1/completions", body: `{"max_tokens": 5, "temperature": 0, "ignore_eos": true, "prompt": "In the beginning"` + more + `}`, has: has}
}

// dialog is the same of a chat.
func dialog(more string, has ...string) peerAsk {
	if !strings.Contains(more, "max_") {
		more += `, "max_completion_tokens": 5, "ignore_eos": true`
	}
	return peerAsk{path: "/v1/chat/completions", body: `{"messages": [{"role": "system", "content": "Book"}, {"role": "user", "content": "What is the best book"}]` + more + `}`, has: has}
}

// fails is a request that must be rejected with a status.
func (a peerAsk) fails(status int) peerAsk {
	a.status = status
	a.has = append(a.has, `"error":{"message":`)
	return a
}

func (a peerAsk) without(texts ...string) peerAsk {
	a.not = append(a.not, texts...)
	return a
}

func (a peerAsk) where(check func(t *testing.T, text string)) peerAsk {
	a.check = check
	return a
}

// choices checks the number of choices, and whether texts are equal or differ.
func choices(n int, equal ...[2]int) func(t *testing.T, text string) {
	return func(t *testing.T, text string) {
		var a struct {
			Choices []struct {
				Index   int
				Text    string
				Message struct{ Content string }
			}
		}
		if err := json.Unmarshal([]byte(text), &a); err != nil || len(a.Choices) != n {
			t.Errorf("%v: %d choices, want %d", err, len(a.Choices), n)
			return
		}
		for _, pair := range equal {
			if x, y := a.Choices[pair[0]], a.Choices[pair[1]]; x.Text+x.Message.Content != y.Text+y.Message.Content {
				t.Errorf("choices %v differ: %v, %v", pair, x, y)
			}
		}
		for i, c := range a.Choices {
			if c.Index != i || c.Text+c.Message.Content == "" {
				t.Errorf("choice %d is %+v", i, c)
			}
		}
	}
}

// usages checks the usage of a stream's parts: in none, in the last one, or in all.
func usages(all, last bool) func(t *testing.T, text string) {
	return func(t *testing.T, text string) {
		events := strings.Split(strings.TrimSpace(text), "\n\n")
		events = events[:len(events)-1] // data: [DONE]
		for i, e := range events {
			final := last && i == len(events)-1
			if got := strings.Contains(e, `"usage":{`); got != (all || final) {
				t.Errorf("event %d of %d: a usage: %t in %s", i, len(events), got, e)
			}
			if final && !strings.Contains(e, `"choices":[]`) {
				t.Errorf("the last event is %s", e)
			}
		}
	}
}

const grammarOfA = `, "grammar": "root ::= \"a\"{5,5}", "max_tokens": 6`

var peerTests = []peerTest{
	{file: vCompletion, name: "single_completion", ask: []peerAsk{completion("", `"finish_reason":"length"`, `"completion_tokens":5`, `"prompt_tokens":16,`, `"cached_tokens":`),
		{path: "/v1/completions", body: `{"prompt": [1, 2, 3, 4, 5], "max_tokens": 5, "ignore_eos": true}`, not: []string{`"prompt_logprobs"`}}}},
	{file: vCompletion, name: "completion_truncation_side", ask: []peerAsk{completion(`, "truncate_prompt_tokens": 4, "return_token_ids": true, "truncation_side": "left"`, `"prompt_token_ids":[110,105,110,103]`),
		completion(`, "truncate_prompt_tokens": 4, "return_token_ids": true, "truncation_side": "right"`, `"prompt_token_ids":[73,110,32,116]`)}},
	{file: vCompletion, name: "no_logprobs", ask: []peerAsk{completion(`, "logprobs": null`, `"logprobs":null`)}},
	{file: vCompletion, name: "zero_logprobs", ask: []peerAsk{completion(`, "logprobs": 0`, `"token_logprobs":[-`, `"top_logprobs":[{`)}},
	{file: vCompletion, name: "some_logprobs", ask: []peerAsk{completion(`, "logprobs": 5`, `"token_logprobs":[-`, `"top_logprobs":[{`)}},
	{file: vCompletion, name: "too_many_completion_logprobs", ask: []peerAsk{completion(`, "logprobs": 21`).fails(400), completion(`, "logprobs": 30, "stream": true`).fails(400), completion("")}},
	{file: vCompletion, name: "prompt_logprobs_completion", ask: []peerAsk{completion(`, "prompt_logprobs": -1`).fails(400), completion(`, "prompt_logprobs": 0`, `"prompt_logprobs":[null,{`),
		completion(`, "prompt_logprobs": 1`, `"prompt_logprobs":[null,{`), completion("").without(`"prompt_logprobs"`)}},
	{file: vCompletion, name: "completion_streaming", ask: []peerAsk{completion(`, "stream": true`, `"finish_reason":"length"`, "data: [DONE]")}},
	{file: vCompletion, name: "parallel_no_streaming", ask: []peerAsk{completion(`, "n": 3, "logprobs": 0, "seed": 42`).where(choices(3))}},
	{file: vCompletion, name: "parallel_streaming", ask: []peerAsk{completion(`, "n": 3, "seed": 42, "stream": true`, `"index":0`, `"index":1`, `"index":2`)}},
	{file: vCompletion, name: "completion_stream_options", ask: []peerAsk{
		completion(`, "stream": true, "stream_options": {"include_usage": false, "continuous_usage_stats": false}`).where(usages(false, false)),
		completion(`, "stream": true, "stream_options": {"include_usage": false, "continuous_usage_stats": true}`).where(usages(false, false)),
		completion(`, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": false}`).where(usages(false, true)),
		completion(`, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}`).where(usages(true, true)),
		completion(`, "stream": true, "stream_options": {}`).where(usages(false, false)),
		completion(`, "stream_options": {"include_usage": null}`).fails(400), completion(`, "stream_options": {"include_usage": true}`).fails(400),
		completion(`, "stream_options": {"continuous_usage_stats": null}`).fails(400), completion(`, "stream_options": {"continuous_usage_stats": true}`).fails(400)}},
	{file: vCompletion, name: "batch_completions", differs: "no beam search (use_beam_search)", ask: []peerAsk{{path: "/v1/completions", body: `{"prompt": ["In the", "In the"], "max_tokens": 5, "temperature": 0, "ignore_eos": true}`, check: choices(2, [2]int{0, 1})}}},
	{file: vCompletion, name: "echo_logprob_completion", ask: []peerAsk{completion(`, "echo": true, "logprobs": 1`, `"text":"In the beginning`, `"token_logprobs":[null,-`), completion(`, "echo": true, "logprobs": 0`, `"top_logprobs":[null,{`)}},
	{file: vCompletion, name: "invalid_json_schema", ask: []peerAsk{completion(`, "structured_outputs": {"json": {"type": "object", "properties": {"foo": "bar"}}}`).fails(400)}},
	{file: vCompletion, name: "invalid_regex", ask: []peerAsk{completion(`, "structured_outputs": {"regex": "[.*"}`).fails(400)}},
	{file: vCompletion, name: "invalid_grammar", ask: []peerAsk{completion(`, "structured_outputs": {"grammar": "root ::= select_statementinvalidsyntax"}`).fails(400)}},

	{file: vChat, name: "no_logprobs_chat", ask: []peerAsk{dialog(`, "logprobs": false`, `"logprobs":null`)}},
	{file: vChat, name: "zero_logprobs_chat", ask: []peerAsk{dialog(`, "logprobs": true, "top_logprobs": 0`, `"top_logprobs":[]`)}},
	{file: vChat, name: "some_logprobs_chat", ask: []peerAsk{dialog(`, "logprobs": true, "top_logprobs": 5`, `"top_logprobs":[{`)}},
	{file: vChat, name: "too_many_chat_logprobs", ask: []peerAsk{dialog(`, "logprobs": true, "top_logprobs": 21, "stream": true`).fails(400), dialog(`, "logprobs": true, "top_logprobs": 30`).fails(400), dialog("")}},
	{file: vChat, name: "prompt_logprobs_chat", ask: []peerAsk{dialog(`, "prompt_logprobs": 1`, `"prompt_logprobs":[`), dialog(`, "prompt_logprobs": -1`).fails(400), dialog("").without(`"prompt_logprobs"`)}},
	{file: vChat, name: "more_than_one_prompt_logprobs_chat", ask: []peerAsk{dialog(`, "prompt_logprobs": 2`, `"prompt_logprobs":[`)}},
	{file: vChat, name: "single_chat_session", ask: []peerAsk{dialog(`, "logprobs": true, "top_logprobs": 5`, `"finish_reason":"length"`, `"completion_tokens":5`, `"role":"assistant"`)}},
	{file: vChat, name: "chat_streaming", ask: []peerAsk{dialog(`, "stream": true`, `"role":"assistant"`, `"finish_reason":"length"`, "data: [DONE]")}},
	{file: vChat, name: "chat_completion_stream_options", ask: []peerAsk{dialog(`, "stream": true, "stream_options": {"include_usage": false}`).where(usages(false, false)),
		dialog(`, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": false}`).where(usages(false, true)), dialog(`, "stream_options": {"include_usage": true}`).fails(400),
		dialog(`, "stream_options": {"include_usage": null}`).fails(400), dialog(`, "stream": true, "min_tokens": 5, "stream_options": {"include_usage": true, "continuous_usage_stats": true}`).where(usages(true, true))}},
	{file: vChat, name: "structured_outputs_choice_chat", ask: []peerAsk{dialog(`, "max_completion_tokens": 20, "structured_outputs": {"choice": ["Python", "Rust"]}`, `"finish_reason":"stop"`)}},
	{file: vChat, name: "structured_outputs_json_chat", ask: []peerAsk{dialog(`, "max_completion_tokens": 60, "structured_outputs": {"json": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false}}`, `"content":"{\"a\":`)}},
	{file: vChat, name: "structured_outputs_regex_chat", ask: []peerAsk{dialog(`, "max_completion_tokens": 20, "structured_outputs": {"regex": "[0-9]{2}x"}`, `x","refusal"`)}},
	{file: vChat, name: "structured_outputs_type_error", ask: []peerAsk{dialog(`, "structured_outputs": {"regex": {"1": "Python"}}`).fails(400)}},
	{file: vChat, name: "structured_outputs_choice_chat_logprobs", ask: []peerAsk{dialog(`, "max_completion_tokens": 20, "logprobs": true, "top_logprobs": 5, "structured_outputs": {"choice": ["Python", "Rust"]}`, `"top_logprobs":[{`).without(`"logprob":-1e`)}},
	{file: vChat, name: "response_format_json_object", ask: []peerAsk{dialog(`, "max_completion_tokens": 8, "response_format": {"type": "json_object"}`, `"content":"{`)}},
	{file: vChat, name: "response_format_json_schema", ask: []peerAsk{dialog(`, "max_completion_tokens": 8, "response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": {"const": 2}}}`, `"content":"2"`)}},
	{file: vChat, name: "response_format_text", ask: []peerAsk{dialog(`, "response_format": {"type": "text"}`)}},
	{file: vChat, name: "extra_fields_allowed", differs: "unknown fields of messages are rejected by name: a template could read them",
		ask: []peerAsk{{path: "/v1/chat/completions", body: `{"max_tokens": 3, "messages": [{"role": "user", "content": "a", "extra_field": "0"}]}`, status: 400}}},
	{file: vChat, name: "complex_message_content", ask: []peerAsk{{path: "/v1/chat/completions", body: `{"max_tokens": 3, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}`}}},
	{file: vChat, name: "custom_role", ask: []peerAsk{{path: "/v1/chat/completions", body: `{"max_tokens": 3, "messages": [{"role": "my-custom-role", "content": "a"}]}`}, {path: "/v1/chat/completions", body: `{"max_tokens": 3, "messages": [{"role": "my-custom-role", "content": [{"type": "text", "text": "a"}]}]}`}}},
	{file: vChat, name: "long_seed", ask: []peerAsk{dialog(`, "seed": 9223372036854775808`).fails(400), dialog(`, "seed": -9223372036854775809`).fails(400)}},
	{file: vChat, name: "invocations", absent: "/invocations is SageMaker's"},
	{file: vChat, name: "chat_completion_n_parameter_non_streaming", ask: []peerAsk{dialog(`, "n": 3, "temperature": 0.7`).where(choices(3))}},
	{file: vChat, name: "chat_completion_n_parameter_streaming", ask: []peerAsk{dialog(`, "n": 2, "stream": true`, `"index":0`, `"index":1`)}},
	{file: vChat, name: "chat_completion_n_with_seed", ask: []peerAsk{dialog(`, "n": 2, "seed": 42`).where(choices(2))}},
	{file: vChat, name: "chat_completion_n_equals_1", ask: []peerAsk{dialog(`, "n": 1`).where(choices(1))}},
	{file: vChat, name: "chat_completion_request_n_parameter_to_sampling_params", absent: inside},
	{file: vChat, name: "chat_completion_request_n_parameter_default", absent: inside},

	{file: vBasic, name: "show_version", ask: []peerAsk{{path: "/version", has: []string{`{"version":"`}}}},
	{file: vBasic, name: "check_health", ask: []peerAsk{{path: "/health"}}},
	{file: vBasic, name: "request_cancellation", ask: []peerAsk{dialog("")}}, // TestMetrics, TestCancel: a client that leaves frees its slot
	{file: vBasic, name: "request_wrong_content_type", ask: []peerAsk{{path: "/v1/chat/completions", body: "form", status: 415}}},
	{file: vBasic, name: "server_load", ask: []peerAsk{{path: "/load", has: []string{`{"server_load":0}`}}}},
	{file: vBasic, name: "health_check_engine_dead_error", absent: inside},

	{file: vPrompt, name: "empty_prompt", ask: []peerAsk{{path: "/v1/completions", body: `{"prompt": null, "max_tokens": 5}`, status: 400}}},
	{file: vPrompt, name: "out_of_vocab_token_ids", ask: []peerAsk{{path: "/v1/completions", body: `{"prompt": [999999], "max_tokens": 5}`, status: 400}}},
	{file: vPrompt, name: "load_prompt_embeds and 4 more", absent: "prompts as embeddings, hidden states"},

	{file: lBasic, name: "server_start_simple", ask: []peerAsk{{path: "/health"}}},
	{file: lBasic, name: "server_start_with_host_family", ask: []peerAsk{{path: "/health"}}},
	{file: lBasic, name: "server_props", absent: ownAPI},
	{file: lBasic, name: "server_models", ask: []peerAsk{{path: "/models", has: []string{`"data":[{"id":"tiny-mamba"`}}}},
	{file: lBasic, name: "server_slots", absent: ownAPI},
	{file: lBasic, name: "load_split_model", absent: "a model in GGUF files of several parts"},
	{file: lBasic, name: "no_webui", ask: []peerAsk{{path: "/", status: 404}}}, // TestServePage
	{file: lBasic, name: "server_model_aliases_and_tags", differs: "one name (--model-name), no tags"},

	{file: lCompletion, name: "completion, completion_stream, completion_stream_vs_non_stream", absent: ownAPI},
	{file: lCompletion, name: "completion_with_openai_library", ask: []peerAsk{completion("", `"system_fingerprint":"krait-`, `"finish_reason":"length"`)}},
	{file: lCompletion, name: "completion_stream_with_openai_library", ask: []peerAsk{completion(`, "stream": true`, `"finish_reason":null`)}},
	{file: lCompletion, name: "completion_stream_with_openai_library_stops", ask: []peerAsk{completion(`, "stream": true, "stop": ["User:\n", "Assistant:\n"]`, `"finish_reason":`)}},
	{file: lCompletion, name: "consistent_result_same_seed", ask: []peerAsk{completion(`, "seed": 42, "n": 1`).where(choices(1))}},
	{file: lCompletion, name: "different_result_different_seed", ask: []peerAsk{{path: "/v1/completions", body: `{"prompt": "In", "seed": 1, "n": 4, "temperature": 1, "max_tokens": 20, "ignore_eos": true}`, check: choices(4)}}},
	{file: lCompletion, name: "consistent_result_different_batch_size", ask: []peerAsk{{path: "/v1/completions", body: `{"prompt": ["In", "In", "In"], "temperature": 0, "max_tokens": 9, "ignore_eos": true}`, check: choices(3, [2]int{0, 1}, [2]int{0, 2})}}},
	{file: lCompletion, name: "cache_vs_nocache_prompt", ask: []peerAsk{completion("")}}, // TestConcurrent: bit-equal with hits of the prefix cache
	{file: lCompletion, name: "nocache_long_input_prompt", ask: []peerAsk{completion(`, "max_tokens": 16000000`).fails(400)}},
	{file: lCompletion, name: "completion_with_tokens_input", differs: "a prompt is a text or ids, not both mixed", ask: []peerAsk{{path: "/v1/completions", body: `{"prompt": [[1, 2], "In"], "max_tokens": 2, "ignore_eos": true}`, check: choices(2)}}},
	{file: lCompletion, name: "completion_parallel_slots", ask: []peerAsk{{path: "/v1/completions", body: `{"prompt": ["a", "b", "c", "d", "e", "f"], "max_tokens": 12, "ignore_eos": true}`, check: choices(6)}}},
	{file: lCompletion, name: "completion_response_fields, n_probs, n_probs_stream, n_probs_post_sampling", absent: ownAPI},
	{file: lCompletion, name: "logit_bias", differs: "biases are by token id, not by text", ask: []peerAsk{completion(`, "logit_bias": {"101": -100}`)}},
	{file: lCompletion, name: "cancel_request", ask: []peerAsk{completion("")}}, // TestMetrics

	{file: lChat, name: "chat_completion", ask: []peerAsk{dialog("", `"id":"chatcmpl-`, `"completion_tokens":5`, `"role":"assistant"`, `"finish_reason":"length"`), {path: "/chat/completions", body: `{"max_tokens": 3, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}`}}},
	{file: lChat, name: "chat_completion_stream", ask: []peerAsk{dialog(`, "stream": true`, `"delta":{"role":"assistant"`, `"model":"tiny-mamba"`)}},
	{file: lChat, name: "chat_completion_with_openai_library", ask: []peerAsk{dialog(`, "seed": 42, "temperature": 0.8`, `"system_fingerprint":"krait-`)}},
	{file: lChat, name: "chat_template, chat_template_assistant_prefill, apply_chat_template", absent: "shows the prompt that a template makes; /tokenize with messages has its tokens"},
	{file: lChat, name: "completion_with_response_format", ask: []peerAsk{dialog(`, "max_completion_tokens": 10, "response_format": {"type": "json_object", "schema": {"const": "42"}}`, `"content":"\"42\""`),
		dialog(`, "max_completion_tokens": 10, "response_format": {"type": "json_object", "schema": {"items": [{"type": "integer"}]}}`), dialog(`, "max_completion_tokens": 12, "response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": {"const": "foooooo"}}}`, `"content":"\"foooooo\""`),
		dialog(`, "response_format": {"type": "json_object"}`), dialog(`, "response_format": {"type": "sound"}`).fails(400), dialog(`, "response_format": {"type": "json_object", "schema": 123}`).fails(400),
		dialog(`, "response_format": {"type": "json_object", "schema": {"type": 123}}`).fails(400), dialog(`, "response_format": {"type": "json_object", "schema": {"type": "hiccup"}}`).fails(400)}},
	{file: lChat, name: "completion_with_json_schema", ask: []peerAsk{dialog(`, "max_completion_tokens": 6, "json_schema": {"const": "42"}`, `"content":"\"42\""`)}},
	{file: lChat, name: "completion_with_grammar", ask: []peerAsk{{path: "/v1/chat/completions", body: `{"messages": [{"role": "user", "content": "Does not matter"}]` + grammarOfA + `}`, has: []string{`"content":"aaaaa"`}}}},
	{file: lChat, name: "invalid_chat_completion_req", ask: invalidChats()},
	{file: lChat, name: "chat_completion_with_timings_per_token", differs: "the parameter is timings, and its fields have other names", ask: []peerAsk{dialog(`, "timings": true`, `"timings":{`)}},
	{file: lChat, name: "logprobs", ask: []peerAsk{dialog(`, "logprobs": true, "top_logprobs": 10`, `"bytes":[`, `"top_logprobs":[{`)}},
	{file: lChat, name: "logprobs_stream", ask: []peerAsk{dialog(`, "logprobs": true, "top_logprobs": 10, "stream": true`, `"bytes":[`, `"top_logprobs":[{`)}},
	{file: lChat, name: "logit_bias", ask: []peerAsk{{path: "/tokenize", body: `{"content": " the a "}`, has: []string{`"tokens":[`}}, dialog(`, "logit_bias": {"101": -100}`)}},
	{file: lChat, name: "context_size_exceeded", ask: []peerAsk{dialog(`, "max_completion_tokens": 16000000`).fails(400)}},
	{file: lChat, name: "context_size_exceeded_stream", ask: []peerAsk{dialog(`, "max_completion_tokens": 16000000, "stream": true`).fails(400)}},
	{file: lChat, name: "return_progress", differs: "no progress of prefill in streams; /board shows it"},
	{file: lChat, name: "chat_completions_multiple_choices", ask: []peerAsk{dialog(`, "n": 2`).where(choices(2))}},

	{file: lTokenize, name: "tokenize_detokenize", differs: "the text of /detokenize is prompt, as vLLM's",
		ask: []peerAsk{{path: "/tokenize", body: `{"content": "In"}`, has: []string{`"tokens":[73,110]`}}, {path: "/detokenize", body: `{"tokens": [73, 110]}`, has: []string{`"prompt":"In"`}}}},
	{file: lTokenize, name: "tokenize_with_bos", ask: []peerAsk{{path: "/tokenize", body: `{"prompt": "In", "add_special_tokens": true}`}}},
	{file: lTokenize, name: "tokenize_with_pieces", absent: ownAPI},

	{file: lSecurity, name: "access_public_endpoint", differs: "/v1/models requires a key, as OpenAI's and vLLM's do", ask: []peerAsk{{path: "/health"}}},
	{file: lSecurity, name: "access_static_assets_without_api_key", ask: []peerAsk{{path: "/health"}}}, // TestPage
	{file: lSecurity, name: "incorrect_api_key", ask: []peerAsk{{path: "/v1/completions#wrong", body: `{"prompt": "a"}`, status: 401}, {path: "/completions#", body: `{"prompt": "a"}`, status: 401}}},
	{file: lSecurity, name: "correct_api_key", ask: []peerAsk{{path: "/completions#sesame", body: `{"prompt": "a", "max_tokens": 1}`}}},
	{file: lSecurity, name: "correct_api_key_anthropic_header", ask: []peerAsk{{path: "/completions#x-sesame", body: `{"prompt": "a", "max_tokens": 1}`}, {path: "/completions#x-wrong", body: `{"prompt": "a", "max_tokens": 1}`, status: 401}}},
	{file: lSecurity, name: "openai_library_correct_api_key", ask: []peerAsk{{path: "/chat/completions#sesame", body: `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}`}}},
	{file: lSecurity, name: "cors_options", ask: []peerAsk{{path: "/health"}}}, // TestCORS; sites are those of --cors
	{file: lSecurity, name: "local_media_file", absent: "models of text only"},

	{file: lResponses, name: "responses_with_text_format", ask: []peerAsk{{path: "/responses", body: `{"input": "Write", "max_output_tokens": 12, "text": {"format": {"type": "json_schema", "name": "t", "schema": {"const": "foooooo"}}}}`, has: []string{`\"foooooo\"`}},
		{path: "/responses", body: `{"input": "Write", "max_output_tokens": 10, "text": {"format": {"type": "json_object"}}}`}, {path: "/responses", body: `{"input": "Write", "max_output_tokens": 10, "text": {"format": {"type": "text"}}}`},
		{path: "/responses", body: `{"input": "Write", "max_output_tokens": 10, "text": {"format": {"type": "json_schema", "name": "t"}}}`, status: 400}}},
	{file: lResponses, name: "responses_with_openai_library", ask: []peerAsk{{path: "/v1/responses", body: `{"input": [{"role": "system", "content": "Book"}, {"role": "user", "content": "What"}], "max_output_tokens": 8}`, has: []string{`"id":"resp_`, `"id":"msg_`}}}},
	{file: lResponses, name: "responses_stream_with_openai_library", ask: []peerAsk{{path: "/v1/responses", body: `{"input": "What", "max_output_tokens": 8, "stream": true}`, has: []string{"response.created", "response.in_progress", "response.output_item.added", "response.output_text.delta", "response.output_item.done", `"id":"msg_`}}}},
	{file: lResponses, name: "responses_stream_with_llama_telemetry", absent: ownAPI},
}

// invalidChats are the conversations that llama.cpp rejects.
func invalidChats() (list []peerAsk) {
	for _, m := range []string{`null`, `"string"`, `[123]`, `[{}]`, `[{"role": 123}]`, `[{"role": "system", "content": 123}]`, `[{"role": "system", "content": "test"}, {}]`} {
		list = append(list, peerAsk{path: "/v1/chat/completions", body: `{"messages": ` + m + `}`, status: 400, has: []string{`"error":{`}})
	}
	return list
}

// TestPeers: what vLLM's and llama.cpp's tests of their servers ask is answered alike, or the table
// of docs/serving.md says how it is not.
func TestPeers(t *testing.T) {
	_, open, _ := server(t, openai.Options{}, 4)
	_, keyed, _ := server(t, openai.Options{Keys: keysOf(t, "sesame")}, 1)
	for _, p := range peerTests {
		t.Run(p.file[strings.LastIndex(p.file, "/")+1:]+"/"+p.name, func(t *testing.T) {
			if (p.absent == "" && p.differs == "" && len(p.ask) == 0) || p.absent != "" && (p.differs != "" || len(p.ask) > 0) {
				t.Error("the row says nothing, or too much")
			}
			for _, a := range p.ask {
				path, key, with := strings.Cut(a.path, "#")
				h := open
				if with {
					h = keyed
				}
				a.hold(t, h, path, key)
			}
		})
	}
	table := peerTable()
	const file = "../../docs/serving.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := strings.Index(string(text), "<!-- peers -->\n"), strings.Index(string(text), "<!-- end of peers -->\n")
	if begin < 0 || end < begin {
		t.Fatal("docs/serving.md has no place for the table")
	}
	begin += len("<!-- peers -->\n")
	if *updatePeers {
		if err := os.WriteFile(file, []byte(string(text[:begin])+table+string(text[end:])), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text[begin:end]) != table {
		t.Errorf("docs/serving.md has another table: go test ./serving/openai -run TestPeers -update-peers")
	}
}

// hold asks, and holds the answer against what must come.
func (a peerAsk) hold(t *testing.T, h *httptest.Server, path, key string) {
	t.Helper()
	method, kind := "POST", "application/json"
	if a.body == "" {
		method = "GET"
	}
	if a.body == "form" {
		kind = "application/x-www-form-urlencoded"
	}
	q, err := http.NewRequest(method, h.URL+path, strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", kind)
	if x, ok := strings.CutPrefix(key, "x-"); ok {
		q.Header.Set("X-Api-Key", x)
	} else if key != "" {
		q.Header.Set("Authorization", "Bearer "+key)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	text := string(all)
	if want := max(a.status, 200); err != nil || r.StatusCode != want && !(a.status == 0 && r.StatusCode == 200) {
		t.Errorf("%s %s: %d, want %d: %s, %v", path, a.body, r.StatusCode, want, text, err)
		return
	}
	for _, part := range a.has {
		if !strings.Contains(text, part) {
			t.Errorf("%s %s: no %s in %s", path, a.body, part, text)
		}
	}
	for _, part := range a.not {
		if strings.Contains(text, part) {
			t.Errorf("%s %s: there is %s in %s", path, a.body, part, text)
		}
	}
	if a.check != nil {
		a.check(t, text)
	}
}

// peerTable is the table of docs/serving.md.
func peerTable() string {
	var out, notes strings.Builder
	out.WriteString("| tests | make sense here | answered alike |\n|---|---|---|\n")
	var files []string
	sense, alike := map[string]int{}, map[string]int{}
	all := [2]int{}
	for _, p := range peerTests {
		if len(files) == 0 || files[len(files)-1] != p.file {
			files = append(files, p.file)
		}
		n := strings.Count(p.name, ", ") + 1
		if p.absent != "" {
			continue
		}
		sense[p.file] += n
		all[0] += n
		if p.differs == "" {
			alike[p.file] += n
			all[1] += n
			continue
		}
		server, _, _ := strings.Cut(p.file, " ")
		fmt.Fprintf(&notes, "| %s `%s` | %s |\n", server, p.name, p.differs)
	}
	for _, f := range files {
		server, path, _ := strings.Cut(f, " ")
		fmt.Fprintf(&out, "| %s `%s` | %d | %d |\n", server, path, sense[f], alike[f])
	}
	fmt.Fprintf(&out, "| all | %d | %d |\n\n| test | what Krait does otherwise |\n|---|---|\n%s", all[0], all[1], notes.String())
	return out.String()
}
