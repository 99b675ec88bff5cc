package openai

import "encoding/json"

// The answers of OpenAI's API. Parameters of requests are in params.go.

type usage struct {
	Prompt     int           `json:"prompt_tokens"`
	Completion int           `json:"completion_tokens"`
	Total      int           `json:"total_tokens"`
	Details    promptDetails `json:"prompt_tokens_details"`
	Drafts     *draftDetails `json:"completion_tokens_details,omitempty"` // nil: the server makes none
}

// draftDetails counts drafts by the API's names.
type draftDetails struct {
	Accepted int `json:"accepted_prediction_tokens"`
	Rejected int `json:"rejected_prediction_tokens"`
}

type promptDetails struct {
	Cached int `json:"cached_tokens"`
}

// head has the first fields of answers and of the parts of a stream.
type head struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Build   string `json:"system_fingerprint"` // the same text may come only from the same build
}

type answer struct {
	head
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
}

// partWithUsage is a part of a stream that ends with the usage; usage is null in the other parts.
type partWithUsage struct {
	head
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage"`
}

type completionChoice struct {
	Index    int                 `json:"index"`
	Text     string              `json:"text"`
	LogProbs *completionLogProbs `json:"logprobs"`
	Finish   *string             `json:"finish_reason"`
	added
}

type completionLogProbs struct {
	Tokens  []string             `json:"tokens"`
	Probs   []*float64           `json:"token_logprobs"` // nil: the first token of a prompt
	Top     []map[string]float64 `json:"top_logprobs"`
	Offsets []int                `json:"text_offset"` // in characters of the text
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatMessage  `json:"message,omitempty"`
	Delta    *chatDelta    `json:"delta,omitempty"`
	LogProbs *chatLogProbs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
	added
}

type chatMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Reasoning string          `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall      `json:"tool_calls,omitempty"`
	Refusal   *string         `json:"refusal"`
}

type chatDelta struct {
	Role      string          `json:"role,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	Reasoning string          `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall      `json:"tool_calls,omitempty"`
}

type chatLogProbs struct {
	Content []chatToken `json:"content"`
	Refusal *string     `json:"refusal"`
}

type chatToken struct {
	tokenProb
	Top []tokenProb `json:"top_logprobs"`
}

type tokenProb struct {
	Token   string  `json:"token"`
	LogProb float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"` // nil: the token is not valid UTF-8 alone
}

type modelList struct {
	Object string      `json:"object"`
	Data   []modelCard `json:"data"`
}

type modelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
	Context int    `json:"max_model_len,omitempty"` // tokens; absent: no limit
	Ranks   int    `json:"ranks"`
}

// tokensAnswer is the answer of /tokenize.
type tokensAnswer struct {
	Count  int   `json:"count"`
	Tokens []int `json:"tokens"`
}

// textAnswer is the answer of /detokenize.
type textAnswer struct {
	Prompt string `json:"prompt"`
}

// load is the answer of /load, as vLLM's.
type load struct {
	Requests int `json:"server_load"` // running and queued
}

type version struct {
	Version string `json:"version"`
}

type status struct {
	Status string `json:"status"`
}
