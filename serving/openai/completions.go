package openai

import (
	"encoding/json"
	"net/http"
)

type completionRequest struct {
	params
	prompts []prompt
	echo    bool
}

func completionFields() []field[*completionRequest] {
	type at = *completionRequest
	return append(append(common(func(q at) *params { return &q.params }), unsupported[at]()...),
		field[at]{"prompt", func(q at, raw json.RawMessage) *Error { return readPrompts(&q.prompts, raw) }},
		truth("echo", func(q at) *bool { return &q.echo }),
		field[at]{"logprobs", func(q at, raw json.RawMessage) *Error {
			q.generate.LogProbs = true
			return whole("logprobs", 0, maxTopLogProbs, func(q at) *int { return &q.generate.TopLogProbs }).read(q, raw)
		}},
		refused[at]("best_of", "all texts are given; ask for n", "1"),
		refused[at]("suffix", "models go on from a prompt, and fill nothing in", `""`),
	)
}

// completions continues prompts.
func (s *Server) completions(w *response, r *http.Request) error {
	q := &completionRequest{params: newParams(s.m)}
	if err := readBody(r, q, completionFields()); err != nil {
		return err
	}
	if err := q.check(s); err != nil {
		return err
	}
	switch {
	case q.prompts == nil:
		return bad("prompt", "it is not there")
	case q.echo && q.generate.LogProbs:
		return bad("echo", "it is not supported together with logprobs: those of prompts are not computed")
	}
	if q.most == 0 {
		q.most, q.clip = 16, true
	}
	var prompts [][]int
	echoes := make([]string, len(q.prompts))
	for i, p := range q.prompts {
		ids, err := s.encode(p)
		if err != nil {
			return err
		}
		prompts = append(prompts, ids)
		if q.echo {
			if echoes[i] = p.text; p.ids != nil {
				echoes[i] = s.tokens.Decode(p.ids, true)
			}
		}
	}
	return s.serve(w, r, &q.params, prompts, &completionForm{s, s.head("cmpl-", "text_completion"), echoes, q.choices})
}

// completionForm writes texts as completions.
type completionForm struct {
	s *Server
	head
	echoes  []string
	choices int // for each prompt
}

func (f *completionForm) part(c *choice, p part) any {
	if p.first {
		p.text = f.echoes[c.index/f.choices] + p.text
	}
	out := completionChoice{Index: c.index, Text: p.text, Finish: p.finish}
	if c.o.LogProbs {
		out.LogProbs = f.logProbs(p.probs, c.o.TopLogProbs)
	}
	return out
}

func (f *completionForm) whole(c *choice, p part) any { return f.part(c, p) }

func (f *completionForm) heads() (part, whole head) { return f.head, f.head }

func (f *completionForm) logProbs(list []probed, top int) *completionLogProbs {
	out := &completionLogProbs{Tokens: []string{}, Probs: []float64{}, Top: []map[string]float64{}, Offsets: []int{}}
	for _, p := range list {
		name, _ := f.s.spelled(p.id)
		out.Tokens = append(out.Tokens, name)
		out.Probs = append(out.Probs, finite(p.Chosen))
		out.Offsets = append(out.Offsets, p.offset)
		best := map[string]float64{name: finite(p.Chosen)} // the one chosen is always there
		for _, t := range p.Top {
			name, _ := f.s.spelled(t.ID)
			if _, there := best[name]; !there {
				best[name] = finite(t.LogProb)
			}
		}
		if top == 0 {
			best = nil
		}
		out.Top = append(out.Top, best)
	}
	return out
}
