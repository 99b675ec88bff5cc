package krait

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/sampling"
)

// Generate says how to continue a prompt. The zero value is greedy, for 200
// tokens, until the model ends the text.
type Generate struct {
	MaxTokens int // 0: 200

	Temperature       float64 // 0: greedy
	TopK              int     // keep the k most probable tokens; 0: all
	TopP              float64 // keep the most probable tokens up to this probability; 0: all
	RepetitionPenalty float64 // of tokens that were seen, as in transformers; 0 or 1: none
	Seed              uint64  // the same seed gives the same text

	Stop      []string // ends before any of these texts
	IgnoreEOS bool     // go on where the model would end the text

	// OnPrompt is told how much of a long prompt has been read, from 0 on.
	OnPrompt func(done, all int)
	// OnText gets the text as soon as it is certain, whole characters only.
	OnText func(text string)
	// OnToken gets each token; it is what there is without a tokenizer.
	OnToken func(id int)
}

// Reason says why a generation ended.
type Reason string

// The reasons.
const (
	ReachedEOS  Reason = "end of text"
	ReachedStop Reason = "stop string"
	ReachedMax  Reason = "token limit"
)

// Generation is a continued prompt, or with an error as much of it as there is.
type Generation struct {
	Text   string // without the prompt; empty without a tokenizer
	IDs    []int  // without the token that ended the text
	Reason Reason // empty with an error

	PromptTokens int
	TTFT         time.Duration // from the call to the first token
	Total        time.Duration
}

// TokensPerSecond is the rate after the first token, 0 where there was no other.
func (g *Generation) TokensPerSecond() float64 {
	if len(g.IDs) < 2 || g.Total <= g.TTFT {
		return 0
	}
	return float64(len(g.IDs)-1) / (g.Total - g.TTFT).Seconds()
}

// Generate continues a text. An error of a step, and a context that is done, comes with
// what was generated before.
func (m *Model) Generate(ctx context.Context, prompt string, o Generate) (*Generation, error) {
	t, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	ids, err := t.Encode(prompt, true)
	if err != nil {
		return nil, err
	}
	return m.GenerateIDs(ctx, ids, o)
}

// GenerateIDs continues token ids, as Generate does. Stop strings need a tokenizer.
func (m *Model) GenerateIDs(ctx context.Context, prompt []int, o Generate) (*Generation, error) {
	start := time.Now()
	if o.MaxTokens == 0 {
		o.MaxTokens = 200
	}
	if o.MaxTokens < 0 {
		return nil, fmt.Errorf("MaxTokens is %d; it must be at least 1", o.MaxTokens)
	}
	sampler, err := sampling.New(sampling.Config{Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP,
		RepetitionPenalty: o.RepetitionPenalty, Seed: o.Seed}, m.Vocab())
	if err != nil {
		return nil, err
	}
	w, err := m.newWriter(&o)
	if err != nil {
		return nil, err
	}
	s, err := m.NewSequence()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.fed = o.OnPrompt

	out := &Generation{PromptTokens: len(prompt)}
	g := generator{&o, s, sampler, w, out, start}
	out.Reason, err = g.run(ctx, prompt)
	out.Text = w.flush()
	out.Total = time.Since(start)
	return out, err
}

// generator is a generation under way.
type generator struct {
	o       *Generate
	s       *Sequence
	sampler *sampling.Sampler
	w       *writer
	out     *Generation
	start   time.Time
}

// run adds ids to the generation until there is a reason to end.
func (g *generator) run(ctx context.Context, prompt []int) (Reason, error) {
	o, out := g.o, g.out
	if err := g.s.check(prompt); err != nil {
		return "", err
	}
	if o.OnPrompt != nil && len(prompt) > prefillChunk {
		o.OnPrompt(0, len(prompt))
	}
	for _, id := range prompt {
		g.sampler.Accept(id)
	}
	next := prompt
	for len(out.IDs) < o.MaxTokens {
		id, err := g.next(ctx, next)
		if err != nil {
			return "", err
		}
		if out.TTFT == 0 {
			out.TTFT = time.Since(g.start)
		}
		if !o.IgnoreEOS && slices.Contains(g.s.m.EOS(), id) {
			return ReachedEOS, nil
		}
		g.sampler.Accept(id)
		out.IDs = append(out.IDs, id)
		if o.OnToken != nil {
			o.OnToken(id)
		}
		if g.w.push(id) {
			return ReachedStop, nil
		}
		next = out.IDs[len(out.IDs)-1:]
	}
	return ReachedMax, nil
}

// next feeds tokens and lets the device choose the one after them: logits need not
// travel.
func (g *generator) next(ctx context.Context, tokens []int) (int, error) {
	return g.s.choose(ctx, exec.Choice{Choice: g.sampler.Choice(), Seen: g.sampler.Seen()}, tokens)
}
