package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/invopop/jsonschema"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

const model = "tiny-mamba"

func clientOf(url, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(0))
}

// official runs the examples of OpenAI's own client.
func official() {
	ctx := context.Background()
	client := clientOf(given.API, given.Key)

	call("openai-go Models.List")
	models, err := client.Models.List(ctx)
	must(err)
	same("models", models.Data[0].ID, model)

	chatting := openai.ChatCompletionNewParams{
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.DeveloperMessage("Be brief."), openai.UserMessage("Say this is a test")},
		Model:               model,
		Temperature:         openai.Float(0),
		MaxCompletionTokens: openai.Int(12),
		Seed:                openai.Int(1),
	}
	call("openai-go Chat.Completions.New")
	said, err := client.Chat.Completions.New(ctx, chatting)
	must(err)
	same("tokens", said.Usage.CompletionTokens, int64(12))

	call("openai-go Chat.Completions.NewStreaming")
	stream := client.Chat.Completions.NewStreaming(ctx, chatting)
	acc, finished := openai.ChatCompletionAccumulator{}, false
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			panic("the accumulator refuses a chunk")
		}
		if _, ok := acc.JustFinishedContent(); ok {
			finished = true
		}
	}
	must(stream.Err())
	same("the streamed text", []any{acc.Choices[0].Message.Content, finished}, []any{said.Choices[0].Message.Content, true})

	officialTools(ctx)
	officialSchema(ctx)

	call("openai-go Responses.New")
	response, err := client.Responses.New(ctx, responses.ResponseNewParams{Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Write a haiku about programming")}, Temperature: openai.Float(0), MaxOutputTokens: openai.Int(12)})
	must(err)
	same("the response", []any{len(response.OutputText()) > 0, string(response.Status)}, []any{true, "incomplete"})

	call("openai-go Responses.NewStreaming")
	events := client.Responses.NewStreaming(ctx, responses.ResponseNewParams{Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Write a haiku about programming")}, Temperature: openai.Float(0), MaxOutputTokens: openai.Int(12)})
	text := ""
	for events.Next() {
		if event := events.Current(); event.Type == "response.output_text.delta" {
			text += event.Delta
		}
	}
	must(events.Err())
	same("the streamed response", text, response.OutputText())

	refused := func(name string, status int, param string, err error) {
		call("openai-go " + name)
		var e *openai.Error
		if !errors.As(err, &e) {
			panic(err)
		}
		same(name, []any{e.StatusCode, e.Param}, []any{status, param})
	}
	wrong := chatting
	wrong.Temperature = openai.Float(9)
	_, err = client.Chat.Completions.New(ctx, wrong)
	refused("a parameter that is wrong", 400, "temperature", err)
	_, err = client.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: model, Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("a")}})
	refused("embeddings", 501, "", err)
	_, err = client.Models.Get(ctx, "gpt-5")
	refused("a model that is not there", 404, "model", err)
	stranger := clientOf(given.API, "wrong")
	_, err = stranger.Models.List(ctx)
	refused("a wrong key", 401, "", err)
	_, err = client.Responses.New(ctx, responses.ResponseNewParams{Model: model, PreviousResponseID: openai.String("resp_1"), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("a")}})
	refused("a response that is not stored", 400, "previous_response_id", err)

	call("openai-go a stream that is cancelled")
	cancelled, cancel := context.WithCancel(ctx)
	long := chatting
	long.MaxCompletionTokens = openai.Int(100000)
	left := client.Chat.Completions.NewStreaming(cancelled, long)
	for left.Next() {
		cancel()
	}
	cancel()
	if err := left.Err(); err != nil && !errors.Is(err, context.Canceled) {
		panic(err)
	}
}

