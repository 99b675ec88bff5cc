package krait

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Replicas are the same model opened several times, data parallel: requests are
// distributed among them, and they share nothing but the machine.
type Replicas []*Model

// Generate continues texts, each on a replica that has a slot free, and returns what came
// of each in their order. A text gets what it would get alone, with a seed of its own:
// that of o and its index. o's functions are called for none, and where one fails the others
// are stopped: the generations that there are come with the error.
func (r Replicas) Generate(ctx context.Context, prompts []string, o Generate) ([]*Generation, error) {
	if len(r) == 0 {
		return nil, errors.New("there is no replica")
	}
	o.OnPrompt, o.OnText, o.OnToken, o.OnLogProbs, o.Accept = nil, nil, nil, nil, nil
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	out := make([]*Generation, len(prompts))
	var all sync.WaitGroup
	for slot := range r[0].Engine().Slots() {
		for _, m := range r {
			if slot >= m.Engine().Slots() {
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
	distribute(ctx, next, len(prompts))
	all.Wait()
	return out, context.Cause(ctx)
}

// distribute hands out numbers until the context is done.
func distribute(ctx context.Context, next chan<- int, n int) {
	defer close(next)
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			return
		}
	}
}

// Close closes all of them.
func (r Replicas) Close() error {
	var errs []error
	for _, m := range r {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
