package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	openai "github.com/sashabaranov/go-openai"
	"github.com/sashabaranov/go-openai/jsonschema"
)

func configured(url, key string) *openai.Client {
	config := openai.DefaultConfig(key)
	config.BaseURL = url
	return openai.NewClientWithConfig(config)
}

// community runs the examples of go-openai.
func community() {
	ctx := context.Background()
	client := configured(given.API, given.Key)

	call("go-openai ListModels")
	models, err := client.ListModels(ctx)
	must(err)
	same("models", models.Models[0].ID, model)

	request := openai.ChatCompletionRequest{Model: model, MaxTokens: 12, Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "Hello!"}}, LogitBias: map[string]int{"32": -1}}
	seed := 3
	request.Seed = &seed
	call("go-openai CreateChatCompletion")
	said, err := client.CreateChatCompletion(ctx, request)
	must(err)
	same("tokens", said.Usage.CompletionTokens, 12)

	call("go-openai CreateChatCompletionStream")
	request.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	stream, err := client.CreateChatCompletionStream(ctx, request)
	must(err)
	text, used := "", 0
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		must(err)
		for _, c := range part.Choices {
			text += c.Delta.Content
		}
		if part.Usage != nil {
			used = part.Usage.CompletionTokens
		}
	}
	stream.Close()
	same("the streamed text", []any{text, used}, []any{said.Choices[0].Message.Content, 12})

	call("go-openai CreateCompletion")
	completed, err := client.CreateCompletion(ctx, openai.CompletionRequest{Model: model, MaxTokens: 5, Prompt: given.Prompt})
	must(err)
	same("the completion's tokens", completed.Usage.CompletionTokens, 5)

	call("go-openai CreateResponse")
	response, err := client.CreateResponse(ctx, openai.CreateResponseRequest{Model: model, Instructions: "You are a concise technical explainer.", Input: "Why is the sky blue?"})
	must(err)
	same("the response", len(response.GetOutputText()) > 0, true)

	call("go-openai CreateResponseStream")
	events, err := client.CreateResponseStream(ctx, openai.CreateResponseRequest{Model: model, Input: "Write a short story about a curious gopher."})
	must(err)
	spoken := ""
	for {
		event, err := events.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		must(err)
		if event.Type == openai.ResponseStreamEventOutputTextDelta {
			spoken += event.Delta
		}
	}
	events.Close()
	same("the streamed response", len(spoken) > 0, true)

	communityTools(ctx)
	communitySchema(ctx)
	communityErrors(ctx, client, request)
}

// communityTools runs the example with a tool, whole and streamed, and sends its result.
func communityTools(ctx context.Context) {
	client := configured(given.Caller, "none")
	params := jsonschema.Definition{Type: jsonschema.Object, Properties: map[string]jsonschema.Definition{
		"city": {Type: jsonschema.String, Description: "The city and state, e.g. San Francisco, CA"},
		"days": {Type: jsonschema.Integer},
	}, Required: []string{"city"}}
	note := json.RawMessage(`{"type": "object", "properties": {"text": {"type": "string"}, "done": {"type": "boolean"}}, "required": ["text", "done"], "additionalProperties": false}`)
	request := openai.ChatCompletionRequest{
		Model:    model,
		Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "What is the weather in Rome today?"}},
		Tools: []openai.Tool{
			{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{Name: "get_weather", Description: "Get the current weather in a given location", Parameters: params}},
			{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{Name: "note", Strict: true, Parameters: note}},
		},
	}
	call("go-openai tools")
	said, err := client.CreateChatCompletion(ctx, request)
	must(err)
	message := said.Choices[0].Message
	same("calls", []any{arguments(message.ToolCalls[0].Function.Arguments), arguments(message.ToolCalls[1].Function.Arguments), message.ReasoningContent}, []any{rome, noted, "Let me see."})

	call("go-openai tools, the next turn")
	request.Messages = append(request.Messages, message)
	for _, c := range message.ToolCalls {
		request.Messages = append(request.Messages, openai.ChatCompletionMessage{Role: openai.ChatMessageRoleTool, Content: "Sunny and 80 degrees.", Name: c.Function.Name, ToolCallID: c.ID})
	}
	next, err := client.CreateChatCompletion(ctx, request)
	must(err)
	same("the next turn", next.Choices[0].FinishReason, openai.FinishReasonToolCalls)

	call("go-openai tools streamed")
	stream, err := client.CreateChatCompletionStream(ctx, request)
	must(err)
	defer stream.Close()
	var joined [2]string
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		must(err)
		for _, c := range part.Choices[0].Delta.ToolCalls {
			joined[*c.Index] += c.Function.Arguments
		}
	}
	same("streamed calls", []any{arguments(joined[0]), arguments(joined[1])}, []any{rome, noted})
}

// communitySchema runs the example of structured outputs.
func communitySchema(ctx context.Context) {
	call("go-openai structured outputs")
	var got computer
	schema, err := jsonschema.GenerateSchemaForType(got)
	must(err)
	said, err := configured(given.Computer, "none").CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model:          model,
		Messages:       []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "What computer ran the first neural network?"}},
		ResponseFormat: &openai.ChatCompletionResponseFormat{Type: openai.ChatCompletionResponseFormatTypeJSONSchema, JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: "computer", Schema: schema, Strict: true}},
	})
	must(err)
	must(schema.Unmarshal(said.Choices[0].Message.Content, &got))
	same("the computer", got, markI)
	call("go-openai JSON mode")
	said, err = configured(given.Computer, "none").CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model:          model,
		Messages:       []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "As JSON"}},
		ResponseFormat: &openai.ChatCompletionResponseFormat{Type: openai.ChatCompletionResponseFormatTypeJSONObject},
	})
	must(err)
	same("it is JSON", json.Valid([]byte(said.Choices[0].Message.Content)), true)
}

// communityErrors looks at errors, and leaves a stream.
func communityErrors(ctx context.Context, client *openai.Client, request openai.ChatCompletionRequest) {
	refused := func(name string, status int, err error) {
		call("go-openai " + name)
		var e *openai.APIError
		if !errors.As(err, &e) {
			panic(err)
		}
		same(name, e.HTTPStatusCode, status)
	}
	request.StreamOptions = nil
	wrong := request
	wrong.Temperature = 9
	_, err := client.CreateChatCompletion(ctx, wrong)
	refused("a parameter that is wrong", 400, err)
	_, err = client.CreateEmbeddings(ctx, openai.EmbeddingRequest{Model: model, Input: []string{"a"}})
	refused("embeddings", 501, err)
	_, err = configured(given.API, "wrong").ListModels(ctx)
	refused("a wrong key", 401, err)

	call("go-openai a stream that is cancelled")
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	request.MaxTokens = 100000
	stream, err := client.CreateChatCompletionStream(cancelled, request)
	must(err)
	defer stream.Close()
	for {
		if _, err := stream.Recv(); errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			panic(err)
		}
		cancel()
	}
}
