package openai

import (
	"encoding/json"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/krait-ml/krait"
)

type completionRequest struct {
	params
	prompts []prompt
	echo    bool
	none    bool // max_tokens is 0
}

func completionFields(mostPrompts int) []field[*completionRequest] {
	type at = *completionRequest
	most := whole("max_tokens", 0, maxTokens, func(q at) *int { return &q.most })
	return append(append([]field[at]{ // the first of a name counts
		{name: "max_tokens", read: func(q at, raw json.RawMessage) *Error {
			err := most.read(q, raw)
			q.none = err == nil && q.most == 0
			return err
		}}}, append(common(func(q at) *params { return &q.params }), inert[at]()...)...),
		field[at]{name: "prompt", read: func(q at, raw json.RawMessage) *Error { return readPrompts(&q.prompts, raw, mostPrompts) }},
		truth("echo", func(q at) *bool { return &q.echo }),
		field[at]{name: "logprobs", read: func(q at, raw json.RawMessage) *Error {
			q.generate.LogProbs = true
			return whole("logprobs", 0, maxTopLogProbs, func(q at) *int { return &q.generate.TopLogProbs }).read(q, raw)
		}},
		refused[at]("best_of", "use n, which returns all texts", "1"),
		refused[at]("suffix", "models continue a prompt, and do not fill in the middle", `""`),
	)
}

// completions answers /v1/completions.
func (s *Server) completions(w *response, r *http.Request) error {
	q := &completionRequest{params: s.newParams(w.tenant)}
	if err := readBody(w, r, q, completionFields(s.queue.Max())); err != nil {
		return err
	}
	if err := q.check(s); err != nil {
		return err
	}
	if err := q.settle(s.o.Prefill); err != nil {
		return err
	}
	least := 0
	for _, p := range q.prompts {
		least += p.leastTokens(s)
	}
	if err := s.queue.Check(w.tenant, least); err != nil {
		return err
	}
	var prompts [][]int
	echoes := make([]string, len(q.prompts))
	for i, p := range q.prompts {
		if err := r.Context().Err(); err != nil { // the client has disconnected
			return err
		}
		ids, err := s.encode(p)
		if err != nil {
			return err
		}
		prompts = append(prompts, q.shorten(ids))
		if q.echo {
			if echoes[i] = p.text; p.ids != nil {
				echoes[i] = s.tokens.Decode(p.ids, true)
			}
		}
	}
	if err := q.checkEchoed(prompts); err != nil {
		return err
	}
	q.prompts = nil
	w.lease.end()
	return s.serve(w, r, &q.params, prompts, listForm{&completionForm{s, s.head("cmpl-", "text_completion"), q.echo, echoes, q.choices}, q.usage, q.usage && q.usages})
}

// settle checks parameters that depend on each other, and sets what follows from them.
func (q *completionRequest) settle(prefill []krait.Prefiller) error {
	switch {
	case q.prompts == nil:
		return bad("prompt", "it is missing")
	case q.none && !q.echo:
		return bad("max_tokens", "it is 0, which is allowed with echo only")
	}
	q.generate.PromptOnly = q.none
	echoes := q.echo && q.generate.LogProbs && !q.hidden
	q.generate.PromptLogProbs = q.generate.PromptLogProbs || echoes
	if echoes && slices.ContainsFunc(prefill, krait.Prefiller.Strict) {
		return bad("echo", "with logprobs this server must prefill the prompt, and it uses prefill servers only (--prefill-only)")
	}
	if q.most == 0 && !q.none {
		q.most, q.clip = 16, true
	}
	return nil
}

// maxEchoed bounds the log-probabilities of prompt tokens in an answer, which take about 100 bytes
// each until the answer is written.
const maxEchoed = 1 << 20

// checkEchoed bounds the log-probabilities of prompt tokens.
func (p *params) checkEchoed(prompts [][]int) *Error {
	if !p.generate.PromptLogProbs {
		return nil
	}
	sum := 0
	for _, ids := range prompts {
		sum += len(ids) * p.choices * (1 + p.generate.TopLogProbs)
	}
	if sum > maxEchoed {
		return bad("logprobs", "with echo or prompt_logprobs the answer would have %d log-probabilities of prompt tokens; the limit is %d: send fewer or shorter prompts", sum, maxEchoed)
	}
	return nil
}

// completionForm formats texts as completions.
type completionForm struct {
	s *Server
	head
	echo    bool
	echoes  []string
	choices int // for each prompt
}

func (f *completionForm) part(c *choice, p part) any {
	if p.first {
		p.text = f.echoes[c.index/f.choices] + p.text
	}
	out := completionChoice{Index: c.index, Text: p.text, Finish: p.finish, added: f.s.added(c, p)}
	if c.o.LogProbs && !c.extra.hidden {
		out.LogProbs = &completionLogProbs{Tokens: []string{}, Probs: []*float64{}, Top: []map[string]float64{}, Offsets: []int{}}
		before := 0 // characters
		if c.o.PromptLogProbs && f.echo {
			before = utf8.RuneCountInString(f.echoes[c.index/f.choices])
			if p.first {
				f.echoed(out.LogProbs, c, before)
			}
		}
		f.logProbs(out.LogProbs, p.probs, before)
	}
	return out
}

// echoed adds the tokens of the prompt, whose text has length characters. The first token has no
// probability.
func (f *completionForm) echoed(out *completionLogProbs, c *choice, length int) {
	stream, at := f.s.tokens.NewStream(true), 0
	var list []probToken
	for i, id := range c.prompt {
		p := probToken{id: id, offset: min(at, length)} // a tokenizer may have changed the text
		if i > 0 {
			p.LogProbs = c.scored[i-1]
		}
		list = append(list, p)
		at += utf8.RuneCountInString(stream.Push(id))
	}
	f.logProbs(out, list, 0)
	out.Probs[0], out.Top[0] = nil, nil
}

func (f *completionForm) whole(c *choice, p part) any { return f.part(c, p) }

func (f *completionForm) heads() (part, whole head) { return f.head, f.head }

// logProbs adds tokens whose text begins after before characters.
func (f *completionForm) logProbs(out *completionLogProbs, list []probToken, before int) {
	for _, p := range list {
		name, _ := f.s.spelling(p.id)
		out.Tokens = append(out.Tokens, name)
		chosen := finite(p.Chosen)
		out.Probs = append(out.Probs, &chosen)
		out.Offsets = append(out.Offsets, before+p.offset)
		best := map[string]float64{name: chosen} // the one chosen is always there
		for _, t := range p.Top {
			name, _ := f.s.spelling(t.ID)
			if _, there := best[name]; !there {
				best[name] = finite(t.LogProb)
			}
		}
		out.Top = append(out.Top, best)
	}
}
