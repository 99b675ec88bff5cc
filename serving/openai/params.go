package openai

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/text/constrain"
	"github.com/krait-ml/krait/text/reply"
)

// params are the parameters of completions and chats.
type params struct {
	model    string
	user     string
	generate krait.Generate
	choices  int // for each prompt
	seed     int64
	stream   bool
	usage    bool               // send it at the end of a stream
	usages   bool               // and in each part
	streamed bool               // there are stream_options
	most     int                // max_tokens; 0: not given
	newMost  int                // max_completion_tokens
	grammar  *constrain.Grammar // of response_format and the like; nil: any text
	grammars *constrain.Cache
	tenant   string
	notation string        // and source of the grammar
	answer   *reply.Config // of a chat; nil: text only
	clip     bool          // most is the server's default, which may be lowered to fit
	extra
}

// Bounds of a request.
const (
	maxChoices     = 128
	maxStops       = 16
	maxTopLogProbs = 20
	maxTokens      = 1 << 24
	maxMessages    = 4096    // a template needs about 1 KiB for each
	maxObject      = 1 << 18 // bytes of a schema or of variables, which need up to 60 times the memory
)

// newParams returns the defaults: the sampling parameters of the checkpoint, and else temperature
// 1, as in the API.
func (s *Server) newParams(tenant string) params {
	p := params{choices: 1, seed: rand.Int64(), generate: s.m.Defaults(), grammars: &s.grammars, tenant: tenant}
	if p.generate.Temperature == 0 {
		p.generate.Temperature = 1
	}
	return p
}

// common returns the fields that completions and chats share; of returns the params of a T.
func common[T any](of func(T) *params) []field[T] {
	set := func(f func(g *krait.Generate) *float64) func(T) *float64 {
		return func(t T) *float64 { return f(&of(t).generate) }
	}
	return []field[T]{
		text("model", func(t T) *string { return &of(t).model }),
		text("user", func(t T) *string { return &of(t).user }),
		whole("max_tokens", 1, maxTokens, func(t T) *int { return &of(t).most }),
		number("temperature", 0, 2, set(func(g *krait.Generate) *float64 { return &g.Temperature })),
		positive("top_p", 1, set(func(g *krait.Generate) *float64 { return &g.TopP })),
		number("min_p", 0, 1, set(func(g *krait.Generate) *float64 { return &g.MinP })),
		number("presence_penalty", -2, 2, set(func(g *krait.Generate) *float64 { return &g.PresencePenalty })),
		number("frequency_penalty", -2, 2, set(func(g *krait.Generate) *float64 { return &g.FrequencyPenalty })),
		positive("repetition_penalty", 100, set(func(g *krait.Generate) *float64 { return &g.RepetitionPenalty })),
		{name: "top_k", read: func(t T, raw json.RawMessage) *Error { return readTopK(&of(t).generate.TopK, raw) }},
		{name: "logit_bias", read: func(t T, raw json.RawMessage) *Error { return readBias(&of(t).generate, raw) }},
		{name: "response_format", read: func(t T, raw json.RawMessage) *Error { return readFormat(of(t), raw) }},
		{name: "structured_outputs", read: func(t T, raw json.RawMessage) *Error { return readStructured(of(t), raw) }},
		guided("guided_json", "json", of), guided("guided_regex", "regex", of), guided("guided_choice", "choice", of), guided("guided_grammar", "grammar", of),
		guided("json_schema", "json", of), guided("grammar", "grammar", of),
		{name: "stop", read: func(t T, raw json.RawMessage) *Error { return readStop(&of(t).generate, raw) }},
		whole("n", 1, maxChoices, func(t T) *int { return &of(t).choices }),
		value("seed", "a whole number", func(t T) *int64 { return &of(t).seed }, nil),
		truth("stream", func(t T) *bool { return &of(t).stream }),
		{name: "stream_options", read: func(t T, raw json.RawMessage) *Error { return readStreamOptions(of(t), raw) }},
		whole("min_tokens", 0, maxTokens, func(t T) *int { return &of(t).least }),
		{name: "stop_token_ids", read: func(t T, raw json.RawMessage) *Error { return readStopIDs(&of(t).generate, raw) }},
		whole("truncate_prompt_tokens", 1, maxTokens, func(t T) *int { return &of(t).cut }),
		oneOf("truncation_side", []string{"left", "right"}, func(t T) *string { return &of(t).side }),
		{name: "prompt_logprobs", read: func(t T, raw json.RawMessage) *Error {
			of(t).scores = true
			return whole("prompt_logprobs", 0, maxTopLogProbs, func(t T) *int { return &of(t).promptTop }).read(t, raw)
		}},
		truth("return_token_ids", func(t T) *bool { return &of(t).ids }),
		truth("timings", func(t T) *bool { return &of(t).timed }),
		truth("ignore_eos", func(t T) *bool { return &of(t).generate.IgnoreEOS }),
		oneOf("speculate", draft.Names, func(t T) *string { return &of(t).generate.Speculate }),
	}
}

