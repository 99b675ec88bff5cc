package openai

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/krait-ml/krait"
)

// extra are parameters that other servers have and OpenAI's has not.
type extra struct {
	least     int    // tokens before the text may end
	cut       int    // tokens of a prompt that are used; 0: all
	side      string // of the prompt that is cut off: left, or right
	scores    bool   // answer with log-probabilities of the prompt
	hidden    bool   // the text's own are not asked for
	promptTop int    // of the most probable tokens at each of the prompt's
	ids       bool   // answer with token ids
	timed     bool   // answer with times
}

// maxStopIDs bounds the tokens that end a text.
const maxStopIDs = 256

// readStopIDs reads the tokens that end a text.
func readStopIDs(g *krait.Generate, raw json.RawMessage) *Error {
	ids, ok := readIDs(raw)
	switch {
	case !ok:
		return bad("stop_token_ids", "it must be an array of token ids")
	case len(ids) > maxStopIDs:
		return bad("stop_token_ids", "it has %d ids; the limit is %d", len(ids), maxStopIDs)
	}
	g.StopIDs = ids
	return nil
}

func (x *extra) check(s *Server, p *params) *Error {
	g, top := &p.generate, min(x.promptTop, s.m.Vocab())
	switch {
	case !x.scores:
	case p.stream:
		return bad("prompt_logprobs", "it requires an answer that is not streamed: leave out stream")
	case slices.ContainsFunc(s.o.Prefill, krait.Prefiller.Strict):
		return bad("prompt_logprobs", "this server must prefill the prompt, and it uses prefill servers only (--prefill-only)")
	case g.LogProbs && top != g.TopLogProbs:
		return bad("prompt_logprobs", "it is %d, and the text has %d most probable tokens; they must be equal", top, g.TopLogProbs)
	default:
		x.hidden = !g.LogProbs
		g.PromptLogProbs, g.LogProbs, g.TopLogProbs = true, true, top
	}
	if x.least > 0 && p.most > 0 && x.least > p.most {
		return bad("min_tokens", "it is %d, above max_tokens, which is %d", x.least, p.most)
	}
	return s.checkIDs("stop_token_ids", g.StopIDs)
}

// shorten keeps the last tokens of a prompt, or the first.
func (x *extra) shorten(ids []int) []int {
	if x.cut == 0 || len(ids) <= x.cut {
		return ids
	}
	if x.side == "right" {
		return ids[:x.cut]
	}
	return ids[len(ids)-x.cut:]
}

// delay forbids the tokens that end a text before it has least tokens. A format that is complete
// ends it anyway.
func (s *Server) delay(least int, o *krait.Generate) {
	if least == 0 {
		return
	}
	ends := slices.Clone(o.StopIDs)
	if !o.IgnoreEOS {
		ends = append(ends, s.m.EOS()...)
	}
	ends = slices.DeleteFunc(ends, func(id int) bool { return id < 0 || id >= s.m.Vocab() })
	all := slices.Repeat([]int32{-1}, (s.m.Vocab()+31)/32)
	chosen, mask, accept := 0, o.Mask, o.Accept
	held := make([]int32, len(all))
	o.Mask = func() []int32 {
		allowed := all
		if mask != nil {
			allowed = mask()
		}
		if chosen >= least {
			return allowed
		}
		copy(held, allowed)
		for _, id := range ends {
			held[id/32] &^= 1 << (id % 32)
		}
		if !slices.ContainsFunc(held, func(bits int32) bool { return bits != 0 }) {
			return allowed
		}
		return held
	}
	o.Accept = func(id int) bool {
		chosen++
		return accept != nil && accept(id)
	}
}

// added are the fields that a choice has if the request asks for them.
type added struct {
	IDs            []int                   `json:"token_ids,omitempty"`
	PromptIDs      []int                   `json:"prompt_token_ids,omitempty"` // in the first part
	PromptLogProbs []map[string]promptProb `json:"prompt_logprobs,omitempty"`  // the first token has none
	Timings        *timings                `json:"timings,omitempty"`          // in the last part
}

// timings are the times of a text, in milliseconds.
type timings struct {
	Queue  float64 `json:"queue_ms"`
	Cached int     `json:"cache_n"`  // tokens of the prompt that were in the prefix cache
	Prompt int     `json:"prompt_n"` // tokens that were prefilled
	First  float64 `json:"prompt_ms"`
	Tokens int     `json:"predicted_n"`
	Rest   float64 `json:"predicted_ms"` // after the first token
}

// promptProb is a token's log-probability in a prompt.
type promptProb struct {
	LogProb float64 `json:"logprob"`
	Token   string  `json:"decoded_token"`
}

// added returns what a part of a choice has besides its text.
func (s *Server) added(c *choice, p part) (a added) {
	x := c.extra
	if x.ids {
		if a.IDs = p.ids; p.first {
			a.PromptIDs = c.prompt
		}
	}
	if p.finish == nil {
		return a
	}
	if x.timed {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		a.Timings = &timings{ms(c.queued), c.out.CachedTokens, len(c.prompt) - c.out.CachedTokens, ms(c.first - c.queued), len(c.out.IDs), ms(c.took - c.first)}
	}
	if x.scores {
		a.PromptLogProbs = s.promptProbs(c)
	}
	return a
}

// promptProbs are the log-probabilities of a prompt's tokens, by id. The first has none.
func (s *Server) promptProbs(c *choice) []map[string]promptProb {
	list := []map[string]promptProb{nil}
	for i, p := range c.scored {
		at := map[string]promptProb{}
		put := func(id int, logProb float64) {
			name, _ := s.spelling(id)
			at[strconv.Itoa(id)] = promptProb{finite(logProb), name}
		}
		for _, t := range p.Top {
			put(t.ID, t.LogProb)
		}
		put(c.prompt[i+1], p.Chosen)
		list = append(list, at)
	}
	return list
}
