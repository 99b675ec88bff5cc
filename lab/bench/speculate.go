package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/quantile"
	"github.com/krait-ml/krait/session/schedule"
)

// SpeculationOptions configure a measurement of decode with drafts and without, in turns.
type SpeculationOptions struct {
	Options
	Speculate string // as in krait.Generate
	// Text is the prompt and then the tokens that stand for those chosen, as weights may be random.
	// Each sequence of a batch takes it.
	Text []int
}

// Speculation is the speed of decode with drafts, beside that without.
type Speculation struct {
	Model      string `json:"model"`
	Family     string `json:"family,omitempty"`
	Parameters int64  `json:"parameters,omitempty"`
	Math       string `json:"math,omitempty"`
	Kind       string `json:"kind"`
	Batch      int    `json:"batch"`
	Prompt     int    `json:"prompt"`
	Tokens     int    `json:"tokens"`
	Repeat     int    `json:"repeat"`

	Without  float64 `json:"without_tokens_per_s"` // of all sequences
	With     float64 `json:"with_tokens_per_s"`
	Ratio    float64 `json:"ratio"` // median of those of the pairs
	Drafted  int64   `json:"drafted"`
	Accepted int64   `json:"accepted"`
	Steps    float64 `json:"steps"` // of a run with drafts; Tokens-1 without
}

// MeasureSpeculation measures a model that was opened with speculative decoding.
func MeasureSpeculation(ctx context.Context, m *krait.Model, o SpeculationOptions) (*Speculation, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if n := o.Prompt + o.Tokens; len(o.Text) < n {
		return nil, fmt.Errorf("the text has %d tokens; a prompt of %d and %d more take %d: give a longer one, or fewer tokens", len(o.Text), o.Prompt, o.Tokens, n)
	}
	out := &Speculation{Model: m.Name, Family: m.Family(), Parameters: m.Parameters(), Kind: m.Drafter(o.Speculate, "").Kind(), Batch: o.Batch, Prompt: o.Prompt, Tokens: o.Tokens, Repeat: o.Repeat}
	var sides [2][]float64
	var ratios []float64
	var steps int64
	for round := range o.Repeat + 1 { // the first warms up
		var rates [2]float64
		order := []int{0, 1}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, with := range order {
			before := m.Session().Scheduler().Load()
			var err error
			if rates[with], err = o.run(ctx, m, with == 1, round); err != nil {
				return nil, err
			}
			if after := m.Session().Scheduler().Load(); with == 1 && round > 0 {
				a, b := after.Drafts[out.Kind], before.Drafts[out.Kind]
				out.Drafted, out.Accepted = out.Drafted+a.Tokens-b.Tokens, out.Accepted+a.Accepted-b.Accepted
				steps += after.Steps - before.Steps
			}
		}
		if round > 0 {
			sides[0], sides[1] = append(sides[0], rates[0]), append(sides[1], rates[1])
			ratios = append(ratios, rates[1]/rates[0])
		}
	}
	out.Without, out.With, out.Ratio = quantile.Of(sides[0], 0.5), quantile.Of(sides[1], 0.5), quantile.Of(ratios, 0.5)
	out.Steps = float64(steps) / float64(o.Repeat)
	return out, nil
}

// run decodes the batch, and returns its tokens per second after the first.
func (o *SpeculationOptions) run(ctx context.Context, m *krait.Model, drafts bool, round int) (float64, error) {
	first, last, errs := make([]time.Time, o.Batch), make([]time.Time, o.Batch), make([]error, o.Batch)
	var all sync.WaitGroup
	for i := range o.Batch {
		q := schedule.Request{
			Prompt: o.Text[:o.Prompt], Forced: o.Text[o.Prompt:][:o.Tokens], MaxTokens: o.Tokens,
			Choose: func([]int) exec.Choice { return exec.Choice{} },
			Accept: func(int) bool { return false },
		}
		if drafts { // the text itself may not be among the earlier ones
			q.Draft = m.Drafter(o.Speculate, fmt.Sprint(round, " ", i))
		}
		all.Go(func() {
			for token, err := range m.Session().Scheduler().Stream(ctx, q) {
				if err != nil {
					errs[i] = err
					return
				}
				if last[i] = token.At; first[i].IsZero() {
					first[i] = token.At
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	begin, end := slices.MaxFunc(first, time.Time.Compare), slices.MaxFunc(last, time.Time.Compare)
	return float64(o.Batch*(o.Tokens-1)) / end.Sub(begin).Seconds(), nil
}