// readTopK accepts -1 for all tokens, as other servers do.
func readTopK(k *int, raw json.RawMessage) *Error {
	if string(raw) == "-1" {
		*k = 0
		return nil
	}
	return whole("top_k", 0, math.MaxInt32, func(k *int) *int { return k }).read(k, raw)
}

func readBias(g *krait.Generate, raw json.RawMessage) *Error {
	var list map[string]*float64
	if json.Unmarshal(raw, &list) != nil {
		return bad("logit_bias", "it must be an object of token ids and numbers, such as {\"50256\": -100}")
	}
	g.LogitBias = map[int]float64{}
	for key, bias := range list {
		id, err := strconv.Atoi(key)
		if err != nil || strconv.Itoa(id) != key || bias == nil {
			return bad("logit_bias", "%q is not a token id with a number", short(key))
		}
		g.LogitBias[id] = *bias
	}
	return nil
}

func readStop(g *krait.Generate, raw json.RawMessage) *Error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		g.Stop = []string{one}
	} else if json.Unmarshal(raw, &g.Stop) != nil {
		return bad("stop", "it must be a string, or an array of strings")
	}
	switch {
	case len(g.Stop) > maxStops:
		return bad("stop", "it has %d strings; the limit is %d", len(g.Stop), maxStops)
	case slices.Contains(g.Stop, ""):
		return bad("stop", "an empty text would end the answer before it begins")
	}
	return nil
}

func readStreamOptions(p *params, raw json.RawMessage) *Error {
	if !begins(raw, '{') {
		return bad("stream_options", "it is %s; it must be an object such as {\"include_usage\": true}", short(string(raw)))
	}
	p.streamed = true
	for key, v := range members(raw) {
		at := "stream_options." + short(key)
		switch {
		case key == "include_usage" || key == "continuous_usage_stats":
			to := map[string]*bool{"include_usage": &p.usage, "continuous_usage_stats": &p.usages}[key]
			if json.Unmarshal(v, to) != nil { // null is the same as absent
				return bad(at, "it is %s; it must be true or false", short(string(v)))
			}
		case key != "include_obfuscation":
			return unknown(at, "it is not supported: stream_options has include_usage and continuous_usage_stats")
		case string(v) != "false" && string(v) != "null":
			return bad(at, "it is %s; it must be false: this server adds no obfuscation", short(string(v)))
		}
	}
	return nil
}

// check checks the model, and parameters that depend on each other.
func (p *params) check(s *Server) *Error {
	if err := s.checkModel(p.model); err != nil {
		return err
	}
	vocab := s.m.Vocab()
	switch {
	case p.streamed && !p.stream:
		return bad("stream_options", "it requires stream: set stream to true")
	case p.most > 0 && p.newMost > 0 && p.most != p.newMost:
		return bad("max_completion_tokens", "it differs from max_tokens: give only one of them")
	}
	if name := p.generate.Speculate; name != "" && name != draft.Off && !s.m.Speculates() {
		return bad("speculate", "it is %s, and this server makes no drafts: start it with --speculate auto, or leave it out", name)
	}
	if p.generate.Speculate == draft.MTP && s.m.CheckSpeculate(draft.MTP) != nil {
		return bad("speculate", "it is mtp, and this server drafts with no MTP head: start it with --speculate mtp, or leave it out")
	}
	p.generate.TopLogProbs = min(p.generate.TopLogProbs, vocab)
	banned, only := 0, false
	for id, bias := range p.generate.LogitBias {
		if id < 0 || id >= vocab || !(math.Abs(bias) <= 100) {
			return bad("logit_bias", "token %d has bias %v; ids go from 0 to %d, biases from -100 to 100", id, bias, vocab-1)
		}
		if only = only || bias == 100; bias == -100 {
			banned++
		}
		if p.grammar != nil && math.Abs(bias) == 100 {
			return bad("logit_bias", "token %d has bias %v, which may exclude tokens that response_format needs: use more than -100 and less than 100", id, bias)
		}
	}
	if banned == vocab && !only {
		return bad("logit_bias", "all %d tokens have bias -100, which bans them: leave one", vocab)
	}
	p.most = max(p.most, p.newMost)
	return p.extra.check(s, p)
}

// inert returns fields for parameters of the API that change no text.
func inert[T any]() (list []field[T]) {
	for _, name := range []string{"metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "priority"} {
		list = append(list, field[T]{name: name, schema: "{}", read: func(T, json.RawMessage) *Error { return nil }})
	}
	return list
}
