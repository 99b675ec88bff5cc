package krait

import (
	"context"
	"errors"
	"iter"
)

// Token is one token of a generation.
type Token struct {
	ID int
	// Text is what became certain with the token, whole characters only, and nothing that
	// may be the beginning of a stop string: it may be empty, or be that of several tokens.
	// Joined, the texts of a stream are [Generation.Text].
	Text string
	// LogProbs is how probable the token was, where [Generate.LogProbs] asks for it.
	LogProbs LogProbs
	// End says why the text ends with this token; empty: it goes on. A token that the model
	// ends texts with comes too (ReachedEOS), with the rest of the text that was held back.
	End Reason
}

// Stream continues a text as [Model.Generate] does, and gives its tokens as they come. To
// leave the loop stops the generation, and gives its slot to whoever waits. An error, also that
// of a context which is done, comes with the text that was held back, and is the last.
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

// StreamIDs is [Model.Stream] of a prompt of token ids. Without a tokenizer there is no text.
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
	g.tell = func(t Token) bool { return yield(t, nil) }
	g.finish(g.run(ctx, prompt))
	if g.err != nil {
		yield(Token{Text: g.w.took()}, g.err)
	}
}

// GenerateBatch continues texts that share steps, and returns what came of each in their
// order. More than there are slots wait for theirs. A text gets what it would get alone,
// with a seed of its own: that of o and its index. o's functions are called for none, and
// where one fails the others are stopped: the generations that there are come with the error.
func (m *Model) GenerateBatch(ctx context.Context, prompts []string, o Generate) ([]*Generation, error) {
	return Replicas{m}.Generate(ctx, prompts, o)
}
