package krait

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
)

// Token is one token of a generation.
type Token struct {
	ID int
	// Text is the text that became final with the token: whole characters only, and no possible
	// beginning of a stop string. It may be empty, or that of several tokens. Joined, the texts of
	// a stream are [Generation.Text].
	Text string
	// LogProbs are the token's, with [Generate.LogProbs].
	LogProbs LogProbs
	// End is why the text ends with this token; empty: it does not. The end-of-text token comes,
	// too (ReachedEOS), with the rest of the text.
	End Reason
}

// Stream continues a text as [Model.Generate] does, and yields tokens as they are generated.
// Leaving the loop stops the generation and frees its slot. An error, also that of a context that
// is done, is the last element, with the text that was held back.
//
//	for token, err := range m.Stream(ctx, "In the beginning", krait.Generate{}) {
//		if err != nil { … }
//		fmt.Print(token.Text)
//	}
func (m *Model) Stream(ctx context.Context, prompt string, o Generate) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		ids, err := m.encode(prompt)
		if err != nil {
			yield(Token{}, err)
			return
		}
		m.stream(ctx, ids, o, yield)
	}
}

// StreamIDs is [Model.Stream] for a prompt of token ids. Without a tokenizer there is no text.
func (m *Model) StreamIDs(ctx context.Context, prompt []int, o Generate) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) { m.stream(ctx, prompt, o, yield) }
}

func (m *Model) stream(ctx context.Context, prompt []int, o Generate, yield func(Token, error) bool) {
	if o.Accept != nil {
		yield(Token{}, errors.New("a stream has no Accept: leave its loop instead, or use Generate"))
		return
	}
	g, err := m.newGenerator(prompt, o)
	if err != nil {
		yield(Token{}, err)
		return
	}
	g.yield = func(t Token) bool { return yield(t, nil) }
	g.finish(g.run(ctx, prompt))
	if g.err != nil {
		yield(Token{Text: g.w.take()}, g.err)
	}
}

// GenerateBatch continues texts that share steps, and returns the generations in their order. Each
// gets the text that it would get alone, with the seed of o plus its index. Functions of o are not
// called. If one fails the others are stopped: generations so far come with the error. Replicas are
// more models of the same weights: each text runs on the first with a free slot.
func (m *Model) GenerateBatch(ctx context.Context, prompts []string, o Generate, replicas ...*Model) ([]*Generation, error) {
	o.OnPrompt, o.OnText, o.OnToken, o.OnLogProbs, o.Accept = nil, nil, nil, nil, nil
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	out := make([]*Generation, len(prompts))
	models := append([]*Model{m}, replicas...)
	var all sync.WaitGroup
	for slot := range m.engine.Slots() { // a slot of each model before the next one of any
		for _, m := range models {
			if slot >= m.engine.Slots() {
				continue
			}
			all.Go(func() {
				for i := range next {
					one := o
					one.Seed += uint64(i)
					var err error
					if out[i], err = m.Generate(ctx, prompts[i], one); err != nil {
						cancel(fmt.Errorf("prompt %d: %w", i+1, err))
					}
				}
			})
		}
	}
	for i := 0; i < len(prompts) && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	all.Wait()
	return out, context.Cause(ctx)
}