// officialTools runs the examples with tools, and sends their results.
func officialTools(ctx context.Context) {
	client := clientOf(given.Caller, "none")
	city := openai.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}, "days": map[string]string{"type": "integer"}}, "required": []string{"city"}}
	note := openai.FunctionParameters{"type": "object", "properties": json.RawMessage(`{"text": {"type": "string"}, "done": {"type": "boolean"}}`), "required": []string{"text", "done"}, "additionalProperties": false}
	params := openai.ChatCompletionNewParams{
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is the weather in Rome?")},
		Tools: []openai.ChatCompletionToolUnionParam{
			openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "get_weather", Description: openai.String("Get weather at the given location"), Parameters: city}),
			openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "note", Strict: openai.Bool(true), Parameters: note}),
		},
		Seed:  openai.Int(0),
		Model: model,
	}
	call("openai-go tools")
	said, err := client.Chat.Completions.New(ctx, params)
	must(err)
	list := said.Choices[0].Message.ToolCalls
	same("calls", []any{arguments(list[0].Function.Arguments), arguments(list[1].Function.Arguments)}, []any{rome, noted})

	call("openai-go tools, the next turn")
	params.Messages = append(params.Messages, said.Choices[0].Message.ToParam())
	for _, c := range list {
		params.Messages = append(params.Messages, openai.ToolMessage("Sunny, 25°C", c.ID))
	}
	next, err := client.Chat.Completions.New(ctx, params)
	must(err)
	same("the next turn", next.Choices[0].FinishReason, "tool_calls")

	call("openai-go tools streamed")
	stream := client.Chat.Completions.NewStreaming(ctx, params)
	acc, finished := openai.ChatCompletionAccumulator{}, 0
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			panic("the accumulator refuses a chunk")
		}
		if _, ok := acc.JustFinishedToolCall(); ok {
			finished++
		}
	}
	must(stream.Err())
	streamed := acc.Choices[0].Message.ToolCalls
	same("streamed calls", []any{finished, arguments(streamed[0].Function.Arguments), arguments(streamed[1].Function.Arguments)}, []any{2, rome, noted})

	call("openai-go Responses.New tools")
	response, err := client.Responses.New(ctx, responses.ResponseNewParams{
		Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("What is the weather in Rome?")},
		Tools: []responses.ToolUnionParam{
			{OfFunction: &responses.FunctionToolParam{Name: "get_weather", Parameters: city}},
			{OfFunction: &responses.FunctionToolParam{Name: "note", Parameters: note, Strict: openai.Bool(true)}},
		},
	})
	must(err)
	var got []any
	for _, item := range response.Output {
		if item.Type == "function_call" {
			got = append(got, arguments(item.AsFunctionCall().Arguments))
		}
	}
	same("calls of the response", got, []any{rome, noted})
}

// officialSchema runs the examples of structured outputs, in chats and responses.
func officialSchema(ctx context.Context) {
	client := clientOf(given.Computer, "none")
	reflector := jsonschema.Reflector{AllowAdditionalProperties: false, DoNotReference: true}
	data, err := json.Marshal(reflector.Reflect(computer{}))
	must(err)
	var raw map[string]json.RawMessage
	must(json.Unmarshal(data, &raw))
	schema := map[string]any{}
	for key, value := range raw {
		schema[key] = value
	}

	call("openai-go structured outputs")
	said, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What computer ran the first neural network?")},
		ResponseFormat: openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "historical_computer", Description: openai.String("Notable information about a computer"), Schema: schema, Strict: openai.Bool(true)},
		}},
		Model: model,
	})
	must(err)
	var got computer
	must(json.Unmarshal([]byte(said.Choices[0].Message.Content), &got))
	same("the computer", got, markI)

	call("openai-go Responses.New structured outputs")
	response, err := client.Responses.New(ctx, responses.ResponseNewParams{
		Model: model,
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("What computer ran the first neural network?")},
		Text: responses.ResponseTextConfigParam{Format: responses.ResponseFormatTextConfigUnionParam{OfJSONSchema: &responses.ResponseFormatTextJSONSchemaConfigParam{
			Name: "historical_computer", Description: param.NewOpt("Notable information about a computer"), Schema: schema, Strict: openai.Bool(true),
		}}},
	})
	must(err)
	got = computer{}
	must(json.Unmarshal([]byte(response.OutputText()), &got))
	same("the computer of the response", got, markI)
}
